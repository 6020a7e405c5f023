package session_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdline/protocol"
	"holdline/protocol/faultpoint"
)

// again connects a second time.
func (h *host) again(tb testing.TB, g protocol.Greeting) *client {
	tb.Helper()
	g.Resume, g.Store = true, "st"
	return h.greet(tb, g)
}

const (
	initLine  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}`
	readyLine = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func callLine(id int, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, name)
}

// hand sends what a proxy says of the handshake when it resumes.
func (c *client) hand() {
	c.t.Helper()
	c.send(`{"holdline":1,"replay":1,"answered":true,"was":{}}`)
	c.send(initLine)
	c.send(`{"holdline":1,"replay":2,"answered":true}`)
	c.send(readyLine)
}

func (c *client) replay(n int, line string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":false}`, n))
	c.send(line)
}

// detached waits until the only session has no connection.
func (h *host) detached(tb testing.TB) {
	tb.Helper()
	for limit := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
		if s := h.srv.Sessions(); len(s) == 1 && s[0].State == "detached" {
			return
		}
		if time.Now().After(limit) {
			tb.Fatalf("not detached: %+v", h.srv.Sessions())
		}
	}
}

// TestResume breaks the connection while calls are in every state. Each is answered once.
func TestResume(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	c.send(callLine(1, "steps")) // line 3: answered and confirmed
	want(t, c.next(), "1", "done")
	c.send(`{"holdline":1,"ack":2}`)
	c.send(callLine(2, "hold")) // line 4: in flight, wanted
	<-h.began
	c.send(callLine(3, "hold")) // line 5: in flight, cancelled while the line is down
	<-h.began
	c.send(callLine(4, "steps")) // line 6: answered, and the answer was lost
	want(t, c.next(), "4", "done")
	c.conn.Close()
	h.detached(t)

	c = h.again(t, protocol.Greeting{Identity: "a", Next: 9, Pending: []int64{4, 6, 7}})
	want := func(parts ...string) {
		t.Helper()
		line := c.next()
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Fatalf("got %s, want %s", line, part)
			}
		}
	}
	want(`"resumed":true`)
	want(`"id":4,`, "done")
	<-h.ended
	c.hand()
	c.replay(4, callLine(2, "hold"))
	c.replay(6, callLine(4, "steps"))
	c.replay(7, callLine(5, "steps")) // never arrived
	want(`"id":5,`, "done")
	c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`)
	want(`"id":6,`, "echo")
	if call := <-h.inCall; call.N != 9 {
		t.Errorf("the first live line is %d, want 9", call.N)
	}
	close(h.hold)
	want(`"id":2,`, "held")
	c.send(callLine(7, "steps"))
	want(`"id":7,`)
	if p := <-h.resumed; len(p) != 3 {
		t.Errorf("pending %v", p)
	}
	if n := len(h.began); n != 0 {
		t.Errorf("%d calls ran again", n)
	}
	// A resume by the same process replaces a connection that still lives.
	old := c
	c = h.again(t, protocol.Greeting{Identity: "a", Next: 11, Pending: []int64{10}})
	want(`"resumed":true`)
	want(`"id":7,`)
	old.end()
	c.send(`{"holdline":1,"bye":"client"}`)
	c.end()
}

// TestResumeAtNewDaemon resumes a session at a daemon that does not know it.
func TestResumeAtNewDaemon(t *testing.T) {
	h := start(t)
	c := h.again(t, protocol.Greeting{Identity: "a", Next: 6, Pending: []int64{3, 4}})
	if w := c.next(); !strings.Contains(w, `"resumed":false`) {
		t.Errorf("welcome = %s", w)
	}
	c.hand()
	c.send(`{"holdline":1,"replay":3,"answered":false,"age_ms":5000}`)
	c.send(callLine(1, "steps"))
	want(t, c.next(), "1", "done")
	h.told.mu.Lock()
	if n := len(h.told.calls); n != 1 || h.told.calls[0].Took < 5*time.Second {
		t.Errorf("telemetry was told of %d calls, want one that took 5 s: %+v", n, h.told.calls)
	}
	h.told.mu.Unlock()
	c.send(`{"holdline":1,"replay":4,"answered":false,"bytes":false,"id":2}`)
	want(t, c.next(), "2", `"resource_exhausted"`)
	c.send(`{"holdline":1,"replay":5,"answered":true}`)
	c.send(`{"jsonrpc":"2.0","id":"w:1","result":{}}`)
	if line := c.next(); line != `{"holdline":1,"seen":5}` {
		t.Errorf("got %s", line)
	}
	if s := h.srv.Sessions(); len(s) != 1 || s[0].Client != "probe 1" || s[0].Era != "legacy" {
		t.Errorf("sessions = %+v", s)
	}
}

// TestResumeTooLarge checks that a request whose line the proxy could not keep is answered
// if it had begun, can be cancelled, and is answered in the form of its session's era.
func TestResumeTooLarge(t *testing.T) {
	const line = `{"holdline":1,"replay":77,"answered":false,"bytes":false,"id":9}`
	t.Run("answered", func(t *testing.T) {
		h := start(t)
		c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: []int64{77}})
		c.next()
		c.hand()
		c.send(line)
		if call := <-h.inCall; call.N != 77 || call.ID != "9" || call.Caller.Identity != "a" ||
			call.Caller.PID != os.Getpid() || call.Caller.Start == 0 {
			t.Errorf("call = %+v", call)
		}
		close(h.hold)
		got := c.next()
		want(t, got, "9", "what was begun")
		if strings.Contains(got, "resultType") {
			t.Errorf("a legacy client gets %s", got)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		h := start(t)
		c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: []int64{77}})
		c.next()
		c.hand()
		c.send(line)
		<-h.inCall
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		<-h.ended
		c.send(callLine(10, "steps")) // no answer came for the one before
		want(t, c.next(), "10", "done")
	})
	t.Run("modern", func(t *testing.T) {
		h := start(t)
		c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: []int64{77}})
		c.next()
		c.send(line)
		<-h.inCall
		close(h.hold)
		want(t, c.next(), "9", "what was begun", `"resultType":"complete"`)
	})
}

// TestAnsweredLongLineLost replays a long line whose file is gone. A request that the client has the
// answer to gets no second one; another one gets a fault.
func TestAnsweredLongLineLost(t *testing.T) {
	h := start(t)
	c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: []int64{72}})
	c.next()
	c.hand()
	for n, answered := range map[int]bool{71: true, 72: false} {
		c.send(fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":%v}`, n, answered))
		c.send(fmt.Sprintf(`{"holdline":1,"id":%d,"call":true,"long":{"head":"","span":{"file":"gone","size":9},"tail":""}}`, n))
	}
	want(t, c.next(), "72", "too large to be kept")
	c.send(callLine(10, "steps"))
	want(t, c.next(), "10", "done")
}

// TestResumeWithLostRecords replays lines of which it is not known whether they ran.
func TestResumeWithLostRecords(t *testing.T) {
	h := start(t)
	h.store.Store("another")
	c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: []int64{3, 4, 77, 78}})
	c.next()
	c.hand()
	c.replay(3, callLine(1, "steps")) // may run twice
	want(t, c.next(), "1", "done")
	c.replay(4, callLine(2, "hold"))
	want(t, c.next(), "2", `outcome_unknown`, `"isError":true`)
	c.replay(5, callLine(9, "gone__since")) // nothing of that name is there any more
	want(t, c.next(), "9", `outcome_unknown`, `"isError":true`)
	c.replay(77, callLine(3, "hold")) // the executor has it
	<-h.began
	close(h.hold)
	want(t, c.next(), "3", "held")
	c.send(callLine(10, "gone__since")) // a new call
	want(t, c.next(), "10", `unknown_tool`)
}

// TestResumeBeyondTheLimit replays more lines than the agent may have in flight now. None is refused:
// the limit was looked at when they were begun. The next new call is.
func TestResumeBeyondTheLimit(t *testing.T) {
	h := startWith(t, 2)
	pending := make([]int64, 5)
	for i := range pending {
		pending[i] = 3 + int64(i)
	}
	c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: pending})
	c.next()
	c.hand()
	for i, n := range pending {
		c.replay(int(n), callLine(i+1, "hold"))
		<-h.began
	}
	c.send(callLine(99, "hold"))
	want(t, c.next(), "99", "resource_exhausted")
	close(h.hold)
	for range pending {
		if line := c.next(); !strings.Contains(line, "held") {
			t.Errorf("a call from before: %s", line)
		}
	}
}

// TestResumeTooLate resumes after the daemon has discarded the session's records. Lines
// that may have run stay so on the next connection.
func TestResumeTooLate(t *testing.T) {
	h := startLate(t)
	c := h.again(t, protocol.Greeting{Identity: "a", Next: 80, Pending: []int64{3, 4, 5, 6, 77}})
	c.next()
	c.hand()
	c.replay(3, callLine(1, "steps")) // may run twice
	want(t, c.next(), "1", "done")
	c.replay(4, callLine(2, "hold"))
	want(t, c.next(), "2", `outcome_unknown`, `"isError":true`)
	c.send(`{"holdline":1,"replay":5,"answered":false,"bytes":false,"id":3}`)
	want(t, c.next(), "3", `outcome_unknown`)
	c.send(callLine(7, "hold")) // line 80, a new one
	<-h.began
	c.conn.Close()
	h.detached(t)
	c = h.again(t, protocol.Greeting{Identity: "a", Next: 82, Pending: []int64{6, 77, 80, 81}})
	c.next()
	c.replay(6, callLine(4, "hold")) // did not arrive before
	want(t, c.next(), "4", `outcome_unknown`)
	c.replay(77, callLine(5, "hold")) // the executor has it
	<-h.began
	c.replay(81, callLine(8, "hold")) // was sent to this daemon, and did not arrive
	<-h.began
	close(h.hold)
	for range 3 {
		if line := c.next(); !strings.Contains(line, "held") {
			t.Errorf("got %s", line)
		}
	}
}

// TestResumeEnded resumes at a daemon that has ended the session.
func TestResumeEnded(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	c.send(callLine(1, "hold")) // line 3
	<-h.began
	h.gone.Store(true)
	c.conn.Close()
	<-h.ended
	for limit := time.Now().Add(waitLimit); len(h.srv.Sessions()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("it has not ended: %+v", h.srv.Sessions())
		}
	}
	h.gone.Store(false)
	c = h.again(t, protocol.Greeting{Identity: "a", Next: 4, Pending: []int64{3}})
	c.next()
	c.hand()
	c.replay(3, callLine(1, "hold"))
	want(t, c.next(), "1", `outcome_unknown`)
}

// TestResumeFull queues more answers for a disconnected client than are kept.
func TestResumeFull(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a"})
	fmt.Fprintf(c.conn,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":%q}}}`+"\n",
		strings.Repeat("x", 2<<20))
	if _, err := c.conn.Read(make([]byte, 1)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	c.conn.Close()
	h.detached(t)
	c = h.again(t, protocol.Greeting{Identity: "a", Next: 4, Pending: []int64{3}})
	c.next()
	if line := c.next(); !strings.Contains(line, `"bye":"full"`) {
		t.Errorf("got %.200s", line)
	}
	if line, err := c.lines.Next(); err == nil {
		t.Errorf("got %.200s", line)
	}
}

// TestFull ends a session for which too much is queued: the queue is dropped, and the
// client gets the reason. The outcome of its calls is unknown from then on.
func TestFull(t *testing.T) {
	t.Run("attached", func(t *testing.T) {
		h := startWith(t, 64) // room for all calls: none is refused
		c := h.open(t, protocol.Greeting{Identity: "a"})
		const calls = 40 // whose answers exceed what a socket holds
		text := strings.Repeat("x", 40<<10)
		for id := range calls {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":%q}}}`, id, text))
		}
		if _, err := c.conn.Read(make([]byte, 1)); err != nil { // an answer has begun
			t.Fatal(err)
		}
		c.send(callLine(99, "hold")) // line 43
		<-h.began
		h.srv.Fill()
		for n := 0; ; n++ {
			line := c.next()
			if strings.Contains(line, `"bye":"full"`) {
				break
			}
			if n > calls/2 { // some were on their way
				t.Fatalf("got %.100s", line)
			}
		}
		c.end()
		<-h.ended
		c = h.again(t, protocol.Greeting{Identity: "a", Next: 44, Pending: []int64{43}})
		c.next()
		c.hand()
		c.replay(43, callLine(99, "hold"))
		want(t, c.next(), "99", `outcome_unknown`)
	})
	t.Run("detached", func(t *testing.T) {
		h := start(t)
		c := h.open(t, protocol.Greeting{Identity: "a"})
		c.send(callLine(1, "hold")) // line 3
		<-h.began
		c.conn.Close()
		h.detached(t)
		h.srv.Fill()
		c = h.again(t, protocol.Greeting{Identity: "a", Next: 4, Pending: []int64{3}})
		c.next()
		if line := c.next(); !strings.Contains(line, `"bye":"full"`) {
			t.Errorf("got %s", line)
		}
		c.end()
	})
}

// TestResumeCrossesAnswer ends a call at the moment at which its client resumes and no
// longer waits for it. No answer is sent.
func TestResumeCrossesAnswer(t *testing.T) {
	var armed atomic.Bool
	release, ended := make(chan struct{}), make(chan struct{}, 1)
	faultpoint.Install(func(name string) {
		switch {
		case name == "session.taken" && armed.CompareAndSwap(true, false):
			close(release)
			select {
			case <-ended:
			case <-time.After(waitLimit):
				t.Error("the call has not ended")
			}
		case name == "session.pursued":
			select {
			case ended <- struct{}{}:
			default:
			}
		}
	})
	t.Cleanup(func() { faultpoint.Install(nil) }) // after the host has ended
	h := start(t)
	h.hold = release
	c := h.open(t, protocol.Greeting{Identity: "a"})
	c.send(callLine(1, "hold")) // line 3
	<-h.began
	c.conn.Close()
	h.detached(t)
	for len(ended) > 0 {
		<-ended
	}
	armed.Store(true)
	c = h.again(t, protocol.Greeting{Identity: "a", Next: 4})
	c.next()
	c.hand()
	c.send(callLine(2, "steps"))
	want(t, c.next(), "2", "done")
}

// TestProxyTakesNumbers_AnswersAndProgressHaveThem checks that each answer ends with the number of the
// line that it is for, if the greeting asks for that, also one that was kept for a client that comes
// back, and the progress before it; and that other clients get lines as ever.
func TestProxyTakesNumbers_AnswersAndProgressHaveThem(t *testing.T) {
	h := start(t)
	c := h.open(t, protocol.Greeting{Identity: "a", Numbers: true}) // lines 1 and 2
	call := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"steps","_meta":{"progressToken":"p"}}}`
	ends := func(parts ...string) {
		t.Helper()
		line := c.next()
		for _, part := range parts {
			if !strings.Contains(line+"\n", part) {
				t.Fatalf("got %s, want %s", line, part)
			}
		}
	}
	c.send(call) // line 3
	for range 3 {
		ends(`"progressToken":"p"`, "} 3\n")
	}
	ends(`"id":5,`, "} 3\n")
	c.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`) // line 4
	ends(`"id":5,`, "} 4\n")
	c.send(callLine(5, "hold")) // line 5
	<-h.began
	c.send(callLine(5, "steps")) // line 6, of an id in flight
	ends(`"error"`, "} 6\n")
	c.send(`{}`) // line 7 has no id, and gets no answer
	c.conn.Close()
	h.detached(t)
	c = h.again(t, protocol.Greeting{Identity: "a", Numbers: true, Next: 8, Pending: []int64{3, 5}})
	ends(`"resumed":true`, "}\n")
	ends(`"id":5,`, "} 3\n")
	close(h.hold)
	ends("held", "} 5\n")
	c.conn.Close()
}
