package lines

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/process"
)

// testEnds is how many bytes at each end of a skipped line the tests keep.
const testEnds = 8

// reader notes in words what a splitter finds.
type reader struct {
	*Splitter
	found []string
	nth   []int
	begun []int64 // where the lines begin that are lost
}

// newReader returns a splitter for a worker's directory that notes what it finds.
func newReader(dir string) *reader {
	r := &reader{}
	r.Splitter = New(dir, testEnds, slog.New(slog.DiscardHandler), func(l *Line) {
		switch l.Event {
		case Whole:
			word := string(l.Text)
			if l.Torn {
				word = "torn " + word
			}
			r.found, r.nth = append(r.found, word), append(r.nth, l.Nth)
		case Lost:
			word := "lost "
			if l.Many {
				word = "lost many "
			}
			r.found = append(r.found, word+string(l.Head))
			r.begun = append(r.begun, r.Begin())
		case Skipping:
			r.found = append(r.found, fmt.Sprintf("skipping %s", l.Head))
		case Endless:
			r.found = append(r.found, "endless")
		case Skipped:
			r.found = append(r.found, fmt.Sprintf("skipped %s %s", l.Head, l.Tail))
		}
	})
	return r
}

// take returns what was found since the last call.
func (r *reader) take() []string {
	found := r.found
	r.found, r.nth = nil, nil
	return found
}

// check fails the test unless want was found since the last check.
func (r *reader) check(t *testing.T, want ...string) {
	t.Helper()
	if got := r.take(); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// checkAckable fails the test if the output up to last cannot be acknowledged up to
// want.
func (r *reader) checkAckable(t *testing.T, last, kept, want int64) {
	t.Helper()
	if seq, again := r.Ackable(last, kept); seq != want || again != 0 {
		t.Errorf("output up to %d can be acknowledged up to %d, again after %v; want %d", last, seq, again, want)
	}
}

// stray is a line over the limit, which is low because it does not begin as a message does.
var stray = "<begins>" + strings.Repeat("x", 2*maxStray) + "<ends>!!"

// TestSplitAnywhere checks that the same lines are found wherever the output is cut.
func TestSplitAnywhere(t *testing.T) {
	text := "{\"a\":1}\r\n\n{}\n" + stray + "\nlast\nrest"
	want := []string{`{"a":1}`, "", "{}", "skipping <begins>", "skipped <begins> <ends>!!", "last"}
	for size := 1; size < maxStray/2; size += size/8 + 1 {
		r := newReader(t.TempDir())
		seq := int64(0)
		for piece := range slices.Chunk([]byte(text), size) {
			seq++
			r.Split(Piece{Seq: seq, Data: piece})
		}
		if got := r.take(); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: found %.80q, want %q", size, got, want)
		}
		r.End(seq+1, false, func(text []byte) bool { return string(text) == "rest" })
		r.check(t, "rest")
	}
}

// TestLineInPieces checks that the piece in which a line begins is not acknowledged before
// the line has ended, and that lines that end in the same piece are numbered.
func TestLineInPieces(t *testing.T) {
	r := newReader(t.TempDir())
	r.Split(Piece{Seq: 5, Data: []byte("a\nb\nc")})
	if want := []int{0, 1}; !slices.Equal(r.nth, want) {
		t.Errorf("the lines end at %v of the piece, want %v", r.nth, want)
	}
	r.check(t, "a", "b")
	r.checkAckable(t, 5, math.MaxInt64, 4)
	r.Split(Piece{Seq: 6, Data: []byte("c")})
	r.checkAckable(t, 6, math.MaxInt64, 4)
	if begin := r.Begin(); begin != 5 {
		t.Errorf("the line begins in %d, want 5", begin)
	}
	r.Split(Piece{Seq: 7, Data: []byte("c\n")})
	r.check(t, "ccc")
	r.checkAckable(t, 7, math.MaxInt64, 7)
}

// TestTorn checks that only the line after a gap and the first line of an adopted worker
// count as torn, and that a line whose end was dropped is not joined with the next one.
func TestTorn(t *testing.T) {
	r := newReader(t.TempDir())
	r.MarkTorn()
	r.Split(Piece{Seq: 1, Data: []byte("a\nb\nc")})
	r.Split(Piece{Seq: 4, Data: []byte("d\ne\n"), Gap: true})
	r.check(t, "torn a", "b", "lost many c", "torn d", "e")
}

// TestOwnedText checks that only the text of a long line that came in pieces belongs to the
// reader; other text is part of a piece.
func TestOwnedText(t *testing.T) {
	var owned []bool
	s := New(t.TempDir(), testEnds, slog.New(slog.DiscardHandler), func(l *Line) { owned = append(owned, l.Owned) })
	long := []byte("{" + strings.Repeat("x", minOwned))
	s.Split(Piece{Seq: 1, Data: append(long, '\n')})
	s.Split(Piece{Seq: 2, Data: long})
	s.Split(Piece{Seq: 3, Data: []byte("}\n{")})
	s.Split(Piece{Seq: 4, Data: []byte("}\n")})
	if want := []bool{false, true, false}; !slices.Equal(owned, want) {
		t.Errorf("owned: %v, want %v", owned, want)
	}
}

// TestSkippedLineAcknowledged checks that the pieces of a skipped line are acknowledged
// before its end, once its record is written. The next daemon skips the rest of the line.
// The record is removed when no line before the skipped one is needed.
func TestSkippedLineAcknowledged(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, process.FileLongLine)
	r := newReader(dir)
	r.Split(Piece{Seq: 3, Data: []byte(stray)})
	r.check(t, "skipping <begins>")
	r.checkAckable(t, 3, math.MaxInt64, 2) // the line may end in this piece
	r.Split(Piece{Seq: 4, Data: []byte("12345678")})
	r.checkAckable(t, 4, math.MaxInt64, 3)

	// The next daemon reads from the first piece that is not acknowledged.
	next := newReader(dir)
	next.MarkTorn()
	next.Resume(3)
	next.Split(Piece{Seq: 4, Data: []byte("12345678"), Old: true})
	next.checkAckable(t, 4, math.MaxInt64, 3)
	next.Split(Piece{Seq: 5, Data: []byte("9\n{}\n")})
	next.check(t, "skipped <begins> 23456789", "{}")
	if begin := next.Begin(); begin != 5 {
		t.Errorf("the next line begins in %d, want 5", begin)
	}
	next.checkAckable(t, 5, 3, 3) // output is needed from 3 on, so the record is, too
	if _, err := os.Stat(record); err != nil {
		t.Errorf("the record is gone while the line is needed: %v", err)
	}
	next.checkAckable(t, 5, 4, 5)
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("the record stays: %v", err)
	}

	// A daemon that reads the line from its beginning does not need the record.
	if err := os.WriteFile(record, []byte(`{"head":"","from":9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	again := newReader(dir)
	again.Resume(8)
	again.Split(Piece{Seq: 9, Data: []byte("{}\n")})
	again.check(t, "{}")
	again.checkAckable(t, 9, math.MaxInt64, 9)
}

// TestRecordFails checks that no piece of a skipped line is acknowledged if its record
// cannot be written, and that something else in the record's place is removed.
func TestRecordFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	r := newReader(dir)
	r.Split(Piece{Seq: 1, Data: []byte("{}\n" + stray)})
	r.Split(Piece{Seq: 2, Data: []byte(stray)})
	r.Split(Piece{Seq: 3, Data: []byte(stray)})
	if seq, again := r.Ackable(3, math.MaxInt64); again == 0 {
		t.Errorf("without a record output can be acknowledged up to %d, and is not looked at again", seq)
	}
	record := filepath.Join(t.TempDir(), process.FileLongLine)
	if err := os.Mkdir(record, 0o700); err != nil {
		t.Fatal(err)
	}
	r = newReader(filepath.Dir(record))
	r.Resume(7)
	r.Split(Piece{Seq: 8, Data: []byte("{}\n")})
	r.check(t, "{}")
	r.checkAckable(t, 8, math.MaxInt64, 8)
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Errorf("what is no record stays: %v", err)
	}
}

// TestEndlessLine checks that a skipped line over MaxSkipped is reported as endless.
func TestEndlessLine(t *testing.T) {
	r := newReader(t.TempDir())
	piece := []byte(strings.Repeat("x", 8<<20))
	for seq := range int64(MaxSkipped / len(piece)) {
		r.Split(Piece{Seq: seq, Data: piece})
	}
	r.check(t, "skipping xxxxxxxx")
	r.Split(Piece{Seq: 1000, Data: piece})
	r.check(t, "endless")
}
