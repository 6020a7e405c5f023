package daemoncmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/console"
)

// TestDaemonLogBounded checks that the log of a long-running daemon has a limit, and that
// its standard streams write to the new file.
func TestDaemonLogBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	stderr, stdout := open(), open()
	l, ok := logOf(path, stderr, stdout).(*boundedLog)
	if !ok {
		t.Fatal("the file is not bounded")
	}
	l.max = 1000
	for i := range 100 {
		if _, err := fmt.Fprintf(l, "line %d of the log of a daemon\n", i); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(stderr, "words of a crash")
	fmt.Fprintln(stdout, "other words")
	now, err := os.ReadFile(path)
	if err != nil ||
		!strings.HasSuffix(string(now), "line 99 of the log of a daemon\nwords of a crash\nother words\n") ||
		len(now) > 1100 {
		t.Errorf("the log: %v, %q", err, now)
	}
	before, err := os.ReadFile(path + ".1")
	if err != nil || len(before) > 1000 || len(before) < 900 {
		t.Errorf("the one before has %d bytes, %v", len(before), err)
	}
	all := string(before) + string(now)
	if first := strings.Index(all, "line "); strings.Count(all[first:], "line ") < 30 {
		t.Errorf("lines are lost: %q", all)
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v", files, err)
	}
}

// TestDaemonLogOther checks that any other standard error is used as it is.
func TestDaemonLogOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "daemon.log")
	other, err := os.Create(filepath.Join(dir, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, stderr := range map[string]io.Writer{"a file of the user's": other, "no file": &bytes.Buffer{}} {
		for range 2 { // without a log, and with one
			if got := logOf(path, stderr, other); got != stderr {
				t.Errorf("%s is bounded", name)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLogsFollowRotation checks that following the log misses no line of a file that was
// rotated.
func TestLogsFollowRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	go func() { w.CloseWithError(console.Tail(ctx, w, path, 10, time.Time{}, true)) }()
	want := func(text string) {
		t.Helper()
		b := make([]byte, len(text))
		if _, err := io.ReadFull(r, b); err != nil || string(b) != text {
			t.Fatalf("got %q, %v, want %q", b, err, text)
		}
	}
	want("one\n")
	write("two\n") // for the reader at the same moment as what follows
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("three\n")
	want("two\nthree\n")
	cancel()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
}
