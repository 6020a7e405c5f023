package e2e

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// filesBelow returns the modes and contents of all files below a directory, by their paths in it.
func filesBelow(t *testing.T, dir string, without ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if slices.Contains(without, name) {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[name] += " " + string(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDoctor_ChangesNothing checks that doctor changes no file of the user, with and without a daemon and with and
// without a configuration, although the programs that it asks make files where they have none.
func TestDoctor_ChangesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	home := filepath.Join(p.dir, "home")
	p.script("claude", "#!/bin/sh\necho {} >>\"${CLAUDE_CONFIG_DIR:-$HOME}/.claude.json\"\nexec "+programs+"/claude \"$@\"\n")
	p.script("codex", "#!/bin/sh\nmkdir -p \"${CODEX_HOME:-$HOME/.codex}/tmp\"\n"+
		"case \"$*\" in --version) echo codex-cli 0.169.0;; *) exit 1;; esac\n")
	const state = ".local/state/holdline" // which is the daemon's, once one runs
	look := func(when string, without ...string) {
		t.Helper()
		before := filesBelow(t, home, without...)
		for _, args := range [][]string{{"doctor"}, {"doctor", "-v"}, {"doctor", "--json"}} {
			out, errs, _ := p.run("", args...)
			if !strings.Contains(out, "claude") && args[len(args)-1] != "doctor" {
				t.Errorf("%s: claude was not asked:\n%s%s", when, out, errs)
			}
			if after := filesBelow(t, home, without...); !maps.Equal(before, after) {
				t.Errorf("%s: %v made of\n%q\nthis:\n%q", when, args, before, after)
			}
		}
	}
	look("nothing is set up")
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
	look("configured")
	p.daemon()
	p.agent().shake()
	p.untilReady("tools")
	look("with a daemon", state)
}
