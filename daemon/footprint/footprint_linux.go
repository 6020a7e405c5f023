package footprint

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// measure returns the memory of processes, by pid. Those that end meanwhile are missing.
func measure(pids []int, deadline time.Time) map[int]Memory {
	found := map[int]Memory{}
	for _, pid := range pids {
		m, ok := Memory{}, false
		if time.Now().Before(deadline) {
			m, ok = proportional(pid)
		}
		if !ok {
			m = resident(pid)
		}
		if m.Total > 0 {
			found[pid] = m
		}
	}
	return found
}

// proportional returns the proportional set size of a process. The kernel shows it only for
// processes that this one may trace.
func proportional(pid int) (m Memory, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m, false
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line) // "Pss:  265 kB"
		if len(f) != 3 {
			continue
		}
		switch kb, _ := strconv.ParseInt(string(f[1]), 10, 64); string(f[0]) {
		case "Pss:":
			m.Total = kb << 10
		case "Pss_Anon:", "Pss_Shmem:": // since Linux 5.4
			m.Private += kb << 10
		}
	}
	return m, m.Total > 0
}

// resident returns the resident memory of a process, from which the pages of files are
// subtracted for Private.
func resident(pid int) Memory {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	f := bytes.Fields(b) // size resident shared …, in pages
	if err != nil || len(f) < 3 {
		return Memory{}
	}
	page := int64(os.Getpagesize())
	all, _ := strconv.ParseInt(string(f[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(f[2]), 10, 64)
	return Memory{Total: all * page, Private: max(0, all-shared) * page}
}
