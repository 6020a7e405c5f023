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
const recoveryRounds = 11

// inMemory makes the places of a benchmark in memory, as a user's XDG_RUNTIME_DIR is.
func inMemory(b *testing.B) {
	b.Helper()
	if memory := "/dev/shm"; exists(memory) {
		b.Setenv("TMPDIR", memory)
	}
}

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
			inMemory(b)
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
	inMemory(b)
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

// BenchmarkUpgradeServers measures the slowest call while the daemon hands over to a newer program,
// with as many sessions and servers. One session calls all the time.
func BenchmarkUpgradeServers(b *testing.B) {
	const sessions, servers = 100, 50
	inMemory(b)
	p := newPlace(b)
	p.installVersion(b, older)
	p.daemonAt(p.bin())
	clients := manyServers(b, p, servers, sessions)
	bare := p.bareCrowd(b, sessions)
	var slowest, floor []time.Duration
	for i := range recoveryRounds {
		took := bare()
		floor = append(floor, took[len(took)-1])
		p.installVersion(b, []string{newer, older}[i%2])
		done, worst := make(chan struct{}), time.Duration(0)
		var calling sync.WaitGroup
		calling.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					worst = max(worst, clients[:1].call(servers)[0])
				}
			}
		})
		p.must("upgrade")
		clients[1:].call(servers)
		close(done)
		calling.Wait()
		slowest = append(slowest, worst)
	}
	low, slow := middle(floor)/1000, middle(slowest)/1000
	b.ReportMetric(low, "ms/last/bare")
	b.ReportMetric(slow, "ms/slowest/holdline")
	b.ReportMetric(0, "ns/op")
	record(b, line{
		load: "slowest call over an upgrade, 100 sessions and 50 servers", unit: "ms", chain: low, holdline: slow,
		goal: goal{most: 150},
	})
}

// BenchmarkOpenSession measures how long it takes to open one more session, from the start of its
// proxy to its list of tools, while 10 and then 1,000 are open, with 50 servers. Beside it in turns
// is the bare client: the machine, too, may be slower with that many processes, or later. The ratio
// leaves that out.
func BenchmarkOpenSession(b *testing.B) {
	const servers, rounds = 50, 30
	p := newPlace(b).login()
	clients := manyServers(b, p, servers, 10)
	bare := p.bareCrowd(b, 1)
	bare()
	at, bareAt := map[int]float64{}, map[int]float64{}
	for _, open := range []int{10, 1000} {
		for len(clients) < open {
			clients = append(clients, p.agent().shake())
		}
		var ours, floor []time.Duration
		for range rounds {
			begin := time.Now()
			c := p.agentOf(p.copier("client", filepath.Join(p.dir, "bare1")))
			crowd{c}.ask("ping")
			floor = append(floor, time.Since(begin))
			begin = time.Now()
			a := p.agent().shake()
			a.ask("tools/list", map[string]any{})
			ours = append(ours, time.Since(begin))
			for _, one := range []*agent{a, c} {
				_ = one.stdin.Close()
				_ = one.cmd.Wait()
			}
		}
		at[open], bareAt[open] = middle(ours)/1000, middle(floor)/1000
		b.ReportMetric(bareAt[open], fmt.Sprintf("ms/bare/open=%d", open))
		b.ReportMetric(at[open], fmt.Sprintf("ms/holdline/open=%d", open))
	}
	b.ReportMetric(0, "ns/op")
	record(b, line{
		load: "opening a session with 1,000 open, 50 servers", unit: "ms", beside: "with 10 open",
		chain: at[10], holdline: at[1000], goal: goal{ratio: 1.2},
		ratio: at[1000] / at[10] * bareAt[10] / bareAt[1000], // the bare client shows how slow the machine was
	})
}

// BenchmarkColdStart measures the answer to initialize when nothing runs: the proxy starts the
// daemon. Beside it in turns is the bare floor: a client and a process that answers it.
func BenchmarkColdStart(b *testing.B) {
	inMemory(b)
	p := newPlace(b).login()
	p.up()
	var ours, floor []time.Duration
	for i := range 2 * recoveryRounds {
		path := filepath.Join(p.dir, "cold"+strconv.Itoa(i))
		begin := time.Now()
		server := p.copier("answer", path)
		if err := server.Start(); err != nil {
			b.Fatal(err)
		}
		c := p.agentOf(p.copier("client", path))
		crowd{c}.ask("ping")
		floor = append(floor, time.Since(begin))
		_, _ = server.Process.Kill(), c.stdin.Close()
		_, _ = server.Wait(), c.cmd.Wait()

		p.stopForNow("--all")
		begin = time.Now()
		a := p.agent().shake()
		ours = append(ours, time.Since(begin))
		a.leave()
	}
	low, took := middle(floor)/1000, middle(ours)/1000
	b.ReportMetric(low, "ms/bare")
	b.ReportMetric(took, "ms/holdline")
	b.ReportMetric(0, "ns/op")
	record(b, line{
		load: "cold start: nothing runs to the answer to initialize", unit: "ms", chain: low, holdline: took,
		goal: goal{most: 20},
	})
}
