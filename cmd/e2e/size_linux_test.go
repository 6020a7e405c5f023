package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// pss returns a process's proportional set size in KiB, see proc(5).
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

// BenchmarkSize reports how much memory the parts take, in KiB of PSS: the daemon, the
// average proxy, and the average worker of as many consults as may run at once.
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

// BenchmarkSizeShared measures how much memory ten clients and five servers take, in KiB of
// PSS of all their processes: with servers for each client, and through one daemon, with
// one entry in each client for everything ("aggregate"), or with one for each server and
// one for holdline's own tools, as an import writes them.
func BenchmarkSizeShared(b *testing.B) {
	const servers = 5
	each := [][]string{{"--server", "holdline"}}
	for i := range servers {
		each = append(each, []string{"--server", fmt.Sprintf("s%d", i)})
	}
	for name, entries := range map[string][][]string{"aggregate": {{}}, "entries=6": each} {
		b.Run(name, func(b *testing.B) { benchmarkShared(b, servers, entries) })
	}
}

// benchmarkShared measures one layout. Each client has one proxy for each element of
// proxies, which has its arguments.
func benchmarkShared(b *testing.B, servers int, proxies [][]string) {
	b.Helper()
	const clients = 10
	p := newPlace(b)
	own := func() (total float64) {
		var all []*agent
		for range clients * servers {
			a := p.agentOf(p.program("sdkserver")).shake()
			a.ask("tools/list", map[string]any{})
			all = append(all, a)
		}
		for _, a := range all {
			total += pss(b, a.cmd.Process.Pid)
		}
		for _, a := range all {
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
		return total
	}
	entries := map[string]any{}
	for i := range servers {
		entries[fmt.Sprintf("s%d", i)] = map[string]any{"command": filepath.Join(programs, "sdkserver")}
	}
	b.ReportMetric(own(), "KiB/own")
	d := p.configure(entries).daemon()
	for range clients {
		for _, args := range proxies {
			p.agent(args...).shake().ask("tools/list", map[string]any{})
		}
	}
	s := p.until("the servers", func(s control.StatusAnswer) bool {
		for name := range entries {
			if child(s, name) == 0 {
				return false
			}
		}
		return true
	})
	if len(s.Workers) != servers {
		b.Fatalf("%d workers for %d servers", len(s.Workers), servers)
	}
	var total, line float64
	for pid := range p.processes() {
		total += pss(b, pid)
	}
	line = pss(b, d.Process.Pid)
	for _, w := range s.Workers {
		line += pss(b, w.PID)
	}
	for _, one := range s.Sessions {
		line += pss(b, one.PID)
	}
	b.ReportMetric(total, "KiB/shared")
	b.ReportMetric(line, "KiB/holdline")
	b.ReportMetric(0, "ns/op")
}
