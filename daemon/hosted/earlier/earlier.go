// Package earlier reads what earlier daemons have left of the processes of servers, in the
// directories of their workers.
package earlier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/group"
	"holdline/daemon/hosted/question"
	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/finding"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// A Process is one that an earlier daemon has started.
type Process struct {
	Dir       string // of its worker
	Spec      process.Spec
	Records   []calls.Record
	Answers   map[int64]int64 // sizes in bytes of the answers in files, by write
	Questions []question.Kept
	Lists     *listing.Memory // what it has listed; nil if that is not known
	Alive     bool
	Damage    error    // why its records cannot be believed; nil if they can
	LostAsks  []string // the names of the files of requests that are missing or damaged
	LostFile  error    // that files of answers or requests are missing or damaged; the records of their calls are doubtful
}

// Loss returns what is lost with the records of a process of that spec.
func Loss(spec *process.Spec, why error) calls.Loss {
	return calls.Loss{
		ID: spec.ID, Server: spec.Name, Project: spec.Owner.Project, Session: spec.Owner.Session, Why: why.Error(),
	}
}

// UnknownError says that there are records in a directory, and that it is not known of which server.
type UnknownError struct{ Why error }

// Error returns why.
func (e *UnknownError) Error() string { return e.Why.Error() }

// Unwrap returns why.
func (e *UnknownError) Unwrap() error { return e.Why }

// Read decides about the directory of a worker of a server. It removes a directory that no
// client needs. It returns what is to be restored, or nil if there is nothing to restore. It returns
// an [*UnknownError] for a directory that stays and cannot be restored, and the error of a file that
// cannot be read now and may be read later: see [ownfile.Passes]. With last set, there is no later: then a
// file that is not the journal is damaged alone.
func Read(workers *supervisor.Supervisor, dir string, last bool, log *slog.Logger) (*Process, error) {
	l, err := workers.LookServer(dir)
	if err != nil {
		return nil, err
	}
	if l.Damaged && !l.Facts.Spec && l.Boot {
		return nil, &UnknownError{l.Damage}
	}
	switch finding.Decide(l.Facts) {
	case finding.Remove:
		if err := workers.Reap(dir); err != nil {
			log.Warn("directory of a dead worker cannot be removed", "dir", dir, "err", err)
		}
		return nil, nil //nolint:nilnil // no client needs it
	case finding.Adopt, finding.End: // one without its handshake is ended once it is attached
		p := &Process{Dir: dir, Spec: l.Spec, Records: l.Records, Alive: l.Alive, Damage: l.Damage}
		var unasked map[string]error
		if p.Questions, unasked, err = question.Read(dir, last, log); err != nil {
			return nil, err
		}
		if p.Answers, err = calls.AnswersIn(dir); err != nil {
			return nil, err
		}
		if err := p.checkFiles(last); err != nil {
			return nil, err
		}
		p.doubtAsked(unasked)
		p.Lists, err = listing.ReadMemory(filepath.Join(dir, process.FileLists))
		if !last && ownfile.Passes(err) {
			return nil, err
		}
		if p.Lists != nil && p.Lists.Torn != "" {
			err = fmt.Errorf("%s: %w", p.Lists.Torn, listing.ErrDamaged)
		}
		if err != nil {
			log.Warn("what a process has listed is forgotten", "dir", dir, "err", err)
			p.Lists = nil
		}
		return p, nil
	default: // Leave: it sees to itself
		return nil, nil //nolint:nilnil // and nothing is wrong with it
	}
}

// checkFiles compares the files of answers with what the journal says of them. The line of such an
// answer was acknowledged: without its file it is lost. A file of which the journal says nothing was
// not finished: nothing shows whether it is damaged, and the worker still has the line. It returns an
// error for a file that may be read later, unless last is set: see [Read].
func (p *Process) checkFiles(last bool) error {
	for i := range p.Records {
		r := &p.Records[i]
		if _, there := p.Answers[r.Write]; !there && r.FileSize == 0 {
			continue
		}
		filed, err := calls.IsFiled(p.Dir, r)
		switch {
		case err != nil && !last:
			return err
		case filed:
		case r.FileSize == 0:
			delete(p.Answers, r.Write)
			calls.RemoveAnswers(p.Dir, []int64{r.Write})
		default:
			delete(p.Answers, r.Write)
			r.Doubtful = true
			p.LostFile = fmt.Errorf("the file of the answer, %s, is missing or damaged", calls.AnswerFile(p.Dir, r.Write))
		}
	}
	return nil
}

// doubtAsked makes the records of calls without an answer doubtful if a request of the server is lost that
// has no answer yet: each of the calls may be the one that waits for it, and would for ever.
func (p *Process) doubtAsked(lost map[string]error) {
	for i := range p.Records {
		if p.Records[i].Kind == calls.KindRespond {
			delete(lost, p.Records[i].Name)
		}
	}
	for id, why := range lost {
		p.LostAsks = append(p.LostAsks, question.FileName(id))
		p.LostFile = fmt.Errorf("a request of the server is lost: %w", why)
		for i := range p.Records {
			if r := &p.Records[i]; r.Kind == calls.KindCall {
				_, answered := p.Answers[r.Write]
				r.Doubtful = r.Doubtful || !answered
			}
		}
	}
}

// Compare orders processes for restoring: living ones first, and of these the youngest
// first. The first living process of an instance is the one that goes on serving.
func (p *Process) Compare(other *Process) int {
	switch {
	case p.Alive && !other.Alive:
		return -1
	case !p.Alive && other.Alive:
		return 1
	}
	return cmp.Compare(other.Spec.Generation, p.Spec.Generation)
}

// A proxy is the process without which a session cannot come back.
type proxy struct {
	pid   int
	start uint64
}

// isGone reports whether the process has certainly ended. One that is not known, or that
// cannot be looked up, counts as alive.
func (p proxy) isGone() bool {
	if p.pid == 0 || p.start == 0 {
		return false
	}
	now, err := process.Lookup(p.pid)
	return errors.Is(err, process.ErrGone) || err == nil && now.Start != p.start
}

// Deserted returns the sessions with calls or processes whose proxies have ended while no
// daemon ran. A session of which one proxy may live is not among them.
//
// What such a session has left is of no use. While a daemon runs it notices the end of a
// proxy, ends the processes of its session and cancels the session's calls. A daemon that
// starts finds out by the proxies on record: otherwise all that would wait until the
// sessions of an earlier daemon are not expected any more, after each start.
func Deserted(found []*Process) (sessions []string) {
	gone, deserted := map[proxy]bool{}, map[string]bool{}
	note := func(session string, p proxy) {
		if session == "" {
			return
		}
		if _, known := gone[p]; !known {
			gone[p] = p.isGone()
		}
		before, known := deserted[session]
		deserted[session] = gone[p] && (before || !known)
	}
	for _, p := range found {
		note(p.Spec.Owner.Session, proxy{p.Spec.Owner.ProxyPID, p.Spec.Owner.ProxyStart})
		for i := range p.Records {
			if r := &p.Records[i]; r.Kind == calls.KindCall {
				note(r.Session, proxy{r.ProxyPID, r.ProxyStart})
			}
		}
	}
	for session, is := range deserted {
		if is {
			sessions = append(sessions, session)
		}
	}
	return sessions
}

// Times of [Attach].
const (
	adoptTimeout = time.Minute // of one attempt to attach to a worker
	adoptRetry   = time.Second // between attempts, if it can be neither reached nor killed
)

// Attach attaches to the worker of a directory, or finds it dead. It retries until that succeeds.
// It returns nil if the group's life ends before. After each attempt that fails it calls failed,
// with nil if the error is no fault.
func Attach(g *group.Group, workers *supervisor.Supervisor, dir string, log *slog.Logger, failed func(*fault.Record),
) *supervisor.Worker {
	for last := fault.Reason(""); ; {
		ctx, cancel := context.WithTimeout(g.Life, adoptTimeout)
		w, err := workers.Attach(ctx, dir)
		cancel()
		if err == nil {
			return w
		}
		// While it lives its calls may still run: no outcome may be reported.
		why, _ := errors.AsType[*fault.Record](err)
		if last == "" || last != why.Reason() {
			log.Warn("worker of an earlier daemon cannot be taken up", "err", err)
		}
		last = why.Reason()
		failed(why)
		if g.Pause(adoptRetry, nil) != nil {
			return nil
		}
	}
}
