package footprint

import (
	"bytes"
	"context"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// measure returns the resident memory of processes, by pid, as ps(1) shows it: the system tells
// no more without cgo. What of it is private is not known. A ps that takes longer than a second
// is killed.
func measure(pids []int, _ time.Time) map[int]Memory {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	list := make([]string, len(pids))
	for i, pid := range pids {
		list[i] = strconv.Itoa(pid)
	}
	cmd := exec.CommandContext(ctx, "/bin/ps", "-o", "pid=,rss=", "-p", strings.Join(list, ","))
	cmd.WaitDelay = time.Second
	out, _ := cmd.Output() // ps fails if one of the processes is gone, and shows the others
	found := map[int]Memory{}
	for line := range bytes.Lines(out) {
		f := bytes.Fields(line)
		if len(f) != 2 {
			continue
		}
		pid, _ := strconv.Atoi(string(f[0]))
		kb, _ := strconv.ParseInt(string(f[1]), 10, 64)
		found[pid] = Memory{Total: kb << 10, Private: kb << 10}
	}
	return found
}
