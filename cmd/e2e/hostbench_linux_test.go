package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A way is a path to the echo server.
type way string

const (
	direct  way = "direct"
	chain   way = "chain" // behind processes that only copy lines, over the same hops as through holdline
	through way = "holdline"
)

// ways are all of them. Benchmarks take them in turn, in many short rounds: other work on
// the machine then hits all of them alike, and each round has a ratio of its own.
var ways = []way{direct, chain, through}

// hall is a place in which the echo server can be reached in every way.
type hall struct {
	*place

	links []int // processes between the chain's first and its server
}

// newHall starts a daemon, and what the chain has in the place of daemon and worker.
func newHall(b *testing.B) *hall {
	b.Helper()
	inMemory(b)
	h := &hall{place: newPlace(b)}
	echo := filepath.Join(programs, "echoserver")
	h.configure(map[string]any{"e": map[string]any{"command": echo, "holdline": hosting{"scope": "shared"}}}).daemon()
	for _, args := range [][]string{
		{"serve", filepath.Join(h.dir, "worker"), echo},
		{"relay", filepath.Join(h.dir, "relay"), filepath.Join(h.dir, "worker")},
	} {
		cmd := h.copier(args...)
		// A worker has a session of its own, which counts if the kernel schedules by session.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: args[0] == "serve"}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		h.links = append(h.links, cmd.Process.Pid)
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		h.untilExists(args[1])
	}
	return h
}

// caller is a client that does as little as possible besides its calls.
type caller struct {
	t     testing.TB
	cmd   *exec.Cmd
	pid   int
	tool  string
	stdin io.WriteCloser
	out   *bufio.Reader
	next  int
	buf   []byte
}

// caller returns a client of one of the ways, after its handshake and its first call.
func (h *hall) caller(w way) *caller {
	h.t.Helper()
	tool := "echo"
	var cmd *exec.Cmd
	switch w {
	case direct:
		cmd = h.program("echoserver")
	case chain:
		cmd = h.copier(filepath.Join(h.dir, "relay"))
	case through:
		cmd, tool = h.program("holdline", "mcp-stdio"), "e__echo"
	}
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c := &caller{
		t: h.t, cmd: cmd, pid: cmd.Process.Pid, tool: tool, stdin: stdin, out: bufio.NewReaderSize(stdout, 1<<16),
	}
	c.write([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"))
	c.answer(`"protocolVersion"`)
	c.write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"))
	c.echo()
	return c
}

func (c *caller) write(b []byte) {
	if _, err := c.stdin.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a call of the echo server.
func (c *caller) ask(text string, bytes int) {
	c.next++
	c.buf = fmt.Appendf(c.buf[:0], `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,`+
		`"arguments":{"text":"%s","bytes":%d}}}`+"\n", c.next, c.tool, text, bytes)
	c.write(c.buf)
}

// line reads a line. It returns its beginning, which is valid until the next read, and its
// length in bytes.
func (c *caller) line() (head []byte, size int) {
	head, err := c.out.ReadSlice('\n')
	size = len(head)
	if errors.Is(err, bufio.ErrBufferFull) {
		head = append([]byte(nil), head[:1<<10]...)
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = c.out.ReadSlice('\n')
		size += len(more)
	}
	if err != nil {
		c.t.Fatal("no line: ", err)
	}
	return head, size
}

// answer reads the next answer, which has to have want in its beginning, and returns its
// length in bytes. What is no answer is skipped.
func (c *caller) answer(want string) int {
	for {
		head, size := c.line()
		if !bytes.Contains(head, []byte(`"id":`)) {
			continue
		}
		if !bytes.Contains(head, []byte(want)) {
			c.t.Fatalf("the answer is %.500q, want %s in it", head, want)
		}
		return size
	}
}

// echo makes a small call.
func (c *caller) echo() {
	c.ask("hello", 0)
	c.answer(`"hello"`)
}

// cpuTime returns the time that a process has had on the processors, in microseconds.
func cpuTime(b *testing.B, pid int) float64 {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &ts); err != nil { // see clock_getcpuclockid(3)
		b.Fatal(err)
	}
	return float64(ts.Nano()) / 1000
}

// parts returns the processes behind one client of each way, by what they do. It has to be
// called while there is one of each.
func (h *hall) parts(clients map[way]*caller) map[way]map[string]int {
	h.t.Helper()
	s := h.status()
	if len(s.Workers) != 1 {
		h.t.Fatalf("%d workers", len(s.Workers))
	}
	server := 0
	for pid, cmd := range h.processes() {
		if strings.Contains(cmd, "echoserver") && !strings.Contains(cmd, "floor") && pid != s.Workers[0].ChildPID &&
			pid != s.Workers[0].PID && pid != clients[direct].pid {
			server = pid
		}
	}
	return map[way]map[string]int{
		direct: {"server": clients[direct].pid, "client": os.Getpid()},
		chain: {
			"server": server, "worker": h.links[0], "daemon": h.links[1], "proxy": clients[chain].pid,
			"client": os.Getpid(),
		},
		through: {
			"server": s.Workers[0].ChildPID, "worker": s.Workers[0].PID, "daemon": s.Daemon.PID,
			"proxy": clients[through].pid, "client": os.Getpid(),
		},
	}
}

// BenchmarkHosted measures a small call of a hosted server's tool: what it adds to the
// same call without anything in between, compared with what the chain adds, and the time
// of all its processes on the processors. The first call after a rest is measured by itself.
func BenchmarkHosted(b *testing.B) {
	const rounds, calls, atOnce = 80, 100, 10 // a p99 is of as many rounds
	const all = rounds * (1 + calls)
	// Before each round all rest for so long that nothing of the one before is left for it: Holdline
	// acknowledges answers 50 ms later at most, and the runtime's monitor runs for 10 ms more.
	const rest = 70 * time.Millisecond
	h := newHall(b)
	clients := map[way]*caller{}
	for _, w := range ways {
		clients[w] = h.caller(w)
	}
	parts := h.parts(clients)
	for range 500 {
		for _, w := range ways {
			clients[w].echo()
		}
	}
	first, mid, late := map[way][]float64{}, map[way][]float64{}, map[way][]float64{}
	took := map[way][]time.Duration{}
	busy := map[way]map[string]float64{direct: {}, chain: {}, through: {}}
	before := h.status().Runtime
	b.ResetTimer()
	for round := range rounds {
		for _, w := range ways {
			time.Sleep(rest)
			for part, pid := range parts[w] {
				busy[w][part] -= cpuTime(b, pid)
			}
			for i := range 1 + calls {
				begin := time.Now()
				clients[w].echo()
				if d := time.Since(begin); i > 0 {
					took[w] = append(took[w], d)
				} else {
					first[w] = append(first[w], float64(d.Nanoseconds())/1000)
				}
			}
			for part, pid := range parts[w] {
				busy[w][part] += cpuTime(b, pid)
			}
			mid[w] = append(mid[w], middle(slices.Clone(took[w][len(took[w])-calls:])))
			if (round+1)%atOnce == 0 {
				slices.Sort(took[w])
				late[w] = append(late[w], float64(took[w][len(took[w])*99/100].Nanoseconds())/1000)
				took[w] = took[w][:0]
			}
		}
	}
	b.StopTimer()
	after := h.status().Runtime

	added := map[way][]float64{}
	for _, w := range []way{chain, through} {
		for i := range rounds {
			added[w] = append(added[w], mid[w][i]-mid[direct][i])
		}
	}
	cpu := map[way]float64{}
	for _, w := range ways {
		for part, sum := range busy[w] {
			if part != "client" { // how long it waits decides what Go's scheduler makes of it
				cpu[w] += sum / all
			}
			b.ReportMetric(sum/all, "µs-cpu/"+string(w)+"-"+part)
		}
		b.ReportMetric(medianOf(mid[w]), "µs/"+string(w))
	}
	b.ReportMetric(float64(after.Allocs-before.Allocs)/all, "allocs/daemon")
	b.ReportMetric(float64(after.AllocBytes-before.AllocBytes)/all, "B/daemon")
	b.ReportMetric(0, "ns/op")
	record(b, line{
		load: "small call, p50 added to direct", unit: "µs", chain: medianOf(added[chain]), holdline: medianOf(added[through]),
		ratio: medianOf(quotients(added[through], added[chain])), goal: goal{ratio: 1.25},
	})
	record(b, line{
		load: "small call, p99", unit: "µs", chain: medianOf(late[chain]), holdline: medianOf(late[through]),
		ratio: medianOf(quotients(late[through], late[chain])), goal: goal{ratio: 1.2},
	})
	record(b, line{
		load: fmt.Sprintf("the first small call after a rest of %d ms, p50", rest.Milliseconds()), unit: "µs",
		chain: medianOf(first[chain]), holdline: medianOf(first[through]),
		ratio: medianOf(quotients(first[through], first[chain])),
	})
	record(b, line{
		load: "small call, CPU of all processes behind the client", unit: "µs", chain: cpu[chain], holdline: cpu[through],
		goal: goal{ratio: 1.15},
	})
}

// BenchmarkHostedInFlight measures how many small calls a second are answered if each
// session always has several of them in flight.
func BenchmarkHostedInFlight(b *testing.B) {
	const rounds, turn = 25, 150 * time.Millisecond
	h := newHall(b)
	for _, load := range []struct {
		sessions, calls int
		least           float64
	}{{1, 64, 30_000}, {10, 8, 25_000}} {
		clients, rates := map[way][]*caller{}, map[way][]float64{}
		for range load.sessions {
			for _, w := range ways[1:] {
				clients[w] = append(clients[w], h.caller(w))
			}
		}
		for range rounds {
			for _, w := range ways[1:] {
				rates[w] = append(rates[w], rate(clients[w], load.calls, turn))
			}
		}
		words := fmt.Sprintf("%d sessions, %d small calls in flight each", load.sessions, load.calls)
		if load.sessions == 1 {
			words = fmt.Sprintf("1 session, %d small calls in flight", load.calls)
		}
		record(b, line{
			load: words, unit: "calls/s", chain: medianOf(rates[chain]), holdline: medianOf(rates[through]),
			ratio: medianOf(quotients(rates[through], rates[chain])), goal: goal{least: load.least},
		})
	}
}

// rate keeps so many calls of each client in flight for a while, and returns how many are
// answered a second.
func rate(clients []*caller, inFlight int, while time.Duration) float64 {
	begin := time.Now()
	var all sync.WaitGroup
	counts := make([]int, len(clients))
	for i, c := range clients {
		all.Go(func() {
			for range inFlight {
				c.ask("hello", 0)
			}
			for left := inFlight; left > 0; counts[i]++ {
				c.answer(`"hello"`)
				if time.Since(begin) < while {
					c.ask("hello", 0)
				} else {
					left--
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds()
}

// BenchmarkHostedLarge measures calls with large results and requests.
func BenchmarkHostedLarge(b *testing.B) {
	h := newHall(b)
	clients := map[way]*caller{}
	for _, w := range ways {
		clients[w] = h.caller(w)
	}
	for _, load := range []struct {
		words             string
		request, result   int // bytes
		rounds, eachRound int
	}{
		{"result of 1 MiB, p50", 0, 1 << 20, 60, 4},
		{"result of 16 MiB, p50", 0, 16 << 20, 15, 1},
		{"request of 16 MiB, p50", 16 << 20, 0, 15, 1},
	} {
		text := strings.Repeat("x", load.request)
		mid := map[way][]float64{}
		for round := range load.rounds + 1 {
			for _, w := range ways {
				var took []time.Duration
				for range load.eachRound {
					begin := time.Now()
					clients[w].ask(text, load.result)
					if n := clients[w].answer(`"text"`); n < load.result {
						b.Fatalf("%s: %d bytes", load.words, n)
					}
					took = append(took, time.Since(begin))
				}
				if round > 0 { // the first one warms up
					mid[w] = append(mid[w], middle(took)/1000)
				}
			}
		}
		record(b, line{
			load: load.words, unit: "ms", chain: medianOf(mid[chain]), holdline: medianOf(mid[through]),
			ratio: medianOf(quotients(mid[through], mid[chain])), goal: goal{ratio: 1.3},
		})
	}
}
