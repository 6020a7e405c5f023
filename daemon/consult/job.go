package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/consult/material"
	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// State is the state of a job.
type State string

// The states. A job is Queued until it has a slot, then Running. Done, Failed and
// Cancelled are final.
const (
	Queued    State = "queued"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// record is job.json: the request, as it came and as the daemon has resolved it. It
// holds the prompt, so only this user may read the file. An older daemon's record must
// stay readable: fields that are missing are zero.
type record struct {
	Version       int            `json:"version"`
	ID            string         `json:"consult_id"`
	Session       string         `json:"session"` // hash of the caller's
	N             int64          `json:"n"`
	Identity      string         `json:"identity"`
	Project       string         `json:"project,omitempty"`
	Client        string         `json:"client,omitempty"`
	Attended      bool           `json:"attended"`
	Contract      string         `json:"contract"`
	Engine        string         `json:"engine"`
	CreatedUnixMS int64          `json:"created_unix_ms"`
	CreatedBootMS int64          `json:"created_boot_ms,omitempty"` // reading of the boot clock, of boot BootID
	TimeoutMS     int64          `json:"timeout_ms"`
	Request       engine.Request `json:"request"`
	EngineVersion string         `json:"engine_version"`
	Level         string         `json:"level"` // that is enforced, and how
	EnforcedBy    string         `json:"enforced_by"`
	Notes         []string       `json:"notes,omitempty"`
	BootID        string         `json:"boot_id,omitempty"` // of the machine when it was asked for
	ClientPID     int            `json:"client_pid,omitempty"`
	// with ClientPID and BootID: the process that the client talks through
	ClientStart uint64            `json:"client_start_time,omitempty"`
	WaitMS      int64             `json:"wait_ms,omitempty"` // how long the call waits; 0 if it does not
	Context     *material.Context `json:"context,omitempty"` // what was put behind the prompt
	Ending      string            `json:"ending,omitempty"`  // why the job is being cancelled; "" if it is not
}

// job is a consult that is queued or running. Lock order: writing before mu; the
// manager's mutex before mu.
type job struct {
	rec     record // read-only, except for Attended, Ending and the level's fields, which mu guards
	dir     string
	timeout time.Duration
	created time.Time
	adopted bool      // an earlier daemon has started its worker
	sign    time.Time // if adopted, and its worker was found dead: when that last wrote a file
	maxUSD  float64   // what the run may cost, once that is known; 0 for no limit. For the job's goroutine
	claim   *claim    // of the client that asked; guarded by the manager's mutex

	life  context.Context //nolint:containedctx // done when the job is left to the next daemon
	leave context.CancelFunc

	writing sync.Mutex // orders the writes of job.json; taken before mu

	slot chan struct{} // closed when the job has a slot
	stop chan struct{} // closed when the job is asked to end
	done chan struct{} // closed when answer is set

	mu        sync.Mutex
	state     State
	began     time.Time // when it left the queue
	attending int       // calls that wait; while the job is attended, the end of the last one ends it
	watching  int       // callers that wait for the job by its id
	stopWhy   string    // set before stop is closed
	unsaved   bool      // detached in memory, but job.json still says attended
	note      string    // what the job does, for people
	session   string    // the program's own
	model     string
	turn      int      // of the model
	cost      *float64 // so far; nil if unknown
	answer    *Answer  // read-only once done is closed
}

// newJob returns a job that is queued, with the record rec and the directory dir. Its
// life ends with the manager's.
func (m *Manager) newJob(rec record, dir string) *job {
	j := &job{
		rec: rec, dir: dir, timeout: time.Duration(rec.TimeoutMS) * time.Millisecond, created: rec.created(),
		state: Queued, note: "queued", slot: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
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
	j.mu.Lock()
	b, err := json.Marshal(j.rec)
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("encoding the job: %w", err)
	}
	return statedir.WriteFile(filepath.Join(j.dir, fileJob), append(b, '\n'))
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

// key returns the key of the call that asked for the job.
func (rec *record) key() calls.Key { return calls.Key{Session: rec.Session, N: rec.N} }

// thisBoot reports whether the job was asked for since the machine was booted.
func (rec *record) thisBoot() bool { return rec.BootID != "" && rec.BootID == bootclock.ID() }

// created returns when the job was asked for. Within one boot it reads the boot clock,
// so that a change of the wall clock does not move deadlines. After another boot only
// the wall clock is left.
func (rec *record) created() time.Time {
	if rec.thisBoot() && rec.CreatedBootMS > 0 {
		return bootclock.TimeMS(rec.CreatedBootMS)
	}
	return time.UnixMilli(rec.CreatedUnixMS)
}

// deserted reports whether the process through which the client would come back for the
// job is gone. That process is the proxy; it is recognised by its pid, its start time
// and the boot. If the daemon cannot look at the process, deserted returns false: a job
// is rather kept than lost.
func (rec *record) deserted() bool {
	if rec.BootID == "" || rec.ClientPID == 0 || rec.ClientStart == 0 {
		return false
	}
	if now := bootclock.ID(); now != rec.BootID {
		return now != ""
	}
	p, err := process.Lookup(rec.ClientPID)
	return errors.Is(err, process.ErrGone) || err == nil && p.Start != rec.ClientStart
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
	if j.turn > 1 && j.state == Running {
		note += fmt.Sprintf(", turn %d", j.turn)
	}
	if j.cost != nil {
		note += fmt.Sprintf(", $%.4f so far", *j.cost)
	}
	return note
}

// Answer is answer.json: how a job ended, and all that is kept of it. It is read-only
// once made, and is shared without a lock.
type Answer struct {
	Version       int               `json:"version"`
	ID            string            `json:"consult_id"`
	State         State             `json:"state"`
	Identity      string            `json:"identity"`
	Project       string            `json:"project,omitempty"`
	Text          string            `json:"answer"`
	Partial       bool              `json:"partial"`
	Cut           bool              `json:"cut,omitempty"` // it was longer than what is kept
	Why           string            `json:"why,omitempty"` // of a cancelled one
	SessionID     string            `json:"session_id,omitempty"`
	Models        []string          `json:"models,omitempty"`
	CostUSD       *float64          `json:"cost_usd"`
	Usage         engine.Usage      `json:"usage"`
	NumTurns      int               `json:"num_turns"`
	DurationMS    int64             `json:"duration_ms"` // from start to end of the program
	APIDurationMS int64             `json:"duration_api_ms"`
	QueuedMS      int64             `json:"queued_ms"`
	StopReason    string            `json:"stop_reason,omitempty"`
	Level         string            `json:"level"`
	EnforcedBy    string            `json:"enforced_by"`
	Notes         []string          `json:"notes,omitempty"`
	Denials       []engine.Denial   `json:"denials,omitempty"`
	RateLimit     json.RawMessage   `json:"rate_limit,omitempty"`
	Engine        string            `json:"engine"`
	EngineVersion string            `json:"engine_version,omitempty"`
	Cwd           string            `json:"cwd"`
	Model         string            `json:"model,omitempty"` // that was asked for
	CreatedUnixMS int64             `json:"created_unix_ms"`
	EndedUnixMS   int64             `json:"ended_unix_ms"`
	Exit          string            `json:"exit,omitempty"`   // of the program, for people
	Fault         json.RawMessage   `json:"fault,omitempty"`  // see [Answer.Failure]
	Caller        string            `json:"caller,omitempty"` // hash of the session that asked
	Structured    json.RawMessage   `json:"structured,omitempty"`
	Window        *engine.Window    `json:"window,omitempty"` // of the subscription
	Context       *material.Context `json:"context,omitempty"`
	MaxUSD        float64           `json:"max_usd,omitempty"` // what it could cost at most; 0 for no limit
	// of all consults of the session that asked, with this one
	SessionUSD float64 `json:"session_cost_usd,omitempty"`
	// of all consults of the identity on that day, with this one
	TodayUSD float64 `json:"today_cost_usd,omitempty"`
}

// Failure returns the fault of an answer that failed or was cancelled, and nil for a
// good one.
func (a *Answer) Failure() *fault.Record {
	if len(a.Fault) == 0 {
		return nil
	}
	var f fault.Record
	if err := json.Unmarshal(a.Fault, &f); err != nil {
		return fault.New(fault.InternalFailure, fault.Host, operation, "the kept fault cannot be read: %v", err)
	}
	return &f
}

// Info is one row of a list.
type Info struct {
	ID            string   `json:"consult_id"`
	State         State    `json:"state"`
	Identity      string   `json:"identity"`
	Cwd           string   `json:"cwd"`
	Model         string   `json:"model,omitempty"`
	CreatedUnixMS int64    `json:"created_unix_ms"`
	TookMS        int64    `json:"took_ms"`
	CostUSD       *float64 `json:"cost_usd"`
	Code          string   `json:"code,omitempty"` // of the fault, if it failed
	Note          string   `json:"note,omitempty"` // what it does now
	Engine        string   `json:"engine"`
	Level         string   `json:"level,omitempty"`
	EnforcedBy    string   `json:"enforced_by,omitempty"`
}

// info returns the row of an answer. Its model is the one with the most output, if the
// program has named any.
func (a *Answer) info() Info {
	i := Info{
		ID: a.ID, State: a.State, Identity: a.Identity, Cwd: a.Cwd, Model: a.Model, CreatedUnixMS: a.CreatedUnixMS,
		TookMS: a.EndedUnixMS - a.CreatedUnixMS, CostUSD: a.CostUSD, Engine: a.Engine, Level: a.Level,
		EnforcedBy: a.EnforcedBy,
	}
	if len(a.Models) > 0 {
		i.Model = a.Models[0]
	}
	if f := a.Failure(); f != nil {
		i.Code = string(f.Fault.Code)
	}
	return i
}

// info returns the row of a job that has not ended.
func (j *job) info(now time.Time) Info {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := Info{
		ID: j.rec.ID, State: j.state, Identity: j.rec.Identity, Cwd: j.rec.Request.Cwd, Model: j.rec.Request.Model,
		CreatedUnixMS: j.rec.CreatedUnixMS, TookMS: now.Sub(j.created).Milliseconds(), Note: j.note,
		Engine: j.rec.Engine, CostUSD: j.cost, Level: j.rec.Level, EnforcedBy: j.rec.EnforcedBy,
	}
	if j.model != "" {
		i.Model = j.model
	}
	return i
}

// readRecord reads the job.json of a job's directory.
func readRecord(dir string) (record, error) {
	var rec record
	b, err := ownfile.Read(filepath.Join(dir, fileJob), ownfile.MaxDocument)
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("%s: %w", filepath.Join(dir, fileJob), err)
	}
	return rec, nil
}

// readAnswer reads the answer.json of a job's directory.
func readAnswer(dir string) (*Answer, error) {
	b, err := ownfile.Read(filepath.Join(dir, fileAnswer), ownfile.MaxDocument)
	if err != nil {
		return nil, err
	}
	var a Answer
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, fileAnswer), err)
	}
	return &a, nil
}

// maxTemp bounds the path of a run's temporary directory, in bytes. The program's
// sandbox makes sockets in it with names like claude-http-0123456789abcdef.sock (34
// bytes with the slash), and the path of a socket has at most 107 bytes.
const maxTemp = 107 - 34

// shortTemp returns the temporary directory of a run: temp, or, if that is too long for
// the sandbox of level shell, a directory beside the worker's socket. It makes that
// directory. The error is a fault if that path is too long as well.
func (m *Manager) shortTemp(temp, id, level string) (string, error) {
	if level != engine.LevelShell || len(temp) <= maxTemp {
		return temp, nil
	}
	short := filepath.Join(m.opt.SocketDir, id, dirTemp)
	if len(short) > maxTemp {
		return "", fault.New(fault.Denied, fault.Host, operation,
			"level %s cannot be enforced on this machine: the paths of the state directory (%s) and of the socket's "+
				"(%s) are too long for the sandbox's own sockets",
			level, m.opt.Dir, m.opt.SocketDir)
	}
	for _, dir := range []string{m.opt.SocketDir, filepath.Dir(short), short} {
		if err := statedir.MakeDir(dir); err != nil {
			return "", err
		}
	}
	return short, nil
}
