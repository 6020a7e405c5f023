package consult

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
)

// job is a consult that is queued or running. Lock order: writing before mu; the
// manager's mutex before mu.
type job struct {
	rec     jobdir.Record // read-only, except for Attended, Ending and the level's fields, which mu guards
	dir     string
	timeout time.Duration
	created time.Time
	adopted bool      // an earlier daemon has started its worker
	sign    time.Time // if adopted, and its worker was found dead: when that last wrote a file
	maxUSD  float64   // what the run may cost, once that is known; 0 for no limit. For the job's goroutine
	claim   *claim    // of the client that asked; guarded by the manager's mutex

	life  context.Context //nolint:containedctx // done when the job is left to the next daemon
	leave context.CancelFunc

	writing sync.Mutex // orders the writes of job.json, and guards refused; taken before mu
	refused error      // why the record could not be made; job.json is then another job's, or none

	slot chan struct{} // closed when the job has a slot
	stop chan struct{} // closed when the job is asked to end
	done chan struct{} // closed when answer is set

	mu        lockcheck.Mutex
	state     answer.State
	began     time.Time // when it left the queue
	attending int       // calls that wait; while the job is attended, the end of the last one ends it
	watching  int       // callers that wait for the job by its id
	stopWhy   string    // set before stop is closed
	unsaved   bool      // detached in memory, but job.json still says attended
	note      string    // what the job does, for people
	session   string    // the program's own
	model     string
	turn      int            // of the model
	cost      *float64       // so far; nil if unknown
	answer    *answer.Answer // read-only once done is closed
}

// newJob returns a job that is queued, with the record rec and the directory dir. Its
// life ends with the manager's.
func (m *Manager) newJob(rec jobdir.Record, dir string) *job {
	j := &job{
		rec: rec, dir: dir, timeout: time.Duration(rec.TimeoutMS) * time.Millisecond, created: rec.Created(),
		state: answer.Queued, note: "queued",
		slot: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	j.life, j.leave = context.WithCancel(m.life)
	return j
}

// hardTime is how long the process of a job may take: a process that takes longer than
// its own ladder is stuck, and its worker ends it.
func (m *Manager) hardTime(j *job) time.Duration { return j.timeout + m.opt.Ladder.Whole() + spareTime }

// write replaces job.json with the present record. It takes writing for the whole
// write, so that an older record never replaces a newer one.
func (j *job) write() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.writeLocked()
}

// writeLocked does the work of write. The caller must hold j.writing.
func (j *job) writeLocked() error {
	if j.refused != nil {
		return j.refused
	}
	j.mu.Lock()
	rec := j.rec
	j.mu.Unlock()
	return rec.Write(j.dir)
}

// record makes the directory of a new job, and writes job.json. It returns nil or a fault;
// after a fault, job.json is never written.
//
// If the directory exists already, an earlier daemon has begun this job and this one
// could not read it. Running the consult again might run it twice, so the fault is
// outcome_unknown.
func (j *job) record() *fault.Record {
	j.writing.Lock()
	defer j.writing.Unlock()
	lockcheck.Blocking("make directory")
	err := os.Mkdir(j.dir, 0o700)
	faultpoint.At("consult.dir")
	if err == nil {
		err = j.writeLocked()
	}
	if err == nil {
		return nil
	}
	var f *fault.Record
	if errors.Is(err, os.ErrExist) {
		f = fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"consult %s was begun by an earlier daemon, and what became of it is not known here", j.rec.ID)
	} else {
		_ = os.RemoveAll(j.dir)
		f = fault.New(fault.ResourceExhausted, fault.Host, operation, "the consult cannot be written down: %v", err)
	}
	j.refused = f
	return f
}

// finish sets the answer and wakes the callers that wait for it.
func (j *job) finish(a *answer.Answer) {
	j.mu.Lock()
	j.state, j.answer = a.State, a
	j.mu.Unlock()
	close(j.done)
}

// end asks the job to end. The first call counts; its reason is shown to the user. end
// does not block.
func (j *job) end(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopWhy == "" {
		j.stopWhy = why
		close(j.stop)
	}
}

// setLevel writes to job.json to which level the run is held, by which mechanism, and
// the version of its program. It writes nothing if all that is as it was when the job
// was asked for.
func (j *job) setLevel(cmd engine.Command, version string) error {
	j.mu.Lock()
	rec := &j.rec
	same := rec.Level == cmd.Level && rec.EnforcedBy == cmd.EnforcedBy && slices.Equal(rec.Notes, cmd.Notes) &&
		rec.EngineVersion == version
	rec.Level, rec.EnforcedBy, rec.Notes, rec.EngineVersion = cmd.Level, cmd.EnforcedBy, cmd.Notes, version
	j.mu.Unlock()
	if same {
		return nil
	}
	return j.write()
}

// setEnding writes to job.json that the job is being cancelled. Call it before the
// cancellation is sent: a daemon that adopts the job then cancels it again.
func (j *job) setEnding() error {
	j.mu.Lock()
	j.rec.Ending = j.stopWhy
	j.mu.Unlock()
	return j.write()
}

// progress keeps the latest progress that the engine process has reported. The turn
// never moves back, and a cost that is not in the report stays.
func (j *job) progress(message string, p engine.Progress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note, j.session, j.turn = message, p.Session, max(j.turn, p.Turn)
	j.model = cmp.Or(p.Model, j.model)
	if p.CostUSD != nil {
		j.cost = p.CostUSD
	}
}

// detach makes the job a background job, in memory alone. The caller must call
// [job.saveDetached] before it hands the job's id to the client.
func (j *job) detach() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unsaved = j.unsaved || j.rec.Attended
	j.rec.Attended = false
}

// isDetached reports whether no client waits for the answer.
func (j *job) isDetached() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.rec.Attended
}

// saveDetached writes to disk that the job is a background job, unless that is done.
// The client may learn the id only afterwards: a next daemon would otherwise end the
// job as one whose id no client knows.
func (j *job) saveDetached() error {
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

// watch adds n, which is 1 or -1, to the number of callers that wait for the job by its
// id.
func (j *job) watch(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.watching += n
}

// watched reports whether a caller waits for the job by its id.
func (j *job) watched() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.watching > 0
}

// endUnattended ends the job if it is attended in name only: no call waits for it, and
// it is no background job.
func (j *job) endUnattended(why string) {
	j.mu.Lock()
	alone := j.attending == 0 && j.rec.Attended
	j.mu.Unlock()
	if alone {
		j.end(why)
	}
}

// ending reports whether the job was asked to end.
func (j *job) ending() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopWhy != ""
}

// attended reports whether the job is attended: its id is known only to calls that
// wait.
func (j *job) attended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.rec.Attended
}

// attend counts one more call that waits. The caller must call [job.stopAttending]
// once.
func (j *job) attend() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attending++
}

// stopAttending ends the attendance of one call. gone means that the client does not
// want the answer any more. Then the job ends, if this was the last attending call and
// the job is no background job.
func (j *job) stopAttending(gone bool) {
	j.mu.Lock()
	j.attending--
	last := gone && j.attending == 0 && j.rec.Attended
	j.mu.Unlock()
	if last {
		j.end("its client cancelled it or left")
	}
}

// Identity returns for which identity the job runs.
func (j *job) Identity() string { return j.rec.Identity }

// Start gives the job its slot.
func (j *job) Start() {
	j.setNote("starting")
	close(j.slot)
}

// SetPosition notes at which position of the queue the job waits.
func (j *job) SetPosition(position, of int) { j.setNote("queued, position %d of %d", position, of) }

// setNote sets what the job does, for people.
func (j *job) setNote(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note = fmt.Sprintf(format, args...)
}

// progressNote returns for people what the job does, in which turn of the model, and
// what it has cost so far.
func (j *job) progressNote() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	note := j.note
	if j.turn > 1 && j.state == answer.Running {
		note += fmt.Sprintf(", turn %d", j.turn)
	}
	if j.cost != nil {
		note += fmt.Sprintf(", $%.4f so far", *j.cost)
	}
	return note
}

// status returns the answer of a job that has ended, or else one that says how far the
// job is, without a text.
func (j *job) status() (a *answer.Answer, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.answer != nil {
		return j.answer, true
	}
	a = answer.New(&j.rec, j.state)
	a.Partial, a.Why, a.SessionID, a.CostUSD, a.NumTurns = true, j.note, j.session, j.cost, j.turn
	if j.model != "" {
		a.Models = []string{j.model}
	}
	if !j.began.IsZero() {
		a.DurationMS = time.Since(j.began).Milliseconds()
	}
	return a, false
}

// info returns the row of a job that has not ended.
func (j *job) info(now time.Time) answer.Info {
	a, _ := j.status()
	i := a.Info()
	i.TookMS, i.Note = now.Sub(j.created).Milliseconds(), a.Why
	return i
}
