package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"holdline/protocol/rawio"
)

// TestAnswerMakesRoom checks that an answer wakes the reader of the client, which waits while
// the store is full of requests.
func TestAnswerMakesRoom(t *testing.T) {
	p := &proxy{
		store: newStore(memory, func() time.Duration { return 1 }),
		out:   &output{w: io.Discard, failed: make(chan struct{})},
		work:  make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
	p.store.addLine([]byte(`{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n"))
	p.store.flushed(p.store.takeNext(maxJoined))
	for n := range int64(maxKept - 1) {
		p.store.kept[-n] = &entry{}
	}
	if !p.store.full(true) {
		t.Fatal("the store has room")
	}
	b := &batch{p: p, acks: &acks{wake: p.work}}
	p.receive(t.Context(), 0, []byte(`{"jsonrpc":"2.0","id":7,"result":{}}`), b)
	b.flush()
	if p.store.full(true) || len(p.space) == 0 {
		t.Errorf("full: %v, %d tokens for the reader", p.store.full(true), len(p.space))
	}
}

// TestForwardMakesRoom checks that the reader of the client does not wait for room that it has
// made itself.
func TestForwardMakesRoom(t *testing.T) {
	p := &proxy{
		store: newStore(memory, func() time.Duration { return 1 }),
		work:  make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := &link{out: rawio.New(conn), turn: make(chan struct{}, 1)}
	l.giveTurn()
	p.link.Store(l)
	p.store.addLine([]byte(`{"jsonrpc":"2.0","method":"n"}` + "\n"))
	if p.forward(); p.store.queued > 0 || len(p.space) == 0 {
		t.Errorf("%d bytes are queued, %d tokens for the reader", p.store.queued, len(p.space))
	}
}
