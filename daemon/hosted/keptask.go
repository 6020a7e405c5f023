package hosted

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

// A keptAsk is a request of a server that an earlier daemon has written to a file.
type keptAsk struct {
	seq, nth int64 // its place in the server's output
	msg      jsonrpc.Message
}

// askID returns the id of the request at a place in the server's output. The same
// request has the same id in each daemon.
func (u *upstream) askID(seq, nth int64) string { return fmt.Sprintf("%s:%d.%d", u.id, seq, nth) }

// askFile returns the path of a request's file, which is named by the request's place
// in the output.
func (u *upstream) askFile(id string) string {
	return filepath.Join(u.dir, process.DirAsks, id[len(u.id)+1:])
}

// writeAsk writes a request of the server to its file. After that the worker need not
// keep its line.
func (u *upstream) writeAsk(a *ask) error {
	u.m.mu.Lock()
	line := jsonrpc.AppendRequest(nil, a.raw, a.method, a.params)
	u.m.mu.Unlock()
	err := statedir.MakeDir(filepath.Join(u.dir, process.DirAsks))
	if err == nil {
		err = statedir.WriteFile(u.askFile(a.id), line)
	}
	faultpoint.At("hosted.askwritten")
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
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
func (u *upstream) removeAsks() {
	u.m.mu.Lock()
	ids := u.askFiles
	u.askFiles = nil
	u.m.mu.Unlock()
	for _, id := range ids {
		if err := os.Remove(u.askFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			u.log.Warn("the file of a request that has its answer cannot be removed", "err", err)
		}
	}
}

// readAsks reads the requests that an earlier daemon has written to files, in the
// order of the server's output. It skips files that it cannot read.
func (u *upstream) readAsks() []keptAsk {
	dir := filepath.Join(u.dir, process.DirAsks)
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.log.Warn("requests of the server are forgotten", "err", err)
	}
	var kept []keptAsk
	for _, e := range entries {
		var k keptAsk
		if _, err := fmt.Sscanf(e.Name(), "%d.%d", &k.seq, &k.nth); err != nil {
			continue
		}
		b, err := ownfile.Read(filepath.Join(dir, e.Name()), ownfile.MaxDocument)
		if err == nil {
			k.msg, err = jsonrpc.Parse(b)
		}
		if err != nil {
			u.log.Warn("a request of the server is forgotten", "file", e.Name(), "err", err)
			continue
		}
		kept = append(kept, k)
	}
	slices.SortFunc(kept, func(a, b keptAsk) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.nth, b.nth))
	})
	return kept
}

// askKept handles the requests that an earlier daemon has written to files. The
// reader calls it before it reads output. Their ids go into u.told, so that output
// which contains one again is ignored.
func (u *upstream) askKept(w *supervisor.Worker) {
	u.m.mu.Lock()
	kept := u.kept
	u.m.mu.Unlock()
	state := w.Status().State
	lives := state == supervisor.Ready || state == supervisor.Recovering
	for _, k := range kept {
		id := u.askID(k.seq, k.nth)
		u.m.mu.Lock()
		_, answered := u.told[id]
		if answered || !lives {
			u.askFiles = append(u.askFiles, id)
		}
		u.m.mu.Unlock()
		if !answered && lives {
			u.asked(k.msg, id, true)
		}
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	for _, k := range kept {
		u.told[u.askID(k.seq, k.nth)] = struct{}{} // should it be read again
	}
	u.kept = nil
}

// asksPerson reports whether a client shows a request with that method to a person,
// who may take long to answer.
func asksPerson(method string) bool {
	return method == "elicitation/create" || method == "sampling/createMessage"
}

// asksPersonLocked reports whether a person has yet to answer a request of the
// process. Meanwhile the calls of the process do not time out.
func (u *upstream) asksPersonLocked() bool {
	for _, a := range u.m.asks {
		if a.up == u && !a.sent && a.line != nil && asksPerson(a.method) {
			return true
		}
	}
	return slices.ContainsFunc(u.kept, func(k keptAsk) bool { return asksPerson(k.msg.Method) })
}

// restartClocksLocked restarts the time of the process's calls, if a person was
// asked. Call it when that has ended.
func (a *ask) restartClocksLocked() {
	if !asksPerson(a.method) {
		return
	}
	for _, c := range a.up.calls {
		if c.Phase() == calls.Open {
			a.up.restartClockLocked(c)
		}
	}
}
