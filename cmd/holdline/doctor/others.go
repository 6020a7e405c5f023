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

// others looks for daemons of this user besides d, which serves at path, and for
// units that d keeps from their work.
func others(o Options, d protocol.DaemonInfo, path string) []Finding {
	var found []Finding
	known := map[int]bool{d.PID: true}
	// The state directory names its daemon's socket, wherever that is.
	if pid, start, at, err := statedir.HolderOf(filepath.Join(o.StateDir, socket.LockFile)); err == nil && lives(pid, start) && !known[pid] {
		known[pid] = true
		found = append(found, another(d, path, pid, at))
	}
	for _, c := range o.Paths.Candidates() {
		pid, start, err := statedir.Holder(filepath.Join(filepath.Dir(c.Path), socket.LockFile))
		if err == nil && lives(pid, start) && !known[pid] {
			known[pid] = true
			found = append(found, another(d, path, pid, c.Path))
		}
	}
	if d.Managed == service.Nobody && path == o.Units.Socket() && o.Units.Enabled() && o.Units.Running() {
		found = append(found, Finding{
			Check: "manager", State: Note, What: fmt.Sprintf("daemon %d was not started by systemd, whose holdline.socket is enabled", d.PID),
			Why: "systemd does not start it again, and does not log for it", Mend: "systemctl --user start holdline.socket: its daemon takes over, and nothing is lost",
		})
	}
	return found
}

func lives(pid int, start uint64) bool {
	now, err := process.Lookup(pid)
	return err == nil && now.Start == start
}

func another(d protocol.DaemonInfo, path string, pid int, at string) Finding {
	return Finding{
		Check: "two daemons", State: Problem, What: fmt.Sprintf("daemon %d serves %s, and daemon %d %s", d.PID, path, pid, at),
		Why:  "agents of the one share nothing with those of the other",
		Mend: fmt.Sprintf("holdline stop --socket %s", at),
	}
}

// aside names the workers that a daemon has put aside since it crashed over them
// again and again. run is the runtime directory.
func aside(run string) []Finding {
	entries, err := os.ReadDir(filepath.Join(run, "aside"))
	if err != nil {
		return nil // there is none
	}
	var found []Finding
	for _, e := range entries {
		dir := filepath.Join(run, "aside", e.Name())
		found = append(found, Finding{
			Check: "worker put aside", State: Problem, What: dir,
			Why:  "daemons crashed again and again when they took it up; it was ended, and what became of its calls is not known",
			Mend: "report it with that directory and the stacks in: holdline logs. Then: rm -r " + dir,
		})
	}
	return found
}
