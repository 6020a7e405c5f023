package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"holdline/protocol/process"
)

// temporary is the name of a file that [WriteFile] is about to put in place: it bears the
// pid and the start time of its writer.
var temporary = regexp.MustCompile(`^\..+\.([0-9]+)\.([0-9]+)-[0-9]+$`)

// Sweep removes the temporary files that processes which were killed inside of
// [WriteFile] have left in dir. If own is set, it also removes those of this process,
// which an earlier program in the same process may have left; then this process must not
// write to dir yet. A dir that cannot be read is left alone.
func Sweep(dir string, own bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		m := temporary.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		pid, perr := strconv.Atoi(m[1])
		start, serr := strconv.ParseUint(m[2], 10, 64)
		if err := errors.Join(perr, serr); err != nil {
			continue
		}
		writer, err := process.Lookup(pid)
		// A writer that could not look itself up has written 0.
		gone := errors.Is(err, process.ErrGone) || err == nil && start > 0 && writer.Start != start
		if gone || own && pid == os.Getpid() {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
