package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
)

// temporary is the name of a file that [WriteFile] is about to put in place:
// it bears the pid of its writer.
var temporary = regexp.MustCompile(`^\..+\.([0-9]+)-[0-9]+$`)

// Sweep removes the temporary files that processes which were killed inside of
// [WriteFile] have left in dir. If own is set, it also removes those of this process
// id, which an earlier program in the same process may have left; then this process
// must not write to dir yet. A dir that cannot be read is left alone.
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
		pid, err := strconv.Atoi(m[1])
		if err == nil && (own && pid == os.Getpid() || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
