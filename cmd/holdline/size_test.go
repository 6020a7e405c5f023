package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// pss is a process's proportional share of memory, in KiB (proc(5)).
func pss(tb testing.TB, pid int) float64 {
	tb.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		tb.Skip("no smaps_rollup here")
	}
	defer f.Close()
	var kib float64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return kib
}

// BenchmarkSize tells how much memory the parts take, in KiB of PSS: the
// daemon, the proxies on average, and the workers of as many consults as run
// at once, on average.
func BenchmarkSize(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("sessions=%d", n), func(b *testing.B) {
			p := newPlace(b)
			d := p.daemon()
			agents := make([]*agent, n)
			for i := range agents {
				agents[i] = p.agent().shake()
				agents[i].ask("tools/list", map[string]any{})
				for range 20 {
					agents[i].ask("tools/call", map[string]any{"name": "health_snapshot"})
				}
			}
			b.ReportMetric(pss(b, d.Process.Pid), "KiB/daemon")
			var proxies float64
			for _, a := range agents {
				proxies += pss(b, a.cmd.Process.Pid)
			}
			b.ReportMetric(proxies/float64(n), "KiB/proxy")
			for _, a := range agents[:4] {
				a.call("consult", map[string]any{"prompt": hang})
			}
			s := p.until("four workers", func(s control.StatusAnswer) bool {
				ready := 0
				for _, w := range s.Workers {
					if w.ChildPID > 0 {
						ready++
					}
				}
				return ready == 4
			})
			var workers float64
			for _, w := range s.Workers {
				workers += pss(b, w.PID)
			}
			b.ReportMetric(workers/4, "KiB/worker")
			b.ReportMetric(0, "ns/op")
		})
	}
}
