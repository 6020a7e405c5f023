package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// soakPause is the mean time between two requests of a session.
const soakPause = 2 * time.Second

// soak is many sessions with a mixed load.
type soak struct {
	*hall

	stop chan struct{} // closed when no request may begin any more
	text string        // 64 KiB, for requests

	mu       sync.Mutex
	callers  []*caller // of the sessions that are open
	requests int
}

// reading is what is measured of the daemon and of the sessions' proxies. Memory is the
// proportional share (PSS), in MiB.
type reading struct {
	at                          time.Duration
	sessions, requests          int
	fds, goroutines             float64
	heap, daemon, worker, proxy float64
}

// take measures.
func (s *soak) take(at time.Duration) reading {
	s.t.Helper()
	status := s.status()
	r := reading{
		at: at, sessions: len(status.Sessions), fds: float64(status.Runtime.FDs),
		goroutines: float64(status.Runtime.Goroutines), heap: float64(status.Runtime.HeapBytes) / (1 << 20),
		daemon: meanMiB(s.t, "Pss", status.Daemon.PID),
	}
	for _, w := range status.Workers {
		r.worker += meanMiB(s.t, "Pss", w.PID) / float64(len(status.Workers))
	}
	s.mu.Lock()
	r.requests = s.requests
	var pids []int
	for i := 0; i < len(s.callers); i += 20 { // a sample: reading all of them takes seconds
		pids = append(pids, s.callers[i].pid)
	}
	s.mu.Unlock()
	r.proxy = meanMiB(s.t, "Pss", pids...)
	return r
}

func (r reading) String() string {
	return fmt.Sprintf("%6v %5d sessions %8d requests %5.0f descriptors %6.0f goroutines  MiB: heap %5.1f daemon %5.1f "+
		"worker %4.1f proxy %4.2f", r.at.Round(time.Second), r.sessions, r.requests, r.fds, r.goroutines, r.heap, r.daemon,
		r.worker, r.proxy)
}

// exceeds returns what of r is larger than what is allowed over base, in words; "" if nothing.
func (r reading) exceeds(base reading, factor float64) string {
	var over []string
	for _, x := range []struct {
		name          string
		got, was, and float64 // and: this much more is always allowed
	}{
		{"descriptors", r.fds, base.fds, 16},
		{"goroutines", r.goroutines, base.goroutines, 32},
		{"MiB of heap", r.heap, base.heap, 4},
		{"MiB of the daemon", r.daemon, base.daemon, 4},
		{"MiB of a worker", r.worker, base.worker, 1},
		{"MiB of a proxy", r.proxy, base.proxy, 0.5},
	} {
		if limit := x.was*factor + x.and; x.got > limit {
			over = append(over, fmt.Sprintf("%.1f %s, at most %.1f", x.got, x.name, limit))
		}
	}
	return strings.Join(over, "; ")
}

// meanReading returns the means of readings.
func meanReading(all []reading) (mean reading) {
	n := float64(len(all))
	for _, r := range all {
		mean.fds += r.fds / n
		mean.goroutines += r.goroutines / n
		mean.heap += r.heap / n
		mean.daemon += r.daemon / n
		mean.worker += r.worker / n
		mean.proxy += r.proxy / n
	}
	return mean
}

// open opens a session.
func (s *soak) open() *caller {
	c := s.caller(through)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers = append(s.callers, c)
	return c
}

// leave ends a session.
func (s *soak) leave(c *caller) {
	s.mu.Lock()
	s.callers = slices.DeleteFunc(s.callers, func(other *caller) bool { return other == c })
	s.mu.Unlock()
	_ = c.stdin.Close()
	for err := error(nil); err == nil; {
		_, err = c.out.Discard(1 << 10)
	}
	if err := c.cmd.Wait(); err != nil {
		s.t.Errorf("a proxy ended: %v", err)
	}
}

// request sends a request, and waits for its answer if there will be one.
func (c *caller) request(method, params string, answered bool) {
	c.next++
	c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.next, method, params))
	if !answered {
		c.write(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", c.next))
		return
	}
	id := fmt.Appendf(nil, `"id":%d,"result"`, c.next)
	for {
		head, _ := c.line()
		if bytes.Contains(head, id) {
			return
		}
		if bytes.Contains(head, []byte(`"error"`)) {
			c.t.Errorf("%s %.200s: %.500s", method, params, head)
			return
		}
	}
}

// run makes requests in one session after the other, until the load is over. It returns the
// session that is open then.
func (s *soak) run(c *caller, seed uint64) *caller {
	dice := rand.New(rand.NewPCG(seed, 1))
	for {
		pause := time.NewTimer(time.Duration(dice.Int64N(int64(2 * soakPause))))
		select {
		case <-s.stop:
			pause.Stop()
			return c
		case <-pause.C:
		}
		switch n := dice.IntN(100); {
		case n < 60:
			c.echo()
		case n < 65: // a large request
			c.ask(s.text, 0)
			c.answer(`"text"`)
		case n < 70: // a large result
			c.ask("large", 1<<(10+dice.IntN(11)))
			c.answer(`"text"`)
		case n < 80: // a call that is cancelled
			c.request("tools/call", `{"name":"tools__hang","arguments":{"token":"x"}}`, false)
		case n < 88: // one that takes a while and reports progress
			c.request("tools/call",
				`{"name":"tools__effect","arguments":{"token":"x","ms":200},"_meta":{"progressToken":1}}`, true)
		case n < 93:
			c.request("tools/list", `{}`, true)
		case n < 98:
			c.request("tools/call", `{"name":"health_snapshot"}`, true)
		default: // a client leaves, and the next one comes
			s.leave(c)
			c = s.open()
		}
		s.mu.Lock()
		s.requests++
		s.mu.Unlock()
	}
}

// TestSoak_MixedLoadOfManySessions_NothingGrows keeps many sessions under a mixed load, with
// sessions that come and go. Descriptors, goroutines and memory must not grow meanwhile;
// within a minute of rest they must be back at what idle sessions take, and, when all have
// left, at what a daemon takes after its first session.
//
// HOLDLINE_SOAK=10m says how long, HOLDLINE_SOAK_SESSIONS=1000 how many.
func TestSoak_MixedLoadOfManySessions_NothingGrows(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("HOLDLINE_SOAK"))
	if err != nil {
		t.Skip("HOLDLINE_SOAK=10m is not set: make soak")
	}
	sessions, err := strconv.Atoi(os.Getenv("HOLDLINE_SOAK_SESSIONS"))
	if err != nil || sessions < 1 {
		t.Fatalf("HOLDLINE_SOAK_SESSIONS=%q is no number of sessions", os.Getenv("HOLDLINE_SOAK_SESSIONS"))
	}
	s := newSoak(t)
	empty := s.settled(s.take(0), 0)
	t.Logf("empty  %v", empty)

	s.crowd(sessions)
	idle := s.settled(s.take(0), 0)
	t.Logf("idle   %v", idle)

	begin, every := time.Now(), min(length/10, time.Minute)
	var readings []reading
	var all sync.WaitGroup
	for i, c := range slices.Clone(s.callers) {
		all.Go(func() { s.run(c, uint64(i)) })
	}
	for tick := time.NewTicker(every); time.Since(begin) < length; {
		<-tick.C
		readings = append(readings, s.take(time.Since(begin)))
		t.Logf("load   %v", readings[len(readings)-1])
	}
	close(s.stop)
	all.Wait()
	third := len(readings) / 3
	early, late := meanReading(readings[:max(third, 1)]), meanReading(readings[len(readings)-max(third, 1):])
	if over := late.exceeds(early, 1.15); over != "" {
		t.Errorf("it grew under load: in the last third %s", over)
	}

	rest := s.settled(idle, 1.25)
	t.Logf("rest   %v", rest)
	if over := rest.exceeds(idle, 1.25); over != "" {
		t.Errorf("after the load and a minute of rest: %s", over)
	}
	for len(s.callers) > 1 {
		s.leave(s.callers[0])
	}
	gone := s.settled(empty, 1.5)
	t.Logf("gone   %v", gone)
	if over := gone.exceeds(empty, 1.5); over != "" {
		t.Errorf("a minute after all sessions but one have left: %s", over)
	}
}

// newSoak starts a daemon with an echo server and a tool server, and opens one session.
func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{hall: &hall{place: newPlace(t)}, stop: make(chan struct{}), text: strings.Repeat("x", 64<<10)}
	s.configure(map[string]any{
		"e":     map[string]any{"command": filepath.Join(programs, "echoserver"), "holdline": hosting{"scope": "shared"}},
		"tools": map[string]any{"command": filepath.Join(programs, "toolserver"), "holdline": hosting{"scope": "shared"}},
	}, "limits", map[string]any{
		"connections": 4096, "in_flight": 4096, // of this process, which is the client of all sessions
	}).daemon()
	s.open().request("tools/call", `{"name":"tools__look","arguments":{"token":"x"}}`, true)
	return s
}

// crowd opens sessions until there are so many.
func (s *soak) crowd(sessions int) {
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	for range sessions - len(s.callers) {
		turns <- struct{}{}
		all.Go(func() {
			s.open()
			<-turns
		})
	}
	all.Wait()
}

// settled waits until a reading does not exceed base by this factor, for at most a minute,
// and returns the last one. Without a factor it waits for ten seconds.
func (s *soak) settled(base reading, factor float64) (last reading) {
	begin, longest := time.Now(), time.Minute
	if factor == 0 {
		longest = 10 * time.Second
	}
	for {
		last = s.take(time.Since(begin))
		if time.Since(begin) > longest || factor != 0 && last.exceeds(base, factor) == "" {
			return last
		}
		time.Sleep(time.Second)
	}
}
