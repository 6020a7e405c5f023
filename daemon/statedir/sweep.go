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

// Sweep removes what processes that were killed inside of [WriteFile] have
// left in dir. With own, which is for a process that does not write to dir yet,
// what bears its own pid goes, too: an image before it may have left that. A
// dir that cannot be read is left alone.
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
