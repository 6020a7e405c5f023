package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// pss returns a process's proportional set size in KiB, see proc(5).
func pss(tb testing.TB, pid int) float64 {
	tb.Helper()
	return memoryPart(tb, pid, "Pss")
}

// memoryPart returns a value of a process's smaps_rollup, in KiB.
func memoryPart(tb testing.TB, pid int, key string) float64 {
	tb.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		tb.Skip("no smaps_rollup here")
	}
	defer f.Close()
	var kib float64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), key+":"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return kib
}

// meanMiB returns the mean of this value of the processes' smaps_rollup, in MiB.
func meanMiB(tb testing.TB, key string, pids ...int) (mean float64) {
	tb.Helper()
	for _, pid := range pids {
		mean += memoryPart(tb, pid, key) / 1024 / float64(len(pids))
	}
	return mean
}

// BenchmarkSize measures how much memory the parts take, before and right after a load of
// ten sessions that each have eight calls in flight. Beside the proxy are the first
// processes of the chain, which only copy.
func BenchmarkSize(b *testing.B) {
	const sessions, more, rest, load = 10, 50, 3 * time.Second, 5 * time.Second
	h := newHall(b)
	clients, pids := map[way][]*caller{}, map[way][]int{}
	open := func(n int) {
		for range n {
			for _, w := range ways[1:] {
				c := h.caller(w)
				clients[w], pids[w] = append(clients[w], c), append(pids[w], c.pid)
			}
		}
		time.Sleep(rest) // what the start has left over is given back
	}
	open(sessions)
	s := h.status()
	daemon, worker := s.Daemon.PID, s.Workers[0].PID
	for _, when := range []struct {
		words, short          string
		proxy, daemon, worker float64 // goals
	}{{"ten sessions idle", "idle", 1.5, 6, 2}, {"after load", "after", 1.8, 8, 2.5}} {
		if when.short == "after" {
			for _, w := range ways[1:] {
				rate(clients[w], 8, load)
			}
		}
		for _, part := range []struct {
			name string
			pids []int
			most float64
		}{
			{"proxy", pids[through], when.proxy},
			{"daemon", []int{daemon}, when.daemon},
			{"worker", []int{worker}, when.worker},
		} {
			l := line{
				load: "memory of the " + part.name + ", " + when.words, unit: "MiB",
				holdline: meanMiB(b, "Pss", part.pids...), goal: goal{most: part.most},
			}
			if part.name == "proxy" {
				l.chain = meanMiB(b, "Pss", pids[chain]...)
			}
			record(b, l)
			b.ReportMetric(meanMiB(b, "Pss_Anon", part.pids...), "MiB-anonymous/"+part.name+"-"+when.short)
		}
	}
	open(more)
	record(b, line{
		load: "memory of a proxy, with 60 of them", unit: "MiB", chain: meanMiB(b, "Pss", pids[chain][sessions:]...),
		holdline: meanMiB(b, "Pss", pids[through][sessions:]...), goal: goal{most: 1.2},
	})
	b.ReportMetric(0, "ns/op")
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
