package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAskItselfHangs: a daemon whose listener does not accept, or is gone, has
// nothing to prove that it is well.
func TestAskItselfHangs(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l := &life{place: &place{path: filepath.Join(dir, "sock")}}
	if status, err := l.askItself(t.Context()); err == nil {
		t.Errorf("without a listener: %q", status)
	}
	ln, err := net.Listen("unix", l.place.path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if status, err := l.askItself(ctx); err == nil {
		t.Errorf("nobody accepts: %q", status)
	}
}
