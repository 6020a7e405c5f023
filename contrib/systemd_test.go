package contrib

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSystemdUnits checks that the units name the given program, and that a path that
// systemd would read differently is refused.
func TestSystemdUnits(t *testing.T) {
	for _, c := range []struct{ bin, want string }{
		{"/usr/bin/holdline", "/usr/bin/holdline"},
		{"/home/u/.local/bin/holdline", "/home/u/.local/bin/holdline"},
		{"/opt/my tools/holdline", `"/opt/my tools/holdline"`},
	} {
		units, err := SystemdUnits(c.bin)
		if err != nil || len(units) != 2 {
			t.Fatalf("SystemdUnits(%q) = %d units, %v", c.bin, len(units), err)
		}
		text := units[1].Text
		for _, line := range []string{"ExecStart=" + c.want + " daemon\n", "ExecReload=" + c.want + " reload\n"} {
			if !strings.Contains(text, line) {
				t.Errorf("the service for %q lacks %q", c.bin, line)
			}
		}
		if c.bin != packagedBin && strings.Contains(text, packagedBin) {
			t.Errorf("the service for %q still names %s", c.bin, packagedBin)
		}
	}
	for _, bin := range []string{"holdline", "", `/a"b`, "/a%h/b", "/a$b", "/a\nb", `/a\b`} {
		if units, err := SystemdUnits(bin); err == nil {
			t.Errorf("SystemdUnits(%q) = %v", bin, units)
		}
	}
}

// TestSystemdVerify has systemd itself check the units.
func TestSystemdVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	// The program must exist: systemd checks that.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	units, err := SystemdUnits(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"--user", "verify"}
	for _, unit := range units {
		path := filepath.Join(dir, unit.Name)
		if err := os.WriteFile(path, []byte(unit.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	// It reports a key that it does not know only as a line of output.
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze --user verify: %v\n%s", err, out)
	}
}
