package sandbox_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"holdline/daemon/sandbox/writetest"
)

// TestAttributesStayOpen checks that Landlock does not stop changes of a file's mode, times
// and extended attributes, as contrib/doc/security.md and the note of level read say. If it fails on a
// newer kernel, change those texts and [sandbox.Confine].
func TestAttributesStayOpen(t *testing.T) {
	needLandlock(t)
	dir := t.TempDir()
	own, elsewhere, file := filepath.Join(dir, "own"), filepath.Join(dir, "elsewhere"), filepath.Join(dir, "file")
	for _, d := range []string{own, elsewhere} {
		if err := writetest.Prepare(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], own, file, elsewhere)
	cmd.Env = append(os.Environ(), confined+"=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found map[string][]string
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mode", "times"} { // not every file system has extended attributes
		if could := found["attributes of "+elsewhere]; !slices.Contains(could, want) {
			t.Errorf("a confined process could change %q, not the %s: say so no more", could, want)
		}
	}
	if could := found[elsewhere]; len(could) > 0 {
		t.Errorf("and it could %q", could)
	}
}
