package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/process"
)

// TestLauncherDirect_ServerRunsWithoutIt checks that a server with launcher: direct, which a launcher starts, is started
// without that after its first start, with the same arguments and variables; and that it is started as its entry says
// again once its program does not work without.
func TestLauncherDirect_ServerRunsWithoutIt(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	npx := filepath.Join(p.dir, "bin/npx")
	asked := filepath.Join(p.dir, "asked")
	program := filepath.Join(p.dir, "pkg/toolserver")
	script := "#!/bin/sh\necho x >>" + asked + "\nshift 2\nexport npm_config_x=1\n" + program + " \"$@\"\n"
	tool, err := os.ReadFile(filepath.Join(programs, "toolserver"))
	for path, text := range map[string]string{npx: script, program: string(tool)} {
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o700)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	times := func() int {
		b, _ := os.ReadFile(asked)
		return strings.Count(string(b), "x")
	}
	p.configure(map[string]any{"tools": map[string]any{
		"command": npx, "args": []string{"-y", "pkg", "-ledger", p.effects()},
		"holdline": hosting{"scope": "shared", "launcher": "direct"},
	}}).daemon()
	a := p.agent().shake()
	records := filepath.Join(p.dir, "home/.local/state/holdline/launches/*.json")
	first := p.untilReady("tools")
	waitFor(t, "a record of the launch", func() bool {
		found, err := filepath.Glob(records)
		return err == nil && len(found) == 1
	})
	if name := process.Args(first)[0]; name != "/bin/sh" || times() != 1 {
		t.Errorf("the first process is %s, and the launcher was asked %d times", name, times())
	}
	// restart ends the server's process, and returns the next one.
	restart := func(pid int) int {
		t.Helper()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "its end", func() bool { return !alive(pid) })
		if x := a.wait(a.effect("again", 0)); x.Error != nil {
			t.Errorf("a call behind a restart: %s", x.raw)
		}
		return p.untilReady("tools")
	}
	second := restart(first)
	if args := process.Args(second); args[0] != program || args[len(args)-1] != p.effects() || times() != 1 ||
		process.Variable(second, "npm_config_x") != "1" {
		t.Errorf("the second process is %q, and the launcher was asked %d times", args, times())
	}
	before := times()
	if err := os.WriteFile(program+".new", tool, 0o700); err != nil { // another file: the record does not hold
		t.Fatal(err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	third := restart(second)
	if name := process.Args(third)[0]; name != "/bin/sh" || times() != before+1 {
		t.Errorf("the third process is %s, and the launcher was asked %d times", name, times())
	}
	a.rest()
}
