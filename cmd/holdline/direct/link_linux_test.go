package direct

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/config"
	"holdline/daemon/sandbox"
	"holdline/protocol/process"
)

// TestCameByLinkOfAConfinedServer_NotStartedWithoutTheDaemon checks that a confined server which is tried, or
// runs without the daemon, starts in no directory to which a link leads that another one may have made,
// and that it starts there for who comes by another way.
func TestCameByLinkOfAConfinedServer_NotStartedWithoutTheDaemon(t *testing.T) {
	if err := sandbox.Refusal(false); err != nil {
		t.Skip("nothing can be confined here: " + err.Error())
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	worker := at("run/holdline/w/s-1")
	for _, d := range []string{at("home"), at("p"), at("private"), worker} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	spec, err := json.Marshal(process.Spec{ID: "s-1", Confine: &process.Confine{Dirs: []string{at("p")}}})
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(worker, process.FileSpec), spec, 0o600),
			os.WriteFile(at("config.json"), []byte("{}"), 0o600), os.Symlink(at("private"), at("p/link")))
	}
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"HOME": at("home"), "XDG_RUNTIME_DIR": at("run"), "PATH": os.Getenv("PATH"), "SHELL": "/bin/sh",
	}
	proc := &cmdenv.Process{
		Getenv: func(name string) string { return env[name] },
		Environ: func() (all []string) {
			for name, value := range env {
				all = append(all, name+"="+value)
			}
			return all
		},
		Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
	}
	s := &config.Settings{Name: "s"}
	s.Transport, s.Command, s.Scope, s.Confine = config.Stdio, "/bin/true", config.ScopeProject, config.ConfineProject
	for cwd, want := range map[string]string{"p/link": "was reached as " + at("p/link"), "private": ""} {
		t.Chdir(at(cwd)) // it sets PWD, as a shell does
		l, err := New(t.Context(), proc, at("config.json"), "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.Process(t.Context(), s, "")
		if want == "" && (err != nil || p.Confine == nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("in %s: %v, want %q", cwd, err, want)
		}
	}
}
