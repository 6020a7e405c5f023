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

// TestReadStrange checks that other files in the directory of requests are ignored, and files of
// another worker, that a named pipe there does not block the daemon, and that requests are read in the
// order of their numbers.
func TestReadStrange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w1")
	q := filepath.Join(dir, process.DirAsks)
	if err := os.MkdirAll(q, 0o700); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "w2")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"10.0": `{"jsonrpc":"2.0","id":3,"method":"ping"}`, "9.2": `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
		"9.1": `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "words": `{"jsonrpc":"2.0","id":4,"method":"ping"}`,
	} {
		for _, worker := range []string{dir, other} {
			if err := Write(worker, name, []byte(text), Shown{Call: 7, N: 3}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Rename(filepath.Join(other, process.DirAsks, "9.1"), filepath.Join(q, "13.0")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"11.0": `{"worker":"w1","request":`, "14.0": ""} {
		if err := os.WriteFile(filepath.Join(q, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(q, "9.1")) // a request of the same worker in another one's place
	if err == nil {
		err = os.WriteFile(filepath.Join(q, "15.0"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(q, "12.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	kept, lost, err := Read(dir, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kept {
		got.WriteString(string(k.Msg.ID) + " ")
		if k.Shown != (Shown{Call: 7, N: 3}) {
			t.Errorf("the request was shown by %+v", k.Shown)
		}
	}
	for _, id := range []string{"w1:11.0", "w1:12.0", "w1:13.0", "w1:14.0", "w1:15.0"} {
		if lost[id] == nil || !strings.Contains(lost[id].Error(), filepath.Join(q, FileName(id))) {
			t.Errorf("%s is lost by %v", id, lost[id])
		}
	}
	if len(lost) != 5 {
		t.Errorf("lost are %v", lost)
	}
	if got.String() != "1 2 3 " {
		t.Errorf("the requests %q are read, want 1, 2 and 3", got.String())
	}
}
