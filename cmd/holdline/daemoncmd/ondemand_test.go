package daemoncmd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/starter"
	"holdline/daemon/service"
	"holdline/protocol/socket"
)

// TestVariablesAreEnough checks that whoever starts a daemon on demand gives it each variable
// that its start reads.
func TestVariablesAreEnough(t *testing.T) {
	read := map[string]bool{}
	env := func(name string) string {
		read[name] = true
		return "/" + name
	}
	attach.DaemonEnv(env)
	service.FindUnits(env)
	service.FindLaunchAgent(env)
	_, _ = socket.Resolve("", env)
	_, _ = cmdenv.StateDir(env)
	_, _ = cmdenv.ConfigPath("", env)
	for name := range read {
		if !slices.Contains(starter.Variables, name) {
			t.Errorf("%s is not one of starter.Variables", name)
		}
	}
	for _, e := range []string{"HOLDLINE_TOKEN", "HOLDLINE_WORKER", "HOLDLINE_IDENTITY"} {
		if slices.Contains(starter.Variables, e) {
			t.Errorf("%s is the agent's, and goes to the daemon", e)
		}
	}
}

// TestOpenLog checks that the log is the user's alone, that it is appended to, and that a long
// one is emptied.
func TestOpenLog(t *testing.T) {
	state := t.TempDir()
	env := func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }
	path := filepath.Join(state, "holdline", starter.DaemonLog)
	for _, c := range []struct{ before, after int64 }{{0, 1}, {1, 2}, {maxLog + 1, 1}} {
		if c.before > 1 {
			if err := os.Truncate(path, c.before); err != nil {
				t.Fatal(err)
			}
		}
		f, err := openLog(env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if info, err := os.Stat(path); err != nil || info.Size() != c.after || info.Mode() != 0o600 {
			t.Errorf("a log of %d bytes: %v, %v, want %d bytes", c.before, info, err, c.after)
		}
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode() != 0o700|os.ModeDir {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if _, err := openLog(func(string) string { return "" }); err == nil {
		t.Error("a log without a home")
	}
}
