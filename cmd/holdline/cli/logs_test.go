package cli

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/contrib"
	"holdline/protocol"
	"holdline/protocol/programtest"
)

// TestLogsOfDaemonThatDoesNotAnswer_AreInTheJournal checks that logs prints the journal if systemd
// starts the daemon, also if that one cannot be asked.
func TestLogsOfDaemonThatDoesNotAnswer_AreInTheJournal(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "daemon.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // it ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			refusal := &protocol.Refusal{Code: protocol.RefusedVersion, Message: "another version"}
			_, _ = c.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version, Error: refusal}))
			_ = c.Close()
		}
	}()
	home := t.TempDir()
	units := filepath.Join(home, ".config", "systemd", "user")
	wants := filepath.Join(units, "sockets.target.wants")
	unit := filepath.Join(units, contrib.SystemdSocket)
	if err := errors.Join(os.MkdirAll(wants, 0o700), os.WriteFile(unit, nil, 0o600),
		os.Symlink(unit, filepath.Join(wants, contrib.SystemdSocket))); err != nil {
		t.Fatal(err)
	}
	programtest.Write(t, filepath.Join(home, "journalctl"), "#!/bin/sh\necho journal of \"$2\"\n")
	t.Setenv("PATH", home+":/usr/bin:/bin")
	var out, errs bytes.Buffer
	code := runProcess(t.Context(), cmdenv.Process{
		Args: []string{"logs", "--socket", path}, Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return map[string]string{"HOME": home}[name] },
	})
	if code != cmdenv.ExitOK || !strings.HasPrefix(out.String(), "journal of "+contrib.SystemdService) {
		t.Errorf("exit code %d, %q, %q, want the journal", code, out.String(), errs.String())
	}
}
