package output

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/lines"
)

// A content is what a line is kept for, in a test.
type content struct{ settled, written bool }

func (c *content) NeedsLine() bool    { return !c.settled && !c.written }
func (c *content) BeginWriting() bool { return !c.written }

// TestKeep checks that output is acknowledged up to the first line that is kept, and that
// the content of a line is due when it has waited.
func TestKeep(t *testing.T) {
	kept := map[string]*content{"a": {}, "b": {}}
	var o Output
	o = New(lines.New(t.TempDir(), 16, slog.New(slog.DiscardHandler), func(l *lines.Line) {
		if c := kept[string(l.Text)]; c != nil {
			o.Keep(c)
		}
	}))
	o.Resume(3, 6)
	for i, data := range []string{"a\n", "other\n", "b\nrest"} {
		seq := int64(4 + i)
		if o.IsCaughtUp() != (seq > 5) {
			t.Errorf("caught up before output %d: %v", seq, o.IsCaughtUp())
		}
		o.Receive(seq)
		o.Split(lines.Piece{Seq: seq, Data: []byte(data)})
	}
	ackable := func(want int64) {
		t.Helper()
		if got, again := o.Ackable(); got != want || again != 0 {
			t.Errorf("output up to %d can be acknowledged, again after %v; want %d", got, again, want)
		}
	}
	ackable(3)
	if due, next := o.Settle(time.Now()); due != nil || next <= 0 || next > calls.SpoolAfter {
		t.Errorf("due %v, next after %v, before the time", due, next)
	}
	kept["a"].settled = true
	due, _ := o.Settle(time.Now().Add(2 * calls.SpoolAfter))
	if !slices.Equal(due, []Content{kept["b"]}) {
		t.Errorf("due %v, want b alone", due)
	}
	ackable(5)
	kept["b"].written = true
	if due, next := o.Settle(time.Now()); due != nil || next != time.Hour {
		t.Errorf("due %v, next after %v, when all is settled", due, next)
	}
	ackable(5) // the line that has not ended begins in 6
	o.Receive(7)
	o.Split(lines.Piece{Seq: 7, Data: []byte("\n")})
	ackable(7)
}
