package runner

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
)

// TestModelReadsAPipe_ItEndsAtOnce checks that who reads a named pipe, also by a link, finds it empty as
// long as the turn lasts, and that no file is touched.
func TestModelReadsAPipe_ItEndsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	var p pipes
	for _, path := range []string{"", file, dir, filepath.Join(dir, "none"), link, link} {
		p.note(&engine.Event{Kind: engine.ToolUse, Path: path, Turn: 1})
	}
	if len(p.paths) != 1 {
		t.Fatalf("pipes %q", p.paths)
	}
	read := make(chan string, 1)
	go func() {
		f, err := os.Open(link)
		if err != nil {
			read <- err.Error()
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		read <- "read " + string(b)
	}()
	for begin := time.Now(); ; {
		p.end()
		select {
		case got := <-read:
			if got != "read " {
				t.Error(got)
			}
		case <-time.After(time.Millisecond):
			if time.Since(begin) > time.Minute {
				t.Fatal("the reader waits on")
			}
			continue
		}
		break
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	p.note(&engine.Event{Kind: engine.Text, Turn: 2})
	if len(p.paths) != 0 {
		t.Errorf("in the next turn: %q", p.paths)
	}
}
