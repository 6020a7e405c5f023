package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/protocol"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// otherDaemons looks for daemons of this user besides d, which serves at path, and for units
// of systemd that cannot do their work because d was started without them. It finds daemons by
// their lock files, and does not connect to them.
func otherDaemons(o Options, d protocol.DaemonInfo, path string) []Finding {
	var found []Finding
	known := map[int]bool{d.PID: true}
	// add reports the daemon that a lock file names, if it runs and is not known yet.
	add := func(pid int, start uint64, at string, err error) {
		if err != nil || known[pid] || !process.IsAlive(pid, start) {
			return
		}
		known[pid] = true
		found = append(found, Finding{Check: "two daemons"}.with(
			Problem, fmt.Sprintf("daemon %d serves %s, and daemon %d %s", d.PID, path, pid, at),
			"agents of the one share nothing with those of the other", "holdline stop --socket "+at))
	}
	// The lock of the state directory names its daemon's socket, wherever that is.
	pid, start, at, err := statedir.HolderOf(filepath.Join(o.StateDir, socket.LockFile))
	add(pid, start, at, err)
	for _, c := range o.Paths.Candidates() {
		pid, start, err := statedir.Holder(filepath.Join(filepath.Dir(c.Path), socket.LockFile))
		add(pid, start, c.Path, err)
	}
	if d.Managed == service.Nobody && path == o.Units.Socket() && o.Units.Enabled() && o.Units.Running() {
		found = append(found, Finding{Check: "manager"}.with(
			Note, fmt.Sprintf("daemon %d was not started by systemd, whose holdline.socket is enabled", d.PID),
			"systemd does not start it again, and does not log for it",
			"systemctl --user start holdline.socket: its daemon takes over, and nothing is lost"))
	}
	return found
}

// asideWorkers returns a finding for each worker that was put aside because daemons crashed
// again and again when they adopted it. run is the runtime directory. What is put aside stays
// until the user removes it.
func asideWorkers(run string) []Finding {
	entries, err := os.ReadDir(filepath.Join(run, "aside"))
	if err != nil {
		return nil // there are none
	}
	var found []Finding
	for _, e := range entries {
		dir := filepath.Join(run, "aside", e.Name())
		found = append(found, Finding{Check: "worker put aside"}.with(Problem, dir,
			"daemons crashed again and again when they adopted it; it was ended, "+
				"and what became of its calls is not known",
			"report it with that directory and the stacks in: holdline logs. Then: rm -r "+dir))
	}
	return found
}
