package supervisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/supervisor/finding"
	"holdline/protocol/process"
)

// TestLook checks which facts are found during the life of a worker: Alive, Spec, sTate, Handshake.
func TestLook(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := filepath.Join(h.dir, "w", "look")
	if _, err := finding.Look(dir); err == nil {
		t.Error("Look at nothing finds something")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	look := func(want string) {
		t.Helper()
		got, err := finding.Look(dir)
		has := func(letter string) bool { return strings.Contains(want, letter) }
		if err != nil || got != (finding.Facts{Alive: has("A"), Spec: has("S"), State: has("T"), Server: has("H")}) {
			t.Errorf("Look = %+v, %v, want %q", got, err, want)
		}
	}
	look("")
	s := h.daemon()
	w := h.start(s, shell("look", "read a"))
	look("AST")
	if err := os.WriteFile(filepath.Join(dir, process.FileServer), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("ASTH")
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
	follow(t, w, true, nil)
	wait(t, "the end", w.Done())
	look("STH")
}
