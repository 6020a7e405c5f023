package background

import (
	"log/slog"
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
)

// TestPushNeverBlocks checks that queuing a write never blocks, however full the queue is:
// the caller holds a lock that the writer needs. Answers to the server's requests have
// places of their own.
func TestPushNeverBlocks(t *testing.T) {
	q := NewQueue(slog.New(slog.DiscardHandler))
	for range 2 * most {
		q.Push(Write{Rec: calls.Record{Kind: calls.KindCancel}, Done: func(error) {}})
	}
	if n := len(q.writes); n != most-question.Max {
		t.Errorf("%d cancellations wait, want %d", n, most-question.Max)
	}
	for range 2 * question.Max {
		q.Push(Write{Rec: calls.Record{Kind: calls.KindRespond}})
	}
	if n := len(q.writes); n != most {
		t.Errorf("%d writes wait, want %d", n, most)
	}
}

// TestRunKeepsOrder checks that writes are made in order, that an empty queue holds no
// memory, and that none is made after the process has exited.
func TestRunKeepsOrder(t *testing.T) {
	q := NewQueue(slog.New(slog.DiscardHandler))
	exited := make(chan struct{})
	for i := range int64(101) {
		q.Push(Write{Rec: calls.Record{N: i}})
	}
	next := int64(0)
	q.Run(t.Context(), exited, func(w *Write) {
		if w.Rec.N != next {
			t.Errorf("write %d is that of %d", next, w.Rec.N)
		}
		if next++; next == 100 {
			close(exited)
		}
	})
	if next != 100 {
		t.Errorf("%d writes were made, want 100", next)
	}
	if _, ok := q.pop(); ok || cap(q.writes) > 0 {
		t.Errorf("room for %d writes is left", cap(q.writes))
	}
}
