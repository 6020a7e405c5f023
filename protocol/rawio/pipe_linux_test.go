//go:build amd64 || arm64

package rawio

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendFile_Pipe checks that a pipe takes a long part of a file at once, though nobody reads,
// and has its usual size again once that is read and something short was written.
func TestSendFile_Pipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	size := func() (n int) {
		raw, err := w.SyscallConn()
		if err == nil {
			_ = raw.Control(func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) })
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	usual, s := size(), New(w)
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, maxPipe); err != nil || unix.SetNonblock(int(w.Fd()), true) != nil {
		t.Skip("the user's pipes may not be larger:", err)
	}
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, usual); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<15)
	path := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	from, n := int64(16), int64(len(text)-32)
	if sent, err := s.SendFile(f, from, n); sent != n || err != nil {
		t.Fatalf("%d of %d bytes, %v", sent, n, err)
	}
	if _, err := s.Write([]byte("!")); err != nil { // while too much is in the pipe
		t.Fatal(err)
	}
	if now := size(); now != maxPipe {
		t.Errorf("the pipe has %d bytes", now)
	}
	got := make([]byte, n+1)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != string(text[from:from+n])+"!" {
		t.Fatalf("%v, or other bytes", err)
	}
	if _, err := s.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	if now := size(); now != usual {
		t.Errorf("the pipe has %d bytes, %d usually", now, usual)
	}
}
