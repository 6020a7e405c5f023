package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/programtest"
)

// TestConsultSecrets plants values in consult.env, in the file of consult.env_file and in the
// variables of an agent. The programs print them wherever they can, and fail. None is in any file of
// the state and the runtime directory, in a command line, or in what commands show. The copy of the
// user's configuration has what that has, and only the user can read it.
func TestConsultSecrets(t *testing.T) {
	t.Parallel()
	planted := map[string]string{
		"IN_ENV": "planted-in-env-1", "IN_FILE": "planted-in-file-2", "OF_AGENT": "planted-of-agent-3",
	}
	leak := `leak="$IN_ENV $IN_FILE $OF_AGENT"; echo "$leak"; echo "$leak" >&2; echo "$leak" >%q; `
	for name, ofAgent := range map[string]bool{"claude": false, "an agent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			seen := filepath.Join(p.programs(), "seen") // the programs may write there
			leak := fmt.Sprintf(leak, seen)
			file, bin := filepath.Join(p.dir, "consult.env"), filepath.Join(p.dir, "leaky-claude")
			script := `#!/bin/sh
case "$*" in *--input-format*) ` + leak + `;; esac
exec ` + programs + `/claude "$@"
`
			if err := os.WriteFile(file, []byte("IN_FILE="+planted["IN_FILE"]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			programtest.Write(t, bin, script)
			p.configure(map[string]any{}, "consult", map[string]any{
				"env": map[string]any{"IN_ENV": planted["IN_ENV"]}, "env_file": file, "claude_bin": bin,
				"agents": map[string]any{"leaky": map[string]any{
					"command":  "/bin/sh",
					"args":     []string{"-c", leak + `exec "$@"`, "sh", programs + fakeAgentProgram, p.project},
					"writable": []string{filepath.Dir(seen)}, "env": map[string]any{"OF_AGENT": planted["OF_AGENT"]},
				}},
			})
			wait, open := p.hold(t, "step")
			args := map[string]any{
				"wait_s": 0, "render": "json", "prompt": claudetest.Prompt("x", wait, claudetest.Step{Do: "die"}),
			}
			want := []string{"IN_ENV", "IN_FILE"}
			if ofAgent {
				needAgents(t)
				want = []string{"OF_AGENT"}
				args["engine"], args["prompt"] = "acp:leaky", acptest.Prompt("x",
					acptest.Step{Noise: "noise"}, acptest.Step{Shell: `echo >"$HOME/own"; : >` + wait.Message + `; echo "$OF_AGENT" >&2`},
					acptest.Step{Die: true})
			}
			p.daemon()
			a := p.agent("--no-autostart").shake()
			id := consultID(t, a.wait(a.call("consult", args)))
			waitFor(t, "the program", func() bool { return exists(seen) && p.lines(t, id, engine.KindStart) == 1 })
			waitFor(t, "the words of the program", func() bool {
				b, err := os.ReadFile(seen)
				return err == nil && strings.HasSuffix(string(b), "\n")
			})
			for _, name := range want {
				if text := content(t, seen); !strings.Contains(text, planted[name]) {
					t.Errorf("the program has not got %s: %q", name, text)
				}
			}
			p.shows(t, planted)
			open()
			if _, _, code := p.run("", "consult", "wait", id); code != exitFailure {
				t.Errorf("the program has not failed: exit %d", code)
			}
			if !strings.Contains(p.transcript(t, id), "***") {
				t.Error("nothing is masked in the transcript: the program has printed nothing")
			}
			p.shows(t, planted)
			a.rest()
		})
	}
}

// transcript returns the transcript of a consult.
func (p *place) transcript(t *testing.T, id string) string {
	t.Helper()
	return content(t, filepath.Join(p.dir, "home/.local/state/holdline/consults", id, engine.FileTranscript))
}

// shows checks that none of the planted values is in a file of the daemon's directories, in a command
// line, or in the output of a command.
func (p *place) shows(t *testing.T, planted map[string]string) {
	t.Helper()
	check := func(where, text string) {
		t.Helper()
		for name, value := range planted {
			if strings.Contains(text, value) {
				t.Errorf("the value of %s is in %s", name, where)
			}
		}
	}
	for _, root := range []string{"run", "home/.local", "home/.cache"} {
		err := filepath.WalkDir(filepath.Join(p.dir, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // it may be gone by now
			}
			if filepath.Base(filepath.Dir(path)) == "config" { // the copy of the user's own file
				if info, err := d.Info(); err == nil && info.Mode().Perm() != 0o600 {
					t.Errorf("others can read %s", path)
				}
				return nil
			}
			b, _ := os.ReadFile(path)
			check(path, string(b))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, cmd := range p.processes() {
		check("a command line", cmd)
	}
	for _, args := range [][]string{
		{"consult", "list", "--json"},
		{"consult", "show", "last"},
		{"consult", "show", "--json", "last"},
		{"consult", "show", "-f", "--json", "last"},
		{"status", "--json"},
		{"doctor", "--json"},
		{"config", "get"},
	} {
		if args[len(args)-1] == "last" && args[2] == "-f" && p.status().Consults.Running > 0 {
			continue // it would wait for the end
		}
		out, errs, _ := p.run("", args...)
		check(fmt.Sprintf("the output of %v", args), out+errs)
	}
	check("the daemon's log", content(t, filepath.Join(p.dir, "daemon.log")))
}
