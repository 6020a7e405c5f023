package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/statedir"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// TestRun_NoConfiguration checks that the other checks are made if it is not known where the
// configuration is, as without HOME.
func TestRun_NoConfiguration(t *testing.T) {
	o := options(t)
	o.Config, o.ConfigErr = "", os.ErrInvalid
	found := Run(t.Context(), *o)
	for _, check := range []string{"configuration", "daemon"} {
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == check && f.State != OK }) {
			t.Errorf("no finding about the %s: %+v", check, found)
		}
	}
}

// TestStateDirIsAFile checks that the fix for a file in the place of the state directory is another one than
// that for a directory which others can read.
func TestStateDirIsAFile(t *testing.T) {
	o := options(t)
	if err := os.WriteFile(o.StateDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := checkStateDir(*o); f.State != Problem || !strings.HasPrefix(f.Fix, "mv "+o.StateDir) {
		t.Errorf("a file: %+v", f)
	}
}

// TestStateDirOfAnother checks that a daemon at another socket, which keeps one from starting here, is a
// problem.
func TestStateDirOfAnother(t *testing.T) {
	o := options(t)
	if err := os.Mkdir(o.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := statedir.TryLock(filepath.Join(o.StateDir, socket.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	self, err := process.Lookup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Write(self.PID, self.Start, "/elsewhere/s"); err != nil {
		t.Fatal(err)
	}
	f := noDaemon(*o, socket.ErrNoDaemon)
	if f.State != Problem || !strings.Contains(f.Fix, "stop --socket /elsewhere/s") {
		t.Errorf("%+v", f)
	}
}
