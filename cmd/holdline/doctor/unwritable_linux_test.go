package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnwritableHome checks the finding for a state directory that cannot be created or
// written to: no daemon can start.
func TestUnwritableHome(t *testing.T) {
	for name, made := range map[string]bool{"not there yet": false, "there": true} {
		home := t.TempDir()
		if err := os.Chmod(filepath.Dir(home), 0o755); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(home, "state")
		if made {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{StateDir: dir}
		if f := unprivileged(t, o); f.State != Problem || f.Fix == "" {
			t.Errorf("%s, of another user: %+v, want a problem", name, f)
		}
		if err := os.Chmod(home, 0o700); err != nil {
			t.Fatal(err)
		}
		if f := checkStateDir(o); f.State != OK {
			t.Errorf("%s: %+v, want ok", name, f)
		}
	}
}

// unprivileged makes the check as a user who may not write there. If the test runs as root,
// it becomes the user nobody on one thread, which ends with the check.
func unprivileged(t *testing.T, o Options) Finding {
	t.Helper()
	if os.Getuid() != 0 {
		at := nearest(o.StateDir)
		if err := os.Chmod(at, 0o500); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Chmod(at, 0o700) }()
		return checkStateDir(o)
	}
	found := make(chan Finding)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		const nobody = 65534
		if err := os.Chmod(filepath.Dir(o.StateDir), 0o755); err != nil {
			t.Error(err)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Errorf("becoming nobody: %v", errno)
		}
		found <- checkStateDir(o)
	}()
	return <-found
}
