package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
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
	const sessions, more, rest, load = 10, 50, 6 * time.Second, 5 * time.Second
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
	time.Sleep(rest) // the answer has used much of the daemon's program
	daemon, worker := s.Daemon.PID, s.Workers[0].PID
	for _, when := range []struct {
		words, short          string
		proxy, daemon, worker float64 // goals
	}{
		{"ten sessions idle", "idle", 1.5, 6, 2},
		{"right after load", "after", 1.8, 0, 0},
		{"a few seconds later", "later", 1.8, 8, 2.5}, // what a burst took is given back then
	} {
		switch when.short {
		case "after":
			for _, w := range ways[1:] {
				rate(clients[w], 8, load)
			}
		case "later":
			time.Sleep(rest)
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

// BenchmarkSizeShared measures how much memory ten clients with four servers take, all
// processes together: with servers for each client, and through one daemon, with one entry
// in each client for everything, or with one for each server and one for holdline's own
// tools, as an import writes them. The servers are small ones in Go, and, with
// HOLDLINE_E2E=1, the reference servers for node.
func BenchmarkSizeShared(b *testing.B) {
	p := newPlace(b)
	small, node := map[string][]string{}, map[string][]string{}
	each := [][]string{{"--server", "holdline"}}
	for _, r := range references(p) {
		small[r.name] = []string{filepath.Join(programs, "sdkserver")}
		each = append(each, []string{"--server", r.name})
	}
	benchmarkShared(b, "small servers in Go", small, each)
	for _, r := range references(p) {
		node[r.name] = append([]string{"node", r.program(b)}, r.argv...) // skips the rest if there is no node
	}
	benchmarkShared(b, "servers for node", node, each)
}

// benchmarkShared measures both layouts with servers of one kind, by name. Each client has
// one proxy for everything, or one for each element of proxies, which has its arguments.
func benchmarkShared(b *testing.B, kind string, servers map[string][]string, proxies [][]string) {
	b.Helper()
	const clients = 10
	apart := func() (total float64) {
		p := newPlace(b)
		var all []*agent
		for range clients {
			for _, command := range servers {
				cmd := exec.CommandContext(b.Context(), command[0], command[1:]...)
				cmd.Env, cmd.Dir = p.env, p.project
				all = append(all, p.agentOf(cmd))
			}
		}
		for _, a := range all {
			a.shake().ask("tools/list", map[string]any{})
		}
		for _, a := range all {
			total += pss(b, a.cmd.Process.Pid) / 1024
		}
		end(all)
		return total
	}()
	for _, layout := range []struct {
		words   string
		entries [][]string
	}{{"one entry for all", [][]string{{}}}, {"one entry for each", proxies}} {
		p := newPlace(b)
		config := map[string]any{}
		for name, command := range servers {
			config[name] = map[string]any{"command": command[0], "args": command[1:]}
		}
		d := p.configure(config).daemon()
		var all []*agent
		for range clients {
			for _, args := range layout.entries {
				a := p.agent(args...).shake()
				a.ask("tools/list", map[string]any{})
				all = append(all, a)
			}
		}
		s := p.until("the servers", func(s control.StatusAnswer) bool {
			for name := range servers {
				if child(s, name) == 0 {
					return false
				}
			}
			return true
		})
		if len(s.Workers) != len(servers) {
			b.Fatalf("%d workers for %d servers", len(s.Workers), len(servers))
		}
		var total float64
		for pid := range p.processes() {
			total += pss(b, pid) / 1024
		}
		ours := pss(b, d.Process.Pid) / 1024
		for _, w := range s.Workers {
			ours += pss(b, w.PID) / 1024
		}
		for _, one := range s.Sessions {
			ours += pss(b, one.PID) / 1024
		}
		record(b, line{
			load: fmt.Sprintf("%d clients, %d %s, %s (Holdline's own part: %.0f MiB)", clients, len(servers), kind, layout.words, ours),
			unit: "MiB", beside: "servers for each client", chain: apart, holdline: total,
		})
		end(all)
		p.stopForNow("--all") // processes that are left would share pages with the next ones
	}
}

// end kills clients.
func end(all []*agent) {
	for _, a := range all {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
	}
}
