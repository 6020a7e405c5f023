package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdline/protocol/process"
)

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
		pid, start, ok := writerOf(e.Name())
		if !ok {
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

// writerOf returns the pid and the start time of the writer of a temporary file with that
// name, and whether it is such a name: see [tempPattern]. Workers link this package, so it
// does without a regular expression.
func writerOf(name string) (pid int, start uint64, ok bool) {
	parts := strings.Split(name, ".")
	if n := len(parts); n >= 4 && parts[0] == "" {
		last, random, _ := strings.Cut(parts[n-1], "-")
		id, perr := strconv.ParseUint(parts[n-2], 10, 31)
		began, serr := strconv.ParseUint(last, 10, 64)
		_, rerr := strconv.ParseUint(random, 10, 64)
		return int(id), began, errors.Join(perr, serr, rerr) == nil
	}
	return 0, 0, false
}
