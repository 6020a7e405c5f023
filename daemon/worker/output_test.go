package worker

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"holdline/daemon/worker/gate"
	"holdline/protocol/process"
)

func limits(retain, line, ring int) process.Limits {
	return process.Limits{Retain: retain, Line: line, Stderr: ring}
}

// told returns what a reader gets that was sent nothing yet.
func told(o *output) string {
	var b strings.Builder
	want := int64(0)
	for i := range o.entries {
		e := &o.entries[i]
		if i > 0 && e.first != want {
			fmt.Fprintf(&b, "(gap %d-%d)", want, e.first)
		}
		want = e.seq + 1
		if e.dropped > 0 {
			fmt.Fprintf(&b, "[-%d]", e.dropped)
		}
		b.Write(e.data)
		o.seen = e.seq
	}
	return b.String()
}

// TestUntoldOutputGrowsTogether checks that output that was not sent yet is joined into one
// entry, and that a sent entry does not grow.
func TestUntoldOutputGrowsTogether(t *testing.T) {
	o := newOutput(limits(1<<20, 1<<20, 1<<10))
	for range 1000 {
		o.addStdout([]byte("a"))
		o.addStderr([]byte("b"))
	}
	if len(o.entries) != 2 || o.next != 3 {
		t.Errorf("%d entries, next %d, want 2 and 3", len(o.entries), o.next)
	}
	o.seen = 1
	o.addStdout([]byte("new"))
	if len(o.entries) != 3 || o.next != 4 {
		t.Errorf("told output has grown: %d entries, next %d", len(o.entries), o.next)
	}
}

// TestStderrRing checks that old stderr is dropped, with a count in its place.
func TestStderrRing(t *testing.T) {
	o := newOutput(limits(1<<20, 1<<20, 10))
	for i := range 9 {
		o.addStderr(fmt.Appendf(nil, "%d%d%d", i, i, i))
		o.seen = o.next - 1 // so that each becomes an entry of its own
		if i == 4 {
			o.addStdout([]byte("OUT"))
			o.seen = o.next - 1
		}
	}
	if got, want := told(o), "[-15]OUT[-3]666777888"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if o.errBytes != 9 || o.errCount != 3 {
		t.Errorf("kept %d in %d", o.errBytes, o.errCount)
	}
	o.ack(o.next-1, func(*entry) {})
	if len(o.entries) != 0 || o.errBytes != 0 || o.errCount != 0 || o.in.Bytes != 0 || o.in.Count != 0 {
		t.Errorf("after the ack of all: %+v", o)
	}
}

// TestDropKeepsToldApart checks that dropped bytes that were sent to the reader are counted
// apart from those that were not.
func TestDropKeepsToldApart(t *testing.T) {
	o := newOutput(limits(1<<20, 1<<20, 4))
	o.addStderr([]byte("told"))
	o.seen = 1
	o.addStderr([]byte("untd")) // drops the entry that was sent
	o.addStderr([]byte("kept")) // joins the entry that was not sent, which is dropped with it
	if len(o.entries) != 2 || o.entries[0].dropped != 4 || o.entries[1].dropped != 8 {
		t.Errorf("entries %+v", o.entries)
	}
}

// TestGateStopsBetweenLines checks that output over the limit stops the reader at the end
// of a line, or of one that is too long.
func TestGateStopsBetweenLines(t *testing.T) {
	o := newOutput(limits(100, 1000, 10))
	add := func(s string, open bool) {
		t.Helper()
		o.addStdout([]byte(s))
		o.seen = o.next - 1
		if o.in.IsOpen() != open {
			t.Errorf("after %d bytes (line of %d): open = %v, want %v", o.in.Bytes, o.in.LineLen, !open, open)
		}
	}
	add(strings.Repeat("a", 90)+"\n", true)
	add(strings.Repeat("b", 50), true) // over the limit, in the middle of a line
	add(strings.Repeat("b", 500), true)
	add("b\nnext", false) // the line is complete; the next one waits
	o.ack(3, func(*entry) {})
	if !o.in.IsOpen() || o.in.Bytes != 6 {
		t.Errorf("after the ack: open %v, %d bytes", o.in.IsOpen(), o.in.Bytes)
	}
	add(strings.Repeat("c", 999), false) // longer than any line may be
	o.ack(o.next-1, func(*entry) {})
	add("c", true)
}

// TestGateCountsEntries checks that the number of entries has a limit, too.
func TestGateCountsEntries(t *testing.T) {
	o := newOutput(limits(1<<30, 1<<30, 10))
	n := 0
	for o.in.IsOpen() {
		o.addStdout([]byte("x\n"))
		o.seen = o.next - 1
		n++
	}
	if n != gate.MaxEntries {
		t.Errorf("%d entries, want %d", n, gate.MaxEntries)
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("aAb\nB!c\nA?"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		o := newOutput(limits(8, 32, 8))
		var wrote, acked, errs int
		for _, op := range ops {
			switch {
			case op == '!':
				o.seen = o.next - 1
			case op == '?':
				o.ack(o.seen, func(e *entry) {
					if e.kind == stdout {
						acked += e.size
					}
				})
			case op >= 'A' && op <= 'Z':
				o.addStderr(bytes.Repeat([]byte("e"), int(op-'A')+1))
				errs += int(op-'A') + 1
			default:
				o.addStdout([]byte{op})
				wrote++
			}
		}
		kept, keptErr, dropped, want := 0, 0, 0, int64(0)
		for i := range o.entries {
			e := &o.entries[i]
			if i > 0 && e.first != want {
				t.Fatalf("gap: %d, want %d", e.first, want)
			}
			want = e.seq + 1
			if e.kind == stdout {
				kept += e.size
			} else {
				keptErr += e.size
				dropped += int(e.dropped)
			}
		}
		if kept+acked != wrote || kept != o.in.Bytes || keptErr != o.errBytes || keptErr > 8 || keptErr+dropped > errs {
			t.Fatalf("stdout: %d kept (%d counted), %d acked, %d written; stderr: %d kept (%d counted), %d dropped of %d",
				kept, o.in.Bytes, acked, wrote, keptErr, o.errBytes, dropped, errs)
		}
	})
}
