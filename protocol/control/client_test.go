package control

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// TestRefusedUngreeted checks that a refusal for lack of room is read, even if the daemon
// has hung up before the greeting is sent.
func TestRefusedUngreeted(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	full := &protocol.Refusal{Code: protocol.RefusedLimit, Message: "no room"}
	if _, err := daemon.Write(protocol.Append(nil,
		protocol.Welcome{Holdline: protocol.Version, Error: full})); err != nil {
		t.Fatal(err)
	}
	daemon.Close()
	_, err = NewClient(t.Context(), conn, "1")
	if r, ok := errors.AsType[*protocol.Refusal](err); !ok || *r != *full {
		t.Errorf("NewClient = %v, want what the daemon said", err)
	}
}

// TestInterruptedGreeting checks that the end of the context is the error of a client whose
// daemon does not answer: an interrupt must not look like a daemon that hangs.
func TestInterruptedGreeting(t *testing.T) {
	ours, daemon := net.Pipe()
	defer daemon.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = jsonrpc.NewLines(daemon, protocol.MaxGreeting).Next()
		cancel() // the greeting was read, and no welcome follows
	}()
	if _, err := NewClient(ctx, ours, "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("NewClient = %v, want that it was cancelled", err)
	}
	if _, err := ours.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write after that = %v, want a closed connection", err)
	}
}
