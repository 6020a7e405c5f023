package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// recoveryRounds is how often a benchmark of this file repeats what it measures.
const recoveryRounds = 7

// crowd is a number of clients, each of which sends one line at a time.
type crowd []*agent

// ask has each client ask at the same time, and returns how long the answers took, sorted.
func (c crowd) ask(method string) []time.Duration {
	took := make([]time.Duration, len(c))
	begin := time.Now()
	var all sync.WaitGroup
	for i, a := range c {
		a.next++
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{}}`, a.next, method))
		all.Go(func() {
			a.wait(a.next)
			took[i] = time.Since(begin)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

// bareCrowd starts n bare clients and the process that answers them. The returned function kills
// that process, starts the next one, and returns how long the answers took.
func (p *place) bareCrowd(b *testing.B, n int) (killed func() []time.Duration) {
	b.Helper()
	path := filepath.Join(p.dir, "bare"+strconv.Itoa(n))
	var server *exec.Cmd
	start := func() {
		server = p.copier("answer", path)
		if err := server.Start(); err != nil {
			b.Fatal(err)
		}
	}
	start()
	b.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	clients := make(crowd, n)
	for i := range clients {
		clients[i] = p.agentOf(p.copier("client", path))
	}
	clients.ask("ping")
	return func() []time.Duration {
		_ = server.Process.Kill()
		_ = server.Wait()
		begin := time.Now()
		start()
		started := time.Since(begin)
		took := clients.ask("ping")
		for i := range took {
			took[i] += started
		}
		return took
	}
}

// reportAnswers reports the medians of the first and of the last answer of each round, in milliseconds.
func reportAnswers(b *testing.B, name string, rounds [][]time.Duration) (first, last float64) {
	b.Helper()
	var firsts, lasts []time.Duration
	for _, took := range rounds {
		firsts, lasts = append(firsts, took[0]), append(lasts, took[len(took)-1])
	}
	first, last = middle(firsts)/1000, middle(lasts)/1000
	b.ReportMetric(first, "ms/first/"+name)
	b.ReportMetric(last, "ms/last/"+name)
	return first, last
}

// killDaemon kills the daemon with this pid, and does not wait for its end.
func killDaemon(b *testing.B, pid int) {
	b.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRecovery measures how long sessions wait after a SIGKILL of the daemon, from the kill to
// the first session's answer and to the last one's. Beside it in turns is the bare floor: as many
// processes that connect again to the simplest program that answers.
func BenchmarkRecovery(b *testing.B) {
	for _, row := range []struct {
		sessions int
		most     float64 // ms, the goal
	}{{1, 25}, {10, 35}, {100, 100}} {
		sessions, most := row.sessions, row.most
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			p := newPlace(b).login()
			clients := make(crowd, sessions)
			for i := range clients {
				clients[i] = p.agent().shake()
			}
			bare := p.bareCrowd(b, sessions)
			var ours, floor [][]time.Duration
			for range recoveryRounds {
				floor = append(floor, bare())
				killDaemon(b, p.status().Daemon.PID)
				ours = append(ours, clients.ask("ping"))
				clients.ask("ping") // all have resumed
			}
			_, low := reportAnswers(b, "bare", floor)
			_, last := reportAnswers(b, "holdline", ours)
			b.ReportMetric(0, "ns/op")
			record(b, line{
				load: fmt.Sprintf("SIGKILL of the daemon to the last answer, sessions: %d", sessions), unit: "ms",
				chain: low, holdline: last, goal: goal{most: most},
			})
		})
	}
}

// manyServers returns a place with that many servers, and clients of all of them.
func manyServers(b *testing.B, p *place, servers, sessions int) crowd {
	b.Helper()
	entries := map[string]any{}
	for i := range servers {
		entries[fmt.Sprintf("s%d", i)] = map[string]any{
			"command": filepath.Join(programs, "echoserver"), "holdline": hosting{"scope": "shared"},
		}
	}
	p.configure(entries)
	clients := make(crowd, sessions)
	for i := range clients {
		clients[i] = p.agent().shake()
	}
	for i := range servers {
		p.untilReady(fmt.Sprintf("s%d", i))
	}
	for i, a := range clients {
		a.wait(a.begin("tools/call", map[string]any{
			"name": fmt.Sprintf("s%d__echo", i%servers), "arguments": map[string]any{"text": "x"},
		}))
	}
	return clients
}

// BenchmarkRecoveryServers measures the same with 100 sessions and 50 servers: each session calls a
// tool when the daemon has been killed, so the answer needs the server's worker, too.
func BenchmarkRecoveryServers(b *testing.B) {
	const sessions, servers = 100, 50
	p := newPlace(b).login()
	clients := manyServers(b, p, servers, sessions)
	bare := p.bareCrowd(b, sessions)
	var ours, floor [][]time.Duration
	for range recoveryRounds {
		floor = append(floor, bare())
		killDaemon(b, p.status().Daemon.PID)
		ours = append(ours, clients.call(servers))
		clients.call(servers)
	}
	_, low := reportAnswers(b, "bare", floor)
	_, last := reportAnswers(b, "holdline", ours)
	b.ReportMetric(0, "ns/op")
	record(b, line{
		load: "the same with 100 sessions that call 50 servers", unit: "ms", chain: low, holdline: last,
		goal: goal{most: 250},
	})
}

// call has each client call the tool of one of so many servers, as [crowd.ask] does.
func (c crowd) call(servers int) []time.Duration {
	took := make([]time.Duration, len(c))
	begin := time.Now()
	var all sync.WaitGroup
	for i, a := range c {
		all.Go(func() {
			id := a.begin("tools/call", map[string]any{
				"name": fmt.Sprintf("s%d__echo", i%servers), "arguments": map[string]any{"text": "x"},
			})
			a.wait(id)
			took[i] = time.Since(begin)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}
