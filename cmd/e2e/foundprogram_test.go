package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// guarded is a .bashrc like Debian's, with a line that a version manager adds.
const guarded = "case $- in *i*) ;; *) return;; esac\nexport PATH=%s:$PATH\n"

// TestFoundInteractive checks that a program that only an interactive shell finds runs as a
// hosted server of a daemon that an agent started, and that doctor says where it was found.
func TestFoundInteractive(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	dir := p.linked("nvmtool")
	p.profile("bash", ".bash_profile", ". ~/.bashrc\n")
	p.profile("bash", ".bashrc", strings.Replace(guarded, "%s", dir, 1))
	entry := p.toolsEntry(hosting{"scope": "shared"})
	entry["command"] = "nvmtool"
	p.configure(map[string]any{"tools": entry})
	p.agent().shake()
	p.untilReady("tools")
	want := "ok       program of server tools: " + filepath.Join(dir, "nvmtool") + " (interactive login shell)\n"
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, want) {
		t.Errorf("doctor lacks %q:\n%s", want, out)
	}
}

// TestFoundByShell checks that a program that only the user's present shell finds, as in a
// venv, is named by servers add and by doctor with the command that helps, and is found
// after that command.
func TestFoundByShell(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.up() // a daemon that knows only the profile and the first agent
	venv := p.linked("venvtool")
	agents := p.env
	p.env = append(without(p.env, "PATH"), "PATH="+venv+":"+programs+":/usr/bin:/bin", "ONLY_HERE=1")
	help := "Your shell has it at " + filepath.Join(venv, "venvtool") + ". Run: `holdline install --path`"
	args := []string{
		"servers", "add", "tools", "--force", "--scope", "shared", "-e", "A=${ONLY_HERE}", "-e", "B=${ANTHROPIC_API_KEY}",
		"--", "venvtool", "-ledger", p.effects(),
	}
	_, errs, code := p.run("", args...)
	if code != exitOK || !strings.Contains(errs, help) ||
		!strings.Contains(errs, "(login shell)") {
		t.Errorf("servers add: exit %d\n%s", code, errs)
	}
	if !strings.Contains(errs, "warning: ONLY_HERE is not set") || strings.Contains(errs, "ANTHROPIC_API_KEY") {
		t.Errorf("servers add, of variables:\n%s", errs)
	}
	p.must("servers", "add", "--replace", "--force", "tools", "--scope", "shared", "--", "venvtool", "-ledger", p.effects())
	if _, errs, code := p.run("", "servers", "start", "tools"); code == exitOK ||
		!strings.Contains(errs, "`venvtool` was not found. Looked in: ") ||
		!strings.Contains(errs, "(login shell)") {
		t.Errorf("servers start: exit %d\n%s", code, errs)
	}
	out, _, code := p.run("", "doctor", "-v")
	if code == exitOK || !strings.Contains(out, "problem  server tools: its command is missing") ||
		!strings.Contains(out, help) {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	if out := p.must("install", "--path"); !strings.Contains(out, "PATH for hosted servers: "+venv+":"+programs+":") {
		t.Errorf("install --path:\n%s", out)
	}
	p.env = agents
	p.must("servers", "start", "tools")
	want := "ok       program of server tools: " + filepath.Join(venv, "venvtool") +
		" (PATH captured by holdline install)\n"
	if out := p.must("doctor", "-v"); !strings.Contains(out, want) {
		t.Errorf("doctor lacks %q:\n%s", want, out)
	}
}

// TestFoundByStarter checks that a program that is only on the PATH of the agent that
// started the daemon is found, and that a program that its environment names is used for
// consults.
func TestFoundByStarter(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.profile("bash", ".bash_profile", "")
	dir := p.linked("agenttool")
	p.env = append(without(p.env, "PATH"), "PATH=.::relative:"+dir+":/usr/bin:/bin",
		"HOLDLINE_CLAUDE_BIN="+filepath.Join(programs, "claude"))
	entry := p.toolsEntry(hosting{"scope": "shared"})
	entry["command"] = "agenttool"
	p.configure(map[string]any{"tools": entry})
	p.agent().shake()
	p.untilReady("tools")
	out, _, _ := p.run("", "doctor", "-v")
	for _, want := range []string{
		filepath.Join(dir, "agenttool") + " (what started the daemon)\n",
		"claude: " + filepath.Join(programs, "claude") + ",",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor lacks %q:\n%s", want, out)
		}
	}
}
