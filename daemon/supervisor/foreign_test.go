package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/supervisor"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// TestForeignWorker attaches to a worker whose version this program does not know: first to
// a living one, then to one that has exited in order. Both are Lost.
func TestForeignWorker(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	w := h.start(first, shell("foreign", stubborn))
	follow(t, w, true, lines(1))
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := w.Spec()
	spec.Version, spec.Program = process.Version+1, "9.9.9"
	spec.Sum++ // it also covers what the other version has more
	for _, path := range []string{filepath.Join(w.Dir(), process.FileSpec), process.RegisterFile(w.Dir())} {
		if err := os.WriteFile(path, jsonrpc.Encode(spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"alive", "dead"} {
		w, err := h.daemon().Attach(t.Context(), h.path("foreign"))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		got := follow(t, w, true, nil)
		if got.last.Kind != supervisor.Lost || !strings.Contains(got.last.Fault.Fault.Detail, "is of a newer program") {
			t.Errorf("%s: last event %+v, want it lost for its version", when, got.last)
		}
		if left := h.carriers("foreign"); len(left) > 0 {
			t.Errorf("%s: left: %v", when, left)
		}
		wait(t, "the end", w.Done())
		// The state of such a worker is not read, even if it says that all went well.
		state := `{"version":4,"phase":"exited","exit":{"exitCode":0},"last_write":7,"next_seq":9}`
		if err := os.WriteFile(filepath.Join(w.Dir(), process.FileState), []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServerDirs checks that the socket directory of a consult does not count as a server's
// directory.
func TestServerDirs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	if dirs, err := s.ServerDirs(); err != nil || len(dirs) > 0 {
		t.Errorf("ServerDirs of nothing = %v, %v", dirs, err)
	}
	for _, dir := range []string{"w/server", "w/c0ffee", "consults/c0ffee", "w/.no"} {
		if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if dirs, err := s.ServerDirs(); err != nil || len(dirs) != 1 || filepath.Base(dirs[0]) != "server" {
		t.Errorf("ServerDirs = %v, %v", dirs, err)
	}
}
