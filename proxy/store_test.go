package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdline/protocol/jsonrpc"
)

// send adds a copy of line to the store, and has it handed to a connection whole.
func send(tb testing.TB, s *store, line string) {
	tb.Helper()
	s.addCopy([]byte(line))
	e := s.takeNext(1 << 20)
	if e == nil || string(e.line) != line+"\n" {
		tb.Fatalf("the store sends %+v, want %s", e, line)
	}
	s.flushed(e)
}

// answered has the store take the answer to the request with that id.
func answered(tb testing.TB, s *store, id int) {
	tb.Helper()
	if !s.answer(0, jsonrpc.IntID(int64(id)), false) {
		tb.Fatalf("no answer to %d is wanted", id)
	}
	s.copied(1)
}

// storeCall is a tool call with an id of its own.
func storeCall(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t%d"}}`, id, id)
}

// newTestStore returns a store of limit bytes with a clock that stands still.
func newTestStore(limit int) *store {
	return newStore(limit, func() time.Duration { return time.Second })
}

// TestSpareLines checks that a line uses the memory of lines that were answered, in whatever order
// they were, and that not too much of that is kept.
func TestSpareLines(t *testing.T) {
	s := newTestStore(memory)
	for _, pad := range []int{0, 3 << 10} {
		call := func(id int) string { return storeCall(id) + strings.Repeat(" ", pad) }
		for id := range 100 {
			send(t, s, call(id))
		}
		for id := range 100 {
			answered(t, s, id*37%100)
		}
		kept := 0
		for _, e := range s.spare {
			kept += cap(e.line) + entryCost
		}
		if kept == 0 || kept != s.spared || kept > maxSpare {
			t.Errorf("%d bytes are kept, %d counted", kept, s.spared)
		}
		if n := testing.AllocsPerRun(100, func() {
			send(t, s, call(7))
			answered(t, s, 7)
		}); pad == 0 && n > 7 { // most of them are of this test
			t.Errorf("a call takes %v allocations", n)
		}
	}
	if s.held != 0 || len(s.kept) > 0 {
		t.Errorf("%d bytes and %d lines are held", s.held, len(s.kept))
	}
}

// TestSharedLines checks that what a resume repeats, and what is answered with a fault, stays as it
// is when the store takes other lines meanwhile.
func TestSharedLines(t *testing.T) {
	s := newTestStore(memory)
	for id := range 4 {
		send(t, s, storeCall(id))
	}
	_, _, replays := s.recall()
	for id := range 4 {
		answered(t, s, id)
	}
	send(t, s, storeCall(8))
	send(t, s, storeCall(9))
	failed := s.unanswered()
	for id := 10; id < 20; id++ {
		send(t, s, storeCall(id))
	}
	for id, r := range replays {
		if string(r.line) != storeCall(id)+"\n" {
			t.Errorf("line %d is repeated as %s", id, r.line)
		}
	}
	for i, e := range failed {
		if id := 8 + i; string(e.id) != fmt.Sprint(id) || e.op != fmt.Sprint("tools/call:t", id) {
			t.Errorf("request %d is answered as %s with id %s", id, e.op, e.id)
		}
	}
	if len(replays) != 4 || len(failed) != 2 {
		t.Errorf("%d lines are repeated, %d requests have failed", len(replays), len(failed))
	}
}

// TestFreedLine checks that a request whose line was freed, since too much is held, is still
// answered with a fault that names it.
func TestFreedLine(t *testing.T) {
	s := newTestStore(1)
	const modern = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` +
		`{"name":"t1","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	send(t, s, modern)
	for _, e := range s.unanswered() {
		if e.line != nil || e.op != "tools/call:t1" || !e.modern || !e.call {
			t.Errorf("%+v", e)
		}
	}
}

// TestQueueOrder checks that lines are sent in order, whatever is taken back, and that the queue
// does not grow although it is never empty.
func TestQueueOrder(t *testing.T) {
	s := newTestStore(memory)
	s.addCopy([]byte(storeCall(0)))
	for id := range 10_000 {
		s.addCopy([]byte(storeCall(id + 1)))
		s.addCopy([]byte(`{"jsonrpc":"2.0","method":"n"}`))
		for i := range 2 {
			e := s.takeNext(1 << 20)
			if id%3 == i {
				s.takeBack(e)
				e = s.takeNext(1 << 20)
			}
			if want := int64(2*id + i + 1); e.n != want || s.nextLocked() != want+1 {
				t.Fatalf("line %d is sent, then %d, want %d", e.n, s.nextLocked(), want)
			}
			s.flushed(e)
			if e.call {
				s.answer(0, e.id, false)
				s.copied(1)
			}
		}
	}
	if cap(s.queue) > 100 {
		t.Errorf("the queue has room for %d lines", cap(s.queue))
	}
}
