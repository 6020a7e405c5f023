package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// A request of a server may wait for its answer for long, above all if a person
// is asked. What the server says after it must not wait that long. So a request
// that has no answer after [calls.SpoolAfter] is written to a file of the worker's
// directory, as answers are. Then its output can be acknowledged, and the next
// daemon reads it there.

// maxAskBytes bounds the params of all open requests of one process, in bytes.
const maxAskBytes = jsonrpc.MaxFrame

// A KeptAsk is a request of a server that an earlier daemon has written to a file.
type KeptAsk struct {
	seq, nth int64 // its place in the server's output
	msg      jsonrpc.Message
}

// askID returns the id of the request at a place in the server's output. The same
// request has the same id in each daemon.
func (u *Process) askID(seq, nth int64) string { return fmt.Sprintf("%s:%d.%d", u.ID, seq, nth) }

// askFile returns the path of a request's file, which is named by the request's place
// in the output.
func (u *Process) askFile(id string) string {
	return filepath.Join(u.Dir, process.DirAsks, id[len(u.ID)+1:])
}

// writeAsk writes a request of the server to its file. After that the worker need not
// keep its line.
func (u *Process) writeAsk(a *ask) error {
	u.hub.Mu.Lock()
	line := jsonrpc.AppendRequest(nil, a.raw, a.method, a.params)
	u.hub.Mu.Unlock()
	err := statedir.MakeDir(filepath.Join(u.Dir, process.DirAsks))
	if err == nil {
		err = statedir.WriteFile(u.askFile(a.id), line)
	}
	faultpoint.At("hosted.askwritten")
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	switch {
	case err != nil:
	case a.done: // meanwhile
		u.askFiles = append(u.askFiles, a.id)
	default:
		a.written = true
	}
	return err
}

// removeAsks removes the files of requests that have their answer.
func (u *Process) removeAsks() {
	u.hub.Mu.Lock()
	ids := u.askFiles
	u.askFiles = nil
	u.hub.Mu.Unlock()
	for _, id := range ids {
		if err := os.Remove(u.askFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			u.Log.Warn("the file of a request that has its answer cannot be removed", "err", err)
		}
	}
}

// ReadAsks reads the requests that an earlier daemon has written to files of a worker's
// directory, in the order of the server's output. It skips files that it cannot read.
func ReadAsks(dir string, log *slog.Logger) []KeptAsk {
	dir = filepath.Join(dir, process.DirAsks)
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("requests of a server are forgotten", "dir", dir, "err", err)
	}
	var kept []KeptAsk
	for _, e := range entries {
		var k KeptAsk
		if _, err := fmt.Sscanf(e.Name(), "%d.%d", &k.seq, &k.nth); err != nil {
			continue
		}
		b, err := ownfile.Read(filepath.Join(dir, e.Name()), ownfile.MaxDocument)
		if err == nil {
			k.msg, err = jsonrpc.Parse(b)
		}
		if err != nil {
			log.Warn("a request of a server is forgotten", "dir", dir, "file", e.Name(), "err", err)
			continue
		}
		kept = append(kept, k)
	}
	slices.SortFunc(kept, func(a, b KeptAsk) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.nth, b.nth))
	})
	return kept
}

// askKept handles the requests that an earlier daemon has written to files. The
// reader calls it before it reads output. Their ids go into u.told, so that output
// which contains one again is ignored.
func (u *Process) askKept(w *supervisor.Worker) {
	u.hub.Mu.Lock()
	kept := u.kept
	u.hub.Mu.Unlock()
	state := w.Status().State
	lives := state == supervisor.Ready || state == supervisor.Recovering
	for _, k := range kept {
		id := u.askID(k.seq, k.nth)
		u.hub.Mu.Lock()
		_, answered := u.told[id]
		if answered || !lives {
			u.askFiles = append(u.askFiles, id)
		}
		u.hub.Mu.Unlock()
		if !answered && lives {
			u.asked(k.msg, id, true)
		}
	}
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	for _, k := range kept {
		u.told[u.askID(k.seq, k.nth)] = struct{}{} // should it be read again
	}
	u.kept = nil
}

// AsksPerson reports whether a client shows a request with that method to a person,
// who may take long to answer.
func AsksPerson(method string) bool {
	return method == "elicitation/create" || method == "sampling/createMessage"
}

// AsksPersonLocked reports whether a person has yet to answer a request of the
// process. Meanwhile the calls of the process do not time out.
func (u *Process) AsksPersonLocked() bool {
	for _, a := range u.hub.Asks {
		if a.up == u && !a.sent && a.line != nil && AsksPerson(a.method) {
			return true
		}
	}
	return slices.ContainsFunc(u.kept, func(k KeptAsk) bool { return AsksPerson(k.msg.Method) })
}

// restartClocksLocked restarts the time of the process's calls, if a person was
// asked. Call it when that has ended.
func (a *ask) restartClocksLocked() {
	if !AsksPerson(a.method) {
		return
	}
	for _, c := range a.up.Calls {
		if c.Phase() == calls.Open {
			a.up.restartClockLocked(c)
		}
	}
}
