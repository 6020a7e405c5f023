// Package job has a consult that is queued or running: its record on disk, who waits for it, and
// how far it is. The manager of package consult runs it.
package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/jobdir"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
)

// Job is a consult that is queued or running. Lock order: writing before mu; the
// manager's mutex before mu.
type Job struct {
	Rec     jobdir.Record // read-only, except for Attended, Ending and the level's fields, which mu guards
	Dir     string
	Timeout time.Duration
	Created time.Time
	Adopted bool      // an earlier daemon has started its worker
	Sign    time.Time // if adopted, and its worker was found dead: when that last wrote a file
	MaxUSD  float64   // what the run may cost, once that is known; 0 for no limit. For the job's goroutine
	Claim   *Claim    // of the client that asked; guarded by the manager's mutex

	Life  context.Context //nolint:containedctx // done when the job is left to the next daemon
	Leave context.CancelFunc

	writing sync.Mutex // orders the writes of job.json, and guards refused; taken before mu
	refused error      // why the record could not be made; job.json is then another job's, or none

	Slot chan struct{} // closed when the job has a slot
	Stop chan struct{} // closed when the job is asked to end
	Done chan struct{} // closed when answer is set

	mu        lockcheck.Mutex
	State     answer.State
	began     time.Time // when it left the queue
	attending int       // calls that wait; while the job is attended, the end of the last one ends it
	watching  int       // callers that wait for the job by its id
	stopWhy   string    // set before stop is closed
	unsaved   bool      // detached in memory, but job.json still says attended
	Note      string    // what the job does, for people
	session   string    // the program's own
	model     string
	Turn      int            // of the model
	Cost      *float64       // so far; nil if unknown
	Answer    *answer.Answer // read-only once done is closed
}

// New returns a job that is queued, with the record rec and the directory dir. Its
// life ends with life, which is the manager's.
func New(life context.Context, rec jobdir.Record, dir string) *Job {
	j := &Job{
		Rec: rec, Dir: dir, Timeout: time.Duration(rec.TimeoutMS) * time.Millisecond, Created: rec.Created(),
		State: answer.Queued, Note: "queued",
		Slot: make(chan struct{}), Stop: make(chan struct{}), Done: make(chan struct{}),
	}
	j.Life, j.Leave = context.WithCancel(life) //nolint:gosec // Leave is for the manager
	return j
}

// write replaces job.json with the present record. It takes writing for the whole
// write, so that an older record never replaces a newer one.
func (j *Job) write() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.writeLocked()
}

// writeLocked does the work of write. The caller must hold j.writing.
func (j *Job) writeLocked() error {
	if j.refused != nil {
		return j.refused
	}
	j.mu.Lock()
	rec := j.Rec
	j.mu.Unlock()
	return rec.Write(j.Dir)
}

// Record makes the directory of a new job, and writes job.json. It returns nil or a fault;
// after a fault, job.json is never written.
//
// If the directory exists already, an earlier daemon has begun this job and this one
// could not read it. Running the consult again might run it twice, so the fault is
// outcome_unknown.
func (j *Job) Record() *fault.Record {
	j.writing.Lock()
	defer j.writing.Unlock()
	lockcheck.Blocking("make directory")
	err := os.Mkdir(j.Dir, 0o700)
	faultpoint.At("consult.dir")
	if err == nil && j.Rec.Members == nil { // a job with this may lack its line in the audit log; a panel has none
		err = os.Mkdir(filepath.Join(j.Dir, jobdir.DirTemp), 0o700)
	}
	if err == nil {
		err = j.writeLocked()
	}
	if err == nil {
		return nil
	}
	var f *fault.Record
	if errors.Is(err, os.ErrExist) {
		f = fault.New(fault.OutcomeUnknown, fault.Host, engine.Operation,
			"consult %s was begun by an earlier daemon, and what became of it is not known here", j.Rec.ID)
	} else {
		_ = os.RemoveAll(j.Dir)
		f = fault.New(fault.ResourceExhausted, fault.Host, engine.Operation,
			"the consult cannot be written down: %v", err)
	}
	j.refused = f
	return f
}

// Finish sets the answer and wakes the callers that wait for it.
func (j *Job) Finish(a *answer.Answer) {
	j.mu.Lock()
	j.State, j.Answer = a.State, a
	j.mu.Unlock()
	close(j.Done)
}

// End asks the job to end. The first call counts; its reason is shown to the user. end
// does not block.
func (j *Job) End(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopWhy == "" {
		j.stopWhy = why
		close(j.Stop)
	}
}

// SetLevel writes to job.json to which level the run is held, by which mechanism, and
// the version of its program. It writes nothing if all that is as it was when the job
// was asked for.
func (j *Job) SetLevel(cmd engine.Command, version string) error {
	j.mu.Lock()
	rec := &j.Rec
	same := rec.Level == cmd.Level && rec.EnforcedBy == cmd.EnforcedBy && slices.Equal(rec.Notes, cmd.Notes) &&
		rec.EngineVersion == version
	rec.Level, rec.EnforcedBy, rec.Notes, rec.EngineVersion = cmd.Level, cmd.EnforcedBy, cmd.Notes, version
	j.mu.Unlock()
	if same {
		return nil
	}
	return j.write()
}

// SetEnding writes to job.json that the job is being cancelled. Call it before the
// cancellation is sent: a daemon that adopts the job then cancels it again.
func (j *Job) SetEnding() error {
	j.mu.Lock()
	j.Rec.Ending = j.stopWhy
	j.mu.Unlock()
	return j.write()
}

// Progress keeps the latest progress that the engine process has reported. The turn
// never moves back, and a cost that is not in the report stays.
func (j *Job) Progress(message string, p engine.Progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Note, j.session, j.Turn = message, p.Session, max(j.Turn, p.Turn)
	j.model = cmp.Or(p.Model, j.model)
	if p.CostUSD != nil {
		j.Cost = p.CostUSD
	}
}

// Detach makes the job a background job, in memory alone. The caller must call
// [Job.SaveDetached] before it hands the job's id to the client.
func (j *Job) Detach() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unsaved = j.unsaved || j.Rec.Attended
	j.Rec.Attended = false
}

// IsDetached reports whether no client waits for the answer.
func (j *Job) IsDetached() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.Rec.Attended
}

// SaveDetached writes to disk that the job is a background job, unless that is done.
// The client may learn the id only afterwards: a next daemon would otherwise end the
// job as one whose id no client knows.
func (j *Job) SaveDetached() error {
	j.mu.Lock()
	unsaved := j.unsaved
	j.mu.Unlock()
	if !unsaved {
		return nil
	}
	if err := j.write(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unsaved = false
	return nil
}

// Watch adds n, which is 1 or -1, to the number of callers that wait for the job by its
// id.
func (j *Job) Watch(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.watching += n
}

// watched reports whether a caller waits for the job by its id.
func (j *Job) watched() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.watching > 0
}

// EndUnattended ends the job if it is attended in name only: no call waits for it, and
// it is no background job.
func (j *Job) EndUnattended(why string) {
	j.mu.Lock()
	alone := j.attending == 0 && j.Rec.Attended
	j.mu.Unlock()
	if alone {
		j.End(why)
	}
}

// Ending reports whether the job was asked to end.
func (j *Job) Ending() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopWhy != ""
}

// Attended reports whether the job is attended: its id is known only to calls that
// wait.
func (j *Job) Attended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Rec.Attended
}

// Attend counts one more call that waits. The caller must call [Job.StopAttending]
// once.
func (j *Job) Attend() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attending++
}

// StopAttending ends the attendance of one call. gone means that the client does not
// want the answer any more. Then the job ends, if this was the last attending call and
// the job is no background job.
func (j *Job) StopAttending(gone bool) {
	j.mu.Lock()
	j.attending--
	last := gone && j.attending == 0 && j.Rec.Attended
	j.mu.Unlock()
	if last {
		j.End("its client cancelled it or left")
	}
}

// Identity returns for which identity the job runs.
func (j *Job) Identity() string { return j.Rec.Identity }

// Start gives the job its slot.
func (j *Job) Start() {
	j.SetNote("starting")
	close(j.Slot)
}

// SetPosition notes at which position of the queue the job waits.
func (j *Job) SetPosition(position, of int) { j.SetNote("queued, position %d of %d", position, of) }

// SetNote sets what the job does, for people.
func (j *Job) SetNote(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Note = fmt.Sprintf(format, args...)
}

// ProgressNote returns for people what the job does, in which turn of the model, and
// what it has cost so far.
func (j *Job) ProgressNote() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	note := j.Note
	if j.Turn > 1 && j.State == answer.Running {
		note += fmt.Sprintf(", turn %d", j.Turn)
	}
	if j.Cost != nil {
		note += fmt.Sprintf(", $%.4f so far", *j.Cost)
	}
	return note
}

// Status returns the answer of a job that has ended, or else one that says how far the
// job is, without a text.
func (j *Job) Status() (a *answer.Answer, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.Answer != nil {
		return j.Answer, true
	}
	a = answer.New(&j.Rec, j.State)
	a.Partial, a.Why, a.SessionID, a.CostUSD, a.NumTurns = true, j.Note, j.session, j.Cost, j.Turn
	if j.model != "" {
		a.Models = []string{j.model}
	}
	if !j.began.IsZero() {
		a.DurationMS = time.Since(j.began).Milliseconds()
	}
	return a, false
}

// Info returns the row of a job that has not ended.
func (j *Job) Info(now time.Time) answer.Info {
	a, _ := j.Status()
	i := a.Info()
	i.TookMS, i.Note = now.Sub(j.Created).Milliseconds(), a.Why
	return i
}

// SoFar returns what the job has cost as far as its program has reported it.
func (j *Job) SoFar(now time.Time) budget.Cost {
	j.mu.Lock()
	defer j.mu.Unlock()
	return budget.Cost{Identity: j.Rec.Identity, Session: j.Rec.Session, USD: j.Cost, Ended: now}
}

// Reserved returns what the job has cost, or what is reserved for it if that is more.
func (j *Job) Reserved(now time.Time) budget.Cost {
	c := j.SoFar(now)
	if least := j.Rec.ReservedUSD; least > 0 && (c.USD == nil || *c.USD < least) {
		c.USD = &least
	}
	return c
}

// Begin notes that the job has left the queue.
func (j *Job) Begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.State, j.began = answer.Running, time.Now()
}

// Adopt makes the job one whose worker an earlier daemon has started. began is when it left the
// queue, zero if that is not known. Call it before another goroutine knows the job.
func (j *Job) Adopt(began time.Time) {
	j.Adopted, j.State, j.Note, j.began = true, answer.Running, "taken over by the new daemon", began
}

// SetPrompt sets the prompt of the judge of a panel.
func (j *Job) SetPrompt(prompt string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.Rec.Request.Prompt = prompt
}

// WhyStopped returns why the job was asked to end, and "" if it was not.
func (j *Job) WhyStopped() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopWhy
}

// ProgramSession returns the session that the program has reported, and "" if it has none.
func (j *Job) ProgramSession() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.session
}

// BeganAt returns when the job left the queue, zero if it did not or that is not known.
func (j *Job) BeganAt() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.began
}

// StateNow returns the state.
func (j *Job) StateNow() answer.State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.State
}
