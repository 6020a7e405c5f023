package question

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/process"
)

// TestReadStrange checks that other files in the directory of requests are ignored,
// that a named pipe there does not block the daemon, and that requests are read in the
// order of their numbers.
func TestReadStrange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w1")
	q := filepath.Join(dir, process.DirAsks)
	if err := os.MkdirAll(q, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"10.0": `{"jsonrpc":"2.0","id":3,"method":"ping"}`, "9.2": `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
		"9.1": `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "11.0": `{"jsonrpc":`,
		"words": `{"jsonrpc":"2.0","id":4,"method":"ping"}`,
	} {
		if err := os.WriteFile(filepath.Join(q, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(q, "12.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, k := range Read(dir, slog.New(slog.DiscardHandler)) {
		got.WriteString(string(k.Msg.ID) + " ")
	}
	if got.String() != "1 2 3 " {
		t.Errorf("the requests %q are read, want 1, 2 and 3", got.String())
	}
}
