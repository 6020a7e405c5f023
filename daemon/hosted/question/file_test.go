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

// TestRequestFileMissing_RequestIsLost removes files of requests, one of them or all with their directory: each is
// known to be lost. One that was removed since it had its answer is not; nor is any without the index, which
// is on the safe side of another loss.
func TestRequestFileMissing_RequestIsLost(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, c := range map[string]struct {
		damage     func(dir string) error
		kept, lost int
	}{
		"whole":        {func(string) error { return nil }, 2, 0},
		"one missing":  {func(dir string) error { return os.Remove(filepath.Join(dir, process.DirAsks, "9.1")) }, 1, 1},
		"all missing":  {func(dir string) error { return os.RemoveAll(filepath.Join(dir, process.DirAsks)) }, 0, 2},
		"no index":     {func(dir string) error { return os.Remove(filepath.Join(dir, process.FileAsks)) }, 2, 0},
		"a torn index": {func(dir string) error { return os.Truncate(filepath.Join(dir, process.FileAsks), 9) }, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			dir := filepath.Join(t.TempDir(), "w1")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"9.1", "10.0", "11.0", "11.0"} { // the last one is written again
				if err := Write(dir, file, []byte(request), Shown{}); err != nil {
					t.Fatal(err)
				}
			}
			Remove(dir, []string{"11.0"}, log)
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			kept, lost, err := Read(dir, false, log)
			if err != nil || len(kept) != c.kept || len(lost) != c.lost {
				t.Errorf("kept %d, lost %v, %v, want %d and %d", len(kept), lost, err, c.kept, c.lost)
			}
			for id, why := range lost {
				if !strings.Contains(why.Error(), filepath.Join(dir, process.DirAsks, FileName(id))) {
					t.Errorf("%s is lost by %v", id, why)
				}
			}
			Remove(dir, []string{"9.1", "10.0"}, log)
			if kept, lost, err := Read(dir, false, log); err != nil || len(kept)+len(lost) != 0 {
				t.Errorf("once all are removed: %v, %v, %v", kept, lost, err)
			}
		})
	}
}
