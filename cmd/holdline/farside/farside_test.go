package farside

import (
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/farwire"
	"holdline/protocol/process"
)

// TestStart_Missing checks that no server is said to be started if its file of variables is not there,
// and that a program which is not there is left to the worker, which says what is wrong.
func TestStart_Missing(t *testing.T) {
	home := t.TempDir()
	env := map[string]string{
		"HOME": home, "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "XDG_STATE_HOME": filepath.Join(home, "state"),
		"XDG_RUNTIME_DIR": home,
	}
	s := &side{
		proc: &cmdenv.Process{Getenv: func(name string) string { return env[name] }},
		dir:  filepath.Join(home, "far", "origin"), exe: "/nonexistent/holdline",
	}
	request := func(command, envFile string) *farwire.Request {
		spec := process.Spec{
			Version: process.Newest(), ID: "w1", Kind: process.KindServer, Name: "one", Argv: []string{command},
			Far: &process.Far{Host: "box", EnvFile: envFile},
		}
		spec.SetDefaults()
		return &farwire.Request{Op: farwire.Start, ID: spec.ID, Spec: &spec}
	}
	_, _, err := s.handle(request("cat", filepath.Join(home, "no-such-file")))
	if err == nil || !strings.Contains(err.Error(), "no-such-file") {
		t.Errorf("without its file of variables: %v", err)
	}
	spec, _, err := s.resolve(t.Context(), request("no-such-program", ""))
	if err != nil || spec.Argv[0] != "no-such-program" || spec.Cwd == "" {
		t.Errorf("without its program: %+v, %v", spec, err)
	}
	// This program cannot be started, which is an error of the same kind.
	if _, _, err := s.handle(request("no-such-program", "")); err == nil || !strings.Contains(err.Error(), s.exe) {
		t.Errorf("without a worker: %v", err)
	}
}
