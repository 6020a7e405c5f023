package leaf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdline/daemon/footprint"
	"holdline/protocol/process"
)

// canFind says that this system shows what a launcher has started.
const canFind = true

// find records the leaf below a launcher, whose pid is root: the one process there that is no shell, has no children,
// and has the stdin and stdout of the launcher. The error says why there is none, for people.
func (l *Launch) find(r *record, root int) error {
	below, err := process.Descendants(root)
	if err != nil {
		return errors.New("its processes cannot be listed")
	}
	var leaf process.Proc
	found, parents := 0, map[int]bool{}
	for _, p := range below {
		parents[p.PPID] = true
		exe, err := os.Readlink(of(p.PID, "exe"))
		if err != nil {
			return errors.New("one of its processes cannot be looked at")
		}
		switch argv := process.Args(p.PID); {
		case isShell(exe) && (len(argv) < 2 || argv[1] != "-c"):
			return errScript
		case isShell(exe), isMiddle(argv):
			continue
		}
		leaf = p
		found++
	}
	switch {
	case found == 0:
		return errors.New("its launcher does not stay beside it")
	case found > 1:
		return fmt.Errorf("it has %d processes", found)
	case parents[leaf.PID]:
		return errors.New("its program has started another one")
	}
	for _, same := range []struct{ name, otherwise string }{
		{"fd/0", "its launcher stays between it and Holdline"},
		{"fd/1", "its launcher stays between it and Holdline"},
	} {
		launchers, err := os.Readlink(of(root, same.name))
		leafs, lerr := os.Readlink(of(leaf.PID, same.name))
		if err != nil || lerr != nil || launchers != leafs {
			return errors.New(same.otherwise)
		}
	}
	cwd, err := os.Readlink(of(leaf.PID, "cwd"))
	ours, oerr := os.Readlink("/proc/self/ns/mnt")
	its, ierr := os.Readlink(of(leaf.PID, "ns/mnt"))
	switch {
	case err != nil || cwd != linkless(l.given.Dir):
		return errors.New("it runs in another directory than its entry says")
	case oerr != nil || ierr != nil || ours != its:
		return errors.New("it has file systems of its own")
	case status(leaf.PID, "Umask") != status(parent(root), "Umask"):
		return errors.New("its launcher changes the modes of the files that it makes")
	}
	exe, err := os.Readlink(of(leaf.PID, "exe"))
	launchers, lerr := environ(root)
	environment, eerr := environ(leaf.PID)
	if errors.Join(err, lerr, eerr) != nil {
		return errors.New("its program cannot be looked at")
	}
	if err := l.setEnviron(r, launchers, environment); err != nil {
		return err
	}
	r.Saves, r.Spares = memoryBetween(root, leaf.PID), len(below) // those below but for the leaf, and the root
	return l.setProgram(r, exe, process.Args(leaf.PID), variables(environment))
}

// status returns what the kernel says of a process under a name; "" if it says nothing.
func status(pid int, name string) string {
	b, err := os.ReadFile(of(pid, "status"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// parent returns the pid of the process that has started another one: Holdline's own, of a launcher.
func parent(pid int) int {
	ppid, err := strconv.Atoi(status(pid, "PPid"))
	if err != nil {
		return 0
	}
	return ppid
}

// maxSaves is the most that a launcher is said to take, in bytes. npx 11 takes 62 to 66 MiB beside its server, and 190
// MiB for as long as it lives if it has just downloaded that.
const maxSaves = 66 << 20

// memoryBetween returns how much memory the processes of a tree take without its leaf, in bytes, but no more than
// maxSaves; 0 if that is not known.
func memoryBetween(root, leaf int) int64 {
	var meter footprint.Meter
	trees := meter.Trees(context.Background(), []int{root, leaf})
	whole, its := trees[root], trees[leaf]
	if its.Own.Total == 0 {
		return 0
	}
	return min(max(0, whole.Own.Total+whole.Below.Total-its.Own.Total), maxSaves)
}

// isMiddle reports whether a process is a launcher that another launcher has started: npm, say, names itself in its
// command line.
func isMiddle(argv []string) bool {
	return len(argv) > 0 && (strings.HasPrefix(argv[0], "npm ") || IsLauncher(filepath.Base(argv[0]), argv[1:]))
}

// environ returns the environment with which a process was started.
func environ(pid int) ([]string, error) {
	b, err := os.ReadFile(of(pid, "environ"))
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), err
}

// of returns the path of what the kernel shows of a process.
func of(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
