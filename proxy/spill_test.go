package proxy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol"
	"holdline/protocol/bulk"
	"holdline/protocol/socket"
)

// TestSharesFiles checks that a proxy makes files only in a directory that is the daemon's by
// the id in it.
func TestSharesFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, socket.StoreFile), []byte("ABC"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		dir, store string
		want       bool
	}{{dir, "ABC", true}, {dir, "AB", false}, {dir, "", false}, {t.TempDir(), "ABC", false}, {"", "ABC", false}} {
		if got := sharesFiles(x.dir, &protocol.Welcome{Store: x.store}); got != x.want {
			t.Errorf("in %q with %q: %v", x.dir, x.store, got)
		}
	}
}

// TestLineOf checks that a daemon elsewhere gets the bytes of a line that lies in a file.
func TestLineOf(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("whole"); err != nil {
		t.Fatal(err)
	}
	s := spill{f, filepath.Dir(f.Name()), 0}
	for _, x := range []struct {
		link link
		want string
	}{
		{link{dir: s.dir, sharesFiles: true}, "name\n"},
		{link{dir: s.dir}, "whole\n"},
		{link{dir: "/elsewhere", sharesFiles: true}, "whole\n"},
	} {
		if got := string(x.link.lineOf([]byte("name\n"), s)); got != x.want {
			t.Errorf("a daemon in %s gets %q, want %q", x.link.dir, got, x.want)
		}
	}
	elsewhere := link{dir: "/elsewhere"}
	for sum, want := range map[uint32]string{
		bulk.Sum([]byte("whole")): "whole\n", bulk.Sum([]byte("whose")): "name\n", // which cannot be read there
	} {
		if got := string(elsewhere.lineOf([]byte("name\n"), spill{f, s.dir, sum})); got != want {
			t.Errorf("of a file with the checksum %d a daemon gets %q, want %q", sum, got, want)
		}
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	gone := link{dir: s.dir, sharesFiles: true}
	if got := string(gone.lineOf([]byte("name\n"), s)); got != "whole\n" {
		t.Errorf("of a file that was removed a daemon gets %q", got)
	}
	l := link{}
	if got := string(l.lineOf([]byte("line\n"), spill{})); got != "line\n" {
		t.Errorf("a line in memory: %q", got)
	}
}

// TestSpilledLine checks that a line in a file is named to the daemon, and that the file goes
// with the line.
func TestSpilledLine(t *testing.T) {
	dir := t.TempDir()
	p := &proxy{store: newStore(memory, func() time.Duration { return 1 })}
	f, err := os.Create(filepath.Join(dir, "line"))
	if err != nil {
		t.Fatal(err)
	}
	line := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":"` +
		strings.Repeat("x", 1<<20) + `"}}`
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
	p.addSpilled(t.Context(), f, len(line))
	e := p.store.takeNext(2 << 20)
	if e == nil || e.op != "tools/call:t" || !e.call || !e.pending || len(e.line) > 200 {
		t.Fatalf("the entry: %+v", e)
	}
	if c, err := protocol.ParseControl(e.line); err != nil || c.Long == nil || string(c.ID) != "7" || !c.Call ||
		c.Long.Span != (protocol.Span{File: "line", Size: int64(len(line)), Sum: bulk.Sum([]byte(line))}) {
		t.Errorf("the daemon gets %s, %v", e.line, err)
	}
	p.store.flushed(e)
	if p.store.removeFiles(false); p.store.held < len(line) {
		t.Errorf("%d bytes are held", p.store.held)
	}
	if _, err := os.Stat(f.Name()); err != nil {
		t.Errorf("while it is pending: %v", err)
	}
	p.store.answer(0, []byte("7"), false)
	p.store.removeFiles(false)
	if _, err := os.Stat(f.Name()); !os.IsNotExist(err) || p.store.held != 0 {
		t.Errorf("once it is answered: %v, %d bytes are held", err, p.store.held)
	}
}

// TestSpilledNothing checks that an empty line in a file, which the daemon would not count,
// gets no number.
func TestSpilledNothing(t *testing.T) {
	var out strings.Builder
	p := &proxy{
		log: slog.New(slog.DiscardHandler), store: newStore(memory, func() time.Duration { return 1 }),
		out: &output{w: &out, failed: make(chan struct{})},
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "line"))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("\r", 1<<20)
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
	p.addSpilled(t.Context(), f, len(line))
	if p.store.last != 0 || out.String() != "" {
		t.Errorf("it has number %d, the client gets %q", p.store.last, out.String())
	}
}
