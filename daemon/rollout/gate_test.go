package rollout

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestGate checks that a connection made while the gate is shut waits, and is served
// afterwards.
func TestGate(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	g := NewGate(ln)
	accepted := make(chan error)
	go func() {
		for {
			conn, err := g.AcceptUnix()
			if err == nil {
				conn.Close()
			}
			accepted <- err
			if err != nil {
				return
			}
		}
	}()
	dial := func() {
		t.Helper()
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	want := func(what string) error {
		t.Helper()
		select {
		case err := <-accepted:
			return err
		case <-time.After(15 * time.Second):
			t.Fatalf("waited for %s", what)
		}
		return nil
	}
	for range 3 {
		dial()
		if err := want("a connection"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.Shut(), g.Shut()); err != nil {
			t.Fatal(err)
		}
		dial()
		select {
		case err := <-accepted:
			t.Fatalf("accepted through a shut gate: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
		if err := g.Open(); err != nil {
			t.Fatal(err)
		}
		if err := want("the one that waited"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(g.Shut(), g.Close()); err != nil {
		t.Fatal(err)
	}
	if err := want("the end"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("AcceptUnix = %v after Close, want net.ErrClosed", err)
	}
}
