package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"holdline/protocol/process"
)

// launched is a place with a launcher, as npx is one, and a package whose program is the tool server.
type launched struct {
	*place
	npx     string
	program string
	asked   string // a file to which the launcher adds a line each time
}

// npxScript plays npx: it says that it was asked, sets variables of its own, finds the program of the package, and stays
// beside it. Its last line starts that.
const npxScript = `#!/bin/sh
echo x >>"$0.asked"
shift 2
export npm_config_x=1 npm_lifecycle_script=PROGRAM npm_lifecycle_event=npx PATH="${0%/bin/npx}/pkg:$PATH"
`

// launcher makes a launcher that ends with last, and a package whose program mine is a script if there is text for it.
func (p *place) launcher(last, script string) *launched {
	p.t.Helper()
	l := &launched{place: p, npx: filepath.Join(p.dir, "bin/npx"), program: filepath.Join(p.dir, "pkg/mine")}
	l.asked = l.npx + ".asked"
	server := filepath.Join(p.dir, "pkg/toolserver")
	if script == "" {
		l.program = server
	}
	tool, err := os.ReadFile(filepath.Join(programs, "toolserver"))
	npx := strings.Replace(npxScript, "PROGRAM", filepath.Base(l.program), 1) + last + "\n"
	for path, text := range map[string]string{l.npx: npx, l.program: script, server: string(tool)} {
		if text == "" {
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			syscall.ForkLock.RLock() // no child may inherit a program that is open for writing
			err = os.WriteFile(path, []byte(text), 0o700)
			syscall.ForkLock.RUnlock()
		}
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// serveDirectly does what [place.serve] does with a server that a launcher starts, and finds out that it works without.
func (p *place) serveDirectly(scope string, args ...string) *place {
	p.t.Helper()
	if runtime.GOOS != "linux" { // launchers stay there
		return p.serve(scope, args...)
	}
	l := p.launcher(stays, "")
	args = append([]string{"-y", "pkg", "-ledger", p.effects()}, args...)
	p.configure(map[string]any{"tools": l.npxEntry(hosting{"scope": scope}, args...)})
	if out := p.must("servers", "test", "tools"); !strings.Contains(out, "It works without npx, too") {
		p.t.Fatalf("servers test: %s", out)
	}
	return p
}

// npxEntry returns the entry of the server. It gets the variables in it alone: a daemon may not know yet those of the login
// shell when it first starts the server, and a record is for the same variables.
func (l *launched) npxEntry(h hosting, args ...string) map[string]any {
	h["inherit_env"] = "none"
	return map[string]any{
		"command": l.npx, "args": args, "env": map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}, "holdline": h,
	}
}

// stays is the last line of a launcher that waits for the program.
const stays = `sh -c 'exec toolserver "$@"' sh "$@"; exit $?`

// leafOf returns the process that nothing has started anything below, from a process on.
func leafOf(pid int) int {
	below, err := process.Descendants(pid)
	if err != nil || len(below) == 0 {
		return pid
	}
	return below[len(below)-1].PID
}
