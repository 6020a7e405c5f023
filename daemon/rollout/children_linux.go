package rollout

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// children returns the children of pid, including those that have ended and were not
// waited for.
func children(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// The name is in parentheses and may hold anything: state and parent
		// follow the last one.
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(f[1])); err == nil && parent == pid {
			found = append(found, child)
		}
	}
	return found
}
