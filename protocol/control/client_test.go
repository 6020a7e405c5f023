package control

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"holdline/protocol"
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
