package upstream

import (
	"path/filepath"

	"holdline/daemon/masked"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// ReadLog reads what the process wrote to stderr. It returns no text while the
// secrets of the process are unknown.
func (u *Process) ReadLog(at masked.Place) (l control.ServerLog, err error) {
	l = control.ServerLog{Worker: u.ID, Next: at.From}
	w := u.Worker()
	secrets := u.Secrets.Load() // not before: it is known when there is a worker
	if w == nil || secrets.IsUnknown() {
		return l, nil
	}
	l.PID = w.Status().ChildPID
	l.Text, l.Next, err = secrets.ReadLog(filepath.Join(u.Dir, process.FileStderr), at)
	return l, err
}
