package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdline/protocol/control"
)

// mounted mounts a file system with these options at dir, which the test unmounts.
func mounted(dir, options string, flags uintptr) error {
	return unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0700"+options)
}

// TestLogCannotBeOpened_DaemonServes puts something else in the place of daemon.log, or of its
// directory. The daemon starts all the same, and status and doctor name the file. Once the file can be
// opened, the log is there.
func TestLogCannotBeOpened_DaemonServes(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(log string) error{
		"a directory in its place":       func(log string) error { return os.MkdirAll(log, 0o700) },
		"a named pipe":                   func(log string) error { return unix.Mkfifo(log, 0o600) },
		"a link":                         func(log string) error { return os.Symlink(os.DevNull, log) },
		"a file that may not be written": func(log string) error { return os.WriteFile(log, nil, 0o400) },
		"a file in the place of its directory": func(log string) error {
			return errors.Join(os.Remove(filepath.Dir(log)), os.WriteFile(filepath.Dir(log), nil, 0o600))
		},
		"a directory that may not be written": func(log string) error { return os.Chmod(filepath.Dir(log), 0o500) },
		"a directory that may not be read":    func(log string) error { return os.Chmod(filepath.Dir(log), 0) },
		"a disk without room for a file":      func(log string) error { return mounted(filepath.Dir(log), ",nr_inodes=1", 0) },
		"a read-only file system": func(log string) error {
			return mounted(filepath.Dir(log), "", unix.MS_RDONLY)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(name, "may not") && os.Getuid() == 0 {
				t.Skip("root may")
			}
			p := newPlace(t).login()
			logs := filepath.Join(p.stateRoot(), "logs")
			log := filepath.Join(logs, "daemon.log")
			if err := os.MkdirAll(logs, 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = unix.Unmount(logs, unix.MNT_DETACH), os.Remove(log) }) // before a pipe is read
			if err := spoil(log); errors.Is(err, unix.EPERM) {
				t.Skip("no right to mount a file system")
			} else if err != nil {
				t.Fatal(err)
			}
			a := p.agent().shake()
			if s := p.status(); !strings.Contains(s.Daemon.Degraded, log) {
				t.Errorf("status says %q, and not what is wrong with %s", s.Daemon.Degraded, log)
			}
			out, errs, _ := p.look("doctor", "-v")
			if !strings.Contains(out, log+" cannot be opened") {
				t.Errorf("doctor does not name the log:\n%s%s", out, errs)
			}
			_ = unix.Unmount(logs, unix.MNT_DETACH)
			_ = os.Chmod(logs, 0o700)
			if err := os.RemoveAll(logs); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(logs, 0o700); err != nil {
				t.Fatal(err)
			}
			p.until("the log is open", func(s control.StatusAnswer) bool { return s.Daemon.Degraded == "" })
			p.agent().shake().leave()
			a.leave()
			waitFor(t, "a line in the log", func() bool {
				info, err := os.Stat(log)
				return err == nil && info.Size() > 0
			})
		})
	}
}
