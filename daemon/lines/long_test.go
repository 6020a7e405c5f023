package lines

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol"
	"holdline/protocol/bulk"
)

// inFile writes the file of a worker that has a whole long line, and returns the piece behind the
// first bytes that were sent.
func inFile(t *testing.T, dir string, seq int64, name, line string, sent int) Piece {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return Piece{
		Seq: seq, Span: protocol.Span{File: name, Offset: int64(sent), Size: int64(len(line) - sent)},
		Sum: bulk.Sum([]byte(line[sent:])),
	}
}

// TestLineInFile checks that a line whose end is in a file is read there as a whole, and that it
// can be kept. What has no end in the file, or was not read from its beginning, is read into
// memory.
func TestLineInFile(t *testing.T) {
	dir := t.TempDir()
	r := newReader(dir)
	r.Split(Piece{Seq: 1, Data: []byte("a\nbeg")})
	r.Split(inFile(t, dir, 2, "long.1", "begin and end\r\n", 3))
	r.check(t, "a", "begin and end")
	r.checkAckable(t, 2, 3, 2)
	r.Split(Piece{Seq: 3, Data: []byte("x")})
	r.Split(inFile(t, dir, 4, "long.2", "xyz", 1))
	r.check(t)
	r.checkAckable(t, 4, 5, 2)
	r.Split(Piece{Seq: 5, Data: []byte("!\n")})
	r.check(t, "xyz!")
	r.MarkTorn()
	r.Split(inFile(t, dir, 6, "long.3", "not its beginning\n", 4))
	r.check(t, "torn its beginning")
}

// TestLineInLostFile checks that a file which is gone, too short, damaged or another line's is
// reported with the beginning of its line, that the next line is read, and that the place can be kept.
func TestLineInLostFile(t *testing.T) {
	const line = "beginning and end\n"
	for name, damage := range map[string]func(path string) error{
		"gone":    os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 12) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"damaged": func(path string) error { return os.WriteFile(path, []byte("beginning and eNd\n"), 0o600) },
		"another": func(path string) error { return os.WriteFile(path, []byte("BEGINNING and end\n"), 0o600) },
	} {
		for _, sent := range []int{0, 9} {
			dir := t.TempDir()
			r := newReader(dir)
			r.Split(Piece{Seq: 1, Data: []byte("a\n" + line[:sent])})
			p := inFile(t, dir, 2, "long.1", line, sent)
			if err := damage(filepath.Join(dir, "long.1")); err != nil {
				t.Fatal(err)
			}
			r.Split(p)
			r.Split(Piece{Seq: 3, Data: []byte("next\n")})
			r.check(t, "a", "lost "+line[:min(sent, testEnds)], "torn next")
			if want := []int64{1 + int64(9-sent)/9}; !slices.Equal(r.begun, want) {
				t.Errorf("%s: the place is %d, want %d", name, r.begun, want)
			}
			r.checkAckable(t, 3, 4, 3)
		}
	}
}

// TestLineInFile_UnreadableOnce checks that a file which cannot be read for a moment is read then,
// and that no file is waited for once the splitter is to stop.
func TestLineInFile_UnreadableOnce(t *testing.T) {
	dir := t.TempDir()
	r := newReader(dir)
	n := 0
	read := func(most int, err error) func() error {
		return func() error {
			if n++; n <= most {
				return err
			}
			return nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for most, x := range map[int]struct {
			err error
			ok  bool
		}{1: {os.ErrNotExist, true}, 2: {os.ErrNotExist, false}, 9: {syscall.EMFILE, true}, 99: {syscall.EIO, false}} {
			n = 0
			begun := time.Now()
			if err := r.retry(read(most, x.err)); (err == nil) != x.ok || time.Since(begun) > 2*allWaits {
				t.Errorf("%d times %v: %v after %v", most, x.err, err, time.Since(begun))
			}
		}
		stop := make(chan struct{})
		close(stop)
		r.Stop = stop
		begun := time.Now()
		if err := r.retry(read(99, syscall.EIO)); err == nil || time.Since(begun) > 0 {
			t.Errorf("though it is to stop: %v after %v", err, time.Since(begun))
		}
	})
}

// TestLost checks that dropped output is reported once, with the beginning of the line that it cuts,
// and ends the line that is being skipped; and that the lost rest of a skipped line is not reported.
func TestLost(t *testing.T) {
	dir := t.TempDir()
	r := newReader(dir)
	r.Split(Piece{Seq: 1, Data: []byte("a\nbeginning")})
	r.Split(Piece{Seq: 2, Data: []byte("rest\nb\n"), Gap: true})
	r.check(t, "a", "lost many beginnin", "torn rest", "b")
	long := strings.TrimSuffix(stray, "<ends>!!")
	r.Split(Piece{Seq: 3, Data: []byte(long)})
	r.Split(Piece{Seq: 4, Data: []byte("c\n"), Gap: true})
	r.check(t, "skipping <begins>", "skipped <begins> xxxxxxxx", "lost many ", "torn c")
	r.Split(Piece{Seq: 5, Data: []byte(long)})
	r.Split(Piece{Seq: 6, Span: protocol.Span{File: "long.1", Offset: int64(len(long)), Size: 5}})
	r.Split(Piece{Seq: 7, Data: []byte("d\n")})
	r.check(t, "skipping <begins>", "skipped <begins> xxxxxxxx", "torn d")
	r.checkAckable(t, 7, math.MaxInt64, 7)
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
	s.Split(inFile(t, dir, 2, "long.1", "long\n", 2))
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
	s.Split(inFile(t, dir, 2, "long.1", "in a file\n", 0))
	s.Split(Piece{Seq: 3, Data: []byte("b")})
	s.Split(inFile(t, dir, 4, "long.2", "begun before\n", 1))
	if want := []int64{1, 2, 3}; !slices.Equal(begin, want) {
		t.Errorf("the lines begin in %v, want %v", begin, want)
	}
}
