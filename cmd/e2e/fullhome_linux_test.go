package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/control"
)

// TestHomeFull fills the file system of the state directory. Servers cannot be started
// then. The calls say which file system is full, no failure counts against the server, and
// once there is room the next call is answered without any command.
func TestHomeFull(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	state := filepath.Join(p.dir, "home/.local/state/holdline")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=1m,mode=0700"); errors.Is(err, syscall.EPERM) {
		t.Skip("no right to mount a file system")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(state, syscall.MNT_DETACH) })
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "shared", "lazy": true, "max_restarts": 2, "circuit_threshold": 2,
	})})
	p.daemon()
	a := p.agent("--no-autostart").shake()
	a.wait(a.effect("before", 0))
	kill := func() {
		s := p.until("the server", func(s control.StatusAnswer) bool { return child(s, "tools") > 0 })
		kill9(t, child(s, "tools"))
		p.until("its end", func(s control.StatusAnswer) bool { return child(s, "tools") == 0 })
	}
	filler := filepath.Join(state, "filler")
	if err := fillDisk(filler); err != nil {
		t.Fatal(err)
	}
	kill()
	for i := range 6 {
		x := a.wait(a.effect(fmt.Sprint("full", i), 0))
		if x.code() != "resource_exhausted" || !strings.Contains(x.text(), state) ||
			!strings.Contains(x.text(), "free some space") {
			t.Errorf("call %d: %s", i, x.raw)
		}
	}
	if s := p.server("tools"); s.State == "ejected" || s.Circuit != "closed" {
		t.Errorf("the server is held responsible: %+v", s)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "an answer once there is room", func() bool {
		x := a.wait(a.effect("after", 0))
		return x.Error == nil && !x.Result.IsError
	})
	if s := p.server("tools"); s.LastFault != nil && s.LastFault.Fault.Code == "resource_exhausted" {
		t.Errorf("what has passed is still told: %+v", s.LastFault)
	}
	a.rest()
}

// fillDisk writes a file until its file system is full.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for b := make([]byte, size); err == nil; {
			_, err = f.Write(b)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}
