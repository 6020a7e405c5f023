package place

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAskSelfHangs checks that a daemon whose listener is closed, or does not accept, gets
// no status of itself.
func TestAskSelfHangs(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p := &Place{socket: filepath.Join(dir, "sock")}
	if status, err := p.AskSelf(t.Context(), "v"); err == nil {
		t.Errorf("without a listener: %q", status)
	}
	ln, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if status, err := p.AskSelf(ctx, "v"); err == nil {
		t.Errorf("nobody accepts: %q", status)
	}
}
