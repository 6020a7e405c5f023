package consult

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/request"
	"holdline/daemon/consult/steps"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/lockcheck"
)

// A Job is a consult from its request until its answer is pruned. While it is live it is queued or
// runs, and a goroutine of the manager serves it. When it has ended another Job takes its place in
// the manager's map, which has only what lists, budgets and clients need of it: see [kept].
//
// Fields of the first two groups do not change while the job is served. The manager's mutex guards
// the others. Methods whose names end in Locked want it held; the others take it.
type Job struct {
	Rec     jobdir.Record // but for Attended, Ending, the level's fields and a judge's prompt, which the mutex guards
	Dir     string
	timeout time.Duration
	created time.Time
	adopted bool      // an earlier daemon has started its worker; false once this one begins again, when drive alone reads it
	sign    time.Time // if adopted, and its worker was found dead: when that last wrote a file
	kept    *kept     // nil while it is live
	m       *Manager

	life  context.Context //nolint:containedctx // done when the job is left to the next daemon
	leave context.CancelFunc
	slot  chan struct{} // closed when the job leaves the queue to run
	stop  chan struct{} // closed when the job is asked to end
	done  chan struct{} // closed when answer is set

	writing sync.Mutex // orders the writes of job.json, and guards refused; taken before the manager's
	refused error      // why the record could not be made; job.json is then another job's, or none

	state     answer.State
	began     time.Time // when it left the queue
	queued    bool      // it was given to the queue
	attending int       // calls that wait; while the job is attended, the end of the last one ends it
	watching  int       // callers that wait for the job by its id
	why       string    // why it was asked to end; "" if it was not
	unsaved   bool      // detached in memory, but job.json still says attended
	note      string    // what the job does, for people
	session   string    // the program's own
	model     string
	turn      int            // of the model
	cost      *float64       // so far; nil if unknown
	maxUSD    float64        // what the run may cost; 0 for no limit
	answer    *answer.Answer // read-only once done is closed

	// A client's right to fetch the answer again: it has asked, and has not confirmed that it holds it.
	claimed bool
	expires time.Time // of that right; zero while the client is connected
}

// kept is what is remembered of a job that has ended. The answer lies in its directory.
type kept struct {
	info      answer.Info
	cost      budget.Cost
	window    *engine.Window
	session   string         // the program's own; "" if there is none
	told      bool           // a client has its id: it was detached
	fetched   bool           // a client has asked for it since its end
	unwritten *answer.Answer // only if it could not be written
}

// newJob returns a live job that no map has yet.
func (m *Manager) newJob(rec jobdir.Record) *Job {
	j := &Job{
		Rec: rec, Dir: filepath.Join(m.opt.Dir, rec.ID), m: m, created: rec.Created(),
		timeout: time.Duration(rec.TimeoutMS) * time.Millisecond, state: answer.Queued, note: "queued",
		slot: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	j.life, j.leave = context.WithCancel(m.life) // the manager calls leave
	return j
}

// newKept returns the job of rec that has ended with the answer a, without its claim.
func (m *Manager) newKept(rec jobdir.Record, a *answer.Answer, detached bool) *Job {
	k := &kept{
		info: a.Info(), session: a.SessionID, window: a.Window, told: detached && a.Panel == "", // a panel keeps its members
		cost: budget.Cost{
			Identity: a.Identity, Session: a.Caller, USD: a.CostUSD, Ended: time.UnixMilli(a.EndedUnixMS),
		},
	}
	switch f := a.Fault; {
	case a.Answered != nil: // its members count, each by itself
		k.cost = budget.Cost{Ended: k.cost.Ended}
	case f != nil && f.Fault.Code == fault.BudgetExceeded && f.Stage == fault.Host: // it was refused
		k.cost.Identity, k.cost.Session = "", ""
	}
	// The record may be lost.
	rec.ID, rec.Identity, rec.Project, rec.Panel, rec.Follows = a.ID, a.Identity, a.Project, a.Panel, a.Follows
	// They may be large, and the answer has what counts of them.
	rec.Request, rec.Context, rec.Members, rec.Notes = engine.Request{}, nil, nil, nil
	rec.EnforcedBy, rec.EngineVersion, rec.BootID = "", "", ""
	return &Job{Rec: rec, Dir: filepath.Join(m.opt.Dir, rec.ID), m: m, kept: k}
}

// isPanel reports whether the job is a panel, which has members and no worker.
func (j *Job) isPanel() bool { return j.Rec.Members != nil }

// lock takes the manager's mutex, and returns what releases it.
func (j *Job) lock() (unlock func()) {
	j.m.mu.Lock()
	return j.m.mu.Unlock
}

// write writes job.json. It fails for a job whose record could not be made.
func (j *Job) write() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	return j.writeNow()
}

// writeNow is write for a caller that holds j.writing.
func (j *Job) writeNow() error {
	if j.refused != nil {
		return j.refused
	}
	unlock := j.lock()
	rec := j.Rec
	unlock()
	return rec.Write(j.Dir)
}

// record makes the job's directory with job.json: from then on the job outlives the daemon. It
// returns the fault of a job that cannot be recorded, whose later writes fail, too.
func (j *Job) record() *fault.Record {
	j.writing.Lock()
	defer j.writing.Unlock()
	lockcheck.Blocking("make directory")
	err := os.Mkdir(j.Dir, 0o700)
	faultpoint.At("consult.dir")
	if err == nil && !j.isPanel() { // a job with this may lack its line in the audit log; a panel has none
		err = os.Mkdir(filepath.Join(j.Dir, jobdir.DirTemp), 0o700)
	}
	if err == nil {
		err = j.writeNow()
	}
	var f *fault.Record
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrExist):
		f = fault.New(fault.OutcomeUnknown, fault.Host, operation,
			"consult %s was begun by an earlier daemon, and what became of it is not known here", j.Rec.ID)
	default:
		_ = os.RemoveAll(j.Dir)
		f = fault.New(fault.ResourceExhausted, fault.Host, operation, "the consult cannot be written down: %v", err)
	}
	j.refused = f
	return f
}

// setLevel records what holds the run to its level, which may differ from when it was asked for.
func (j *Job) setLevel(cmd engine.Command, version string) error {
	unlock := j.lock()
	rec := &j.Rec
	same := rec.Level == cmd.Level && rec.EnforcedBy == cmd.EnforcedBy && slices.Equal(rec.Notes, cmd.Notes) &&
		rec.EngineVersion == version
	rec.Level, rec.EnforcedBy, rec.Notes, rec.EngineVersion = cmd.Level, cmd.EnforcedBy, cmd.Notes, version
	unlock()
	if same {
		return nil
	}
	return j.write()
}

// end asks the job to end, for the first reason given.
func (j *Job) end(why string) {
	defer j.lock()()
	j.endLocked(why)
}

func (j *Job) endLocked(why string) {
	if j.why == "" {
		j.why = why
		close(j.stop)
	}
}

// endUnattendedLocked ends an attended job for which no call waits.
func (j *Job) endUnattendedLocked(why string) {
	if j.attending == 0 && j.Rec.Attended {
		j.endLocked(why)
	}
}

// stopAttending ends the wait of one call. gone says that its client has cancelled or left: then the
// last one ends an attended job.
func (j *Job) stopAttending(gone bool) {
	defer j.lock()()
	if j.attending--; gone {
		j.endUnattendedLocked("its client cancelled it or left")
	}
}

// watch adds n callers that wait for the job by its id: they stand in for a client.
func (j *Job) watch(n int) {
	defer j.lock()()
	j.watching += n
}

// detach makes the job a background one, in memory: see [Job.saveDetached].
func (j *Job) detach() {
	defer j.lock()()
	j.unsaved = j.unsaved || j.Rec.Attended
	j.Rec.Attended = false
}

// saveDetached writes to disk that the job is a background one. Call it before a client gets its id.
func (j *Job) saveDetached() error {
	unlock := j.lock()
	unsaved := j.unsaved
	unlock()
	if !unsaved {
		return nil
	}
	err := j.write()
	defer j.lock()()
	j.unsaved = err != nil
	return err
}

// setNote says what the job does, for people.
func (j *Job) setNote(format string, args ...any) {
	defer j.lock()()
	j.note = fmt.Sprintf(format, args...)
}

// progressNote returns the note with the turn and the cost so far.
func (j *Job) progressNote() string {
	defer j.lock()()
	note := j.note
	if j.turn > 1 && j.state == answer.Running {
		note += fmt.Sprintf(", turn %d", j.turn)
	}
	if j.cost != nil {
		note += fmt.Sprintf(", $%.4f so far", *j.cost)
	}
	return note
}

// status returns the job's answer, or how it stands, as a partial answer.
func (j *Job) status() (a *answer.Answer, ended bool) {
	defer j.lock()()
	return j.statusLocked()
}

func (j *Job) statusLocked() (a *answer.Answer, ended bool) {
	if j.answer != nil {
		return j.answer, true
	}
	a = answer.New(&j.Rec, j.state)
	a.Partial, a.Why, a.SessionID, a.CostUSD, a.NumTurns = true, j.note, j.session, j.cost, j.turn
	if j.model != "" {
		a.Models = []string{j.model}
	}
	if !j.began.IsZero() {
		a.DurationMS = time.Since(j.began).Milliseconds()
	}
	return a, false
}

// infoLocked returns the job's row in a list.
func (j *Job) infoLocked(now time.Time) answer.Info {
	if j.kept != nil {
		return j.kept.info
	}
	a, _ := j.statusLocked()
	i := a.Info()
	i.TookMS, i.Note = now.Sub(j.created).Milliseconds(), a.Why
	return i
}

// costLocked returns what the job has cost. A live one counts with what is reserved for it, if that
// is asked for and more.
func (j *Job) costLocked(now time.Time, reserved bool) budget.Cost {
	if j.kept != nil {
		return j.kept.cost
	}
	c := budget.Cost{Identity: j.Rec.Identity, Session: j.Rec.Session, USD: j.cost, Ended: now}
	if least := j.Rec.ReservedUSD; reserved && least > 0 && (c.USD == nil || *c.USD < least) {
		c.USD = &least
	}
	return c
}

// isClaimedLocked reports whether the client may still come back for the answer.
func (j *Job) isClaimedLocked(now time.Time) bool {
	return j.claimed && (j.expires.IsZero() || now.Before(j.expires))
}

// reviewLocked asks the owner of the call what remains of the claim. An owner that answers is
// connected, so its claim has no expiry.
func (j *Job) reviewLocked(o calls.Owner) {
	j.claimed, j.expires = j.claimed && !o.HasConfirmed(j.Rec.Key()), time.Time{}
}

// claimAgain gives the client of an earlier daemon's job the right to come back, if it can.
func (j *Job) claimAgain() {
	j.claimed, j.expires = j.Rec.Panel == "" && !j.Rec.IsDeserted(), j.m.begun.Add(j.m.opt.Return)
}

// lookPause is how often a job of an earlier daemon looks for its client.
const lookPause = time.Second

// awaitClient ends an attended job of an earlier daemon if its client is gone, or does not come back
// within that time, unless a caller watches the job.
func (j *Job) awaitClient(within time.Duration) {
	late, look := time.Now().Add(within), time.NewTicker(lookPause)
	defer look.Stop()
	for {
		gone, why := j.Rec.IsDeserted(), "its client is gone"
		if !gone {
			gone, why = !time.Now().Before(late), "its client did not come back"
		}
		unlock := j.lock()
		over := gone && j.watching == 0
		if over {
			j.endUnattendedLocked(why)
		}
		unlock()
		if over {
			return
		}
		select {
		case <-look.C:
		case <-j.done:
			return
		case <-j.life.Done():
			return
		}
	}
}

const (
	heardWait  = 2 * time.Second        // for the program to take the message
	heardEvery = 100 * time.Millisecond // between two looks whether it has
)

// awaitHeard waits a moment for the program of a running job to take a message.
func (j *Job) awaitHeard(ctx context.Context, message string) error {
	over, tick := time.After(heardWait), time.NewTicker(heardEvery)
	defer tick.Stop()
	for said := steps.Follow(j.Dir); !said.Heard(message); {
		if a, _ := j.status(); a.State == answer.Queued {
			return nil
		}
		select {
		case <-tick.C:
		case <-j.done:
			return nil
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// checkAsked returns the fault of a judge that was not asked yet: there is nothing to end or to tell.
func (j *Job) checkAsked() error {
	if j.Rec.Label != request.JudgeLabel {
		return nil
	}
	if _, err := os.Lstat(j.Dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return engine.Invalid("consult_id: %s is the judge of panel %s, which waits for the answers of the others; "+
		"the panel's id ends them all", j.Rec.ID, j.Rec.Panel)
}

// A progressReport tells a caller that waits what the job does.
type progressReport func(elapsed time.Duration, note string)

const (
	forever   time.Duration = -1               // a wait without a limit
	reports                 = time.Second      // at most so often
	heartbeat               = 15 * time.Second // at least so often
)

// await waits until the job has ended, up to wait, and reports meanwhile what it does. An error is
// the cause of ctx.
func (j *Job) await(ctx context.Context, wait time.Duration, report progressReport) (ended bool, err error) {
	var limit, tick <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		limit = t.C
	}
	var told string
	var last time.Time
	tell := func() {
		if now := j.progressNote(); now != told || time.Since(last) >= heartbeat {
			told, last = now, time.Now()
			report(time.Since(j.created), now)
		}
	}
	if report != nil {
		t := time.NewTicker(reports)
		defer t.Stop()
		tick = t.C
		tell()
	}
	for {
		select {
		case <-j.done:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-limit:
			_, ended = j.status()
			return ended, nil
		case <-tick:
			tell()
		}
	}
}
