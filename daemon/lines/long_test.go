package lines

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol"
)

// inFile writes the file of a worker that has a whole long line, and returns its span behind
// the first bytes that were sent.
func inFile(t *testing.T, dir, name, line string, sent int) protocol.Span {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return protocol.Span{File: name, Offset: int64(sent), Size: int64(len(line) - sent)}
}

// TestLineInFile checks that a line whose end is in a file is read there as a whole, and that it
// can be kept. What has no end in the file, or was not read from its beginning, is read into
// memory.
func TestLineInFile(t *testing.T) {
	dir := t.TempDir()
	r := newReader(dir)
	r.Split(Piece{Seq: 1, Data: []byte("a\nbeg")})
	r.Split(Piece{Seq: 2, Span: inFile(t, dir, "long.1", "begin and end\r\n", 3)})
	r.check(t, "a", "begin and end")
	r.checkAckable(t, 2, 3, 2)
	r.Split(Piece{Seq: 3, Data: []byte("x")})
	r.Split(Piece{Seq: 4, Span: inFile(t, dir, "long.2", "xyz", 1)})
	r.check(t)
	r.checkAckable(t, 4, 5, 2)
	r.Split(Piece{Seq: 5, Data: []byte("!\n")})
	r.check(t, "xyz!")
	r.MarkTorn()
	r.Split(Piece{Seq: 6, Span: inFile(t, dir, "long.3", "not its beginning\n", 4)})
	r.check(t, "torn its beginning")
}

// TestLineInLostFile checks that output in a file that is gone counts as dropped.
func TestLineInLostFile(t *testing.T) {
	r := newReader(t.TempDir())
	r.Split(Piece{Seq: 1, Data: []byte("beg")})
	r.Split(Piece{Seq: 2, Span: protocol.Span{File: "long.1", Offset: 3, Size: 5}})
	r.Split(Piece{Seq: 3, Data: []byte("rest\nnext\n")})
	r.check(t, "torn rest", "next")
}

// TestKeep checks that a kept line stays when the worker removes its file, and that only a line
// in a file can be kept.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	var found []string
	s := New(dir, testEnds, slog.New(slog.DiscardHandler), func(l *Line) {
		if err := l.Keep(kept); (err == nil) != l.InFile() {
			t.Errorf("%s: %v", l.Text, err)
		}
		found = append(found, string(l.Text))
	})
	s.Split(Piece{Seq: 1, Data: []byte("short\nlo")})
	s.Split(Piece{Seq: 2, Span: inFile(t, dir, "long.1", "long\n", 2)})
	if err := os.Remove(filepath.Join(dir, "long.1")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); string(b) != "long\n" || strings.Join(found, " ") != "short long" {
		t.Errorf("found %q, kept %q, %v", found, b, err)
	}
}

// TestBeginInFile checks that a line that begins with a piece in a file begins there.
func TestBeginInFile(t *testing.T) {
	dir := t.TempDir()
	var begin []int64
	var s *Splitter
	s = New(dir, testEnds, slog.New(slog.DiscardHandler), func(*Line) { begin = append(begin, s.Begin()) })
	s.Split(Piece{Seq: 1, Data: []byte("a\n")})
	s.Split(Piece{Seq: 2, Span: inFile(t, dir, "long.1", "in a file\n", 0)})
	s.Split(Piece{Seq: 3, Data: []byte("b")})
	s.Split(Piece{Seq: 4, Span: inFile(t, dir, "long.2", "begun before\n", 1)})
	if want := []int64{1, 2, 3}; !slices.Equal(begin, want) {
		t.Errorf("the lines begin in %v, want %v", begin, want)
	}
}
