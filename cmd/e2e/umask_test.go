package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUmaskOfOwnerBits checks that everything works under a umask that takes permissions
// from the user, and that the user can access all files made.
func TestUmaskOfOwnerBits(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `umask 0177; exec "$0" mcp-stdio`,
		filepath.Join(programs, "holdline"))
	cmd.Env, cmd.Dir, cmd.Stdin = p.env, p.project, strings.NewReader(piped)
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), `"result"`) != 3 {
		t.Errorf("%v, %s", err, out)
	}
	for _, dir := range []string{
		p.stateRoot(), filepath.Join(p.dir, "home/.local"), filepath.Join(p.dir, "run/holdline"),
	} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, want 0700", dir, info.Mode())
		}
	}
}
