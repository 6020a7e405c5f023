// Package earlier reads what earlier daemons have left of the processes of servers, in the
// directories of their workers.
package earlier

import (
	"cmp"
	"errors"
	"log/slog"
	"path/filepath"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/daemon/listing"
	"holdline/daemon/supervisor"
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
}

// Read decides about the directory of a worker of a server. It removes a directory that no
// client needs. It returns what is to be restored, or nil if there is nothing to restore.
func Read(workers *supervisor.Supervisor, dir string, log *slog.Logger) (*Process, error) {
	f, records, err := supervisor.LookServer(dir)
	if err != nil {
		return nil, err
	}
	switch supervisor.Decide(f) {
	case supervisor.Remove:
		if err := workers.Reap(dir); err != nil {
			log.Warn("directory of a dead worker cannot be removed", "dir", dir, "err", err)
		}
		return nil, nil //nolint:nilnil // no client needs it
	case supervisor.Adopt, supervisor.End: // one without its handshake is ended once it is attached
		p := &Process{Dir: dir, Records: records, Alive: f.Alive, Questions: question.Read(dir, log)}
		if p.Spec, err = process.ReadSpec(dir); err != nil {
			return nil, err
		}
		if p.Answers, err = calls.AnswersIn(dir); err != nil {
			return nil, err
		}
		if p.Lists, err = listing.ReadMemory(filepath.Join(dir, process.FileLists)); err != nil {
			log.Warn("what a process has listed is forgotten", "dir", dir, "err", err)
		}
		return p, nil
	default: // Leave: it sees to itself
		return nil, nil //nolint:nilnil // and nothing is wrong with it
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

// Deserted returns the session whose proxy has ended while no daemon ran, or "". If the
// proxy's process cannot be looked up, it counts as alive.
//
// A process of a single session is of no use once the session's proxy has ended.
// While a daemon runs it notices that, and ends the process. A daemon that starts
// finds out by the proxy's process, which is on record: otherwise the process would
// wait until the sessions of an earlier daemon are not expected any more, after each
// start, with all the output that it has not been able to get rid of.
func (p *Process) Deserted() (session string) {
	o := &p.Spec.Owner
	if o.Session == "" || o.ProxyPID == 0 || o.ProxyStart == 0 {
		return ""
	}
	proxy, err := process.Lookup(o.ProxyPID)
	if errors.Is(err, process.ErrGone) || err == nil && proxy.Start != o.ProxyStart {
		return o.Session
	}
	return ""
}
