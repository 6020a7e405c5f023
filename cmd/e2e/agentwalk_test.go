package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/pair"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/sandbox"
)

const (
	fakeAgentEngine  = "acp:fake"
	fakeAgentProgram = "/fakeagent"
)

// fakeAgent returns the agents of a configuration: one that speaks the Agent Client Protocol. It
// notes its start as the fake claude does, see [place.countRuns]. For a death behind its answer it
// notes the end of its input at [place.heard], and lingers. Its child in a session of its own is
// there before it has a prompt.
func (d consultDeath) fakeAgent(p *place) map[string]any {
	runs := filepath.Join(p.programs(), claudetest.FakeRuns)
	script := fmt.Sprintf(`echo $$ >>%q; `, runs)
	switch {
	case d.grandchild:
		script += fmt.Sprintf(`setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo >>%q; exec "$@"`, p.ledger())
	case d.victim == "program" && d.step == "answered":
		script += fmt.Sprintf(`"$@"; echo >%q; sleep 1000; :`, p.heard())
	default:
		script += `exec "$@"`
	}
	return map[string]any{"fake": map[string]any{
		// By the project's path the processes are found as the place's.
		"command":  "/bin/sh",
		"args":     []string{"-c", script, "sh", programs + fakeAgentProgram, p.project},
		"writable": []string{filepath.Dir(runs)}, // the ledger is there, too
	}}
}

// agentScript returns [consultDeath.script] for an agent.
func (d consultDeath) agentScript(p *place) []acptest.Step {
	note := acptest.Step{Shell: fmt.Sprintf("echo >>%q", p.ledger())}
	last := note
	switch {
	case d.step == "answering" && d.outcomeKept():
		last.Shell = "sleep 1; " + note.Shell
	case d.step == "answering" || d.step == "prompted" && !d.outcomeKept():
		last.Shell = "sleep 1000; " + note.Shell
	}
	if d.victim == "program" && d.step == "prompted" {
		return []acptest.Step{note, {Shell: "kill -9 $PPID"}, {Say: saidLast}}
	}
	return []acptest.Step{note, {Say: saidSoFar}, last, {Say: saidLast}}
}

// TestConsultWalkOfAgent does what TestConsultWalk and TestConsultWalkHeld do, with an agent that
// speaks the Agent Client Protocol. With HOLDLINE_LONG it takes each death both ways.
func TestConsultWalkOfAgent(t *testing.T) {
	t.Parallel()
	needAgents(t)
	all := slices.Concat(consultDeaths, heldDeaths)
	for i := range all {
		all[i].agent = true
	}
	walkAll(t, all, os.Getenv("HOLDLINE_LONG") != "")
}

// needAgents skips the test where no agent can be confined.
func needAgents(t *testing.T) {
	t.Helper()
	if sandbox.Landlock() < sandbox.Complete {
		t.Skip("needs Landlock of ABI 3 or newer")
	}
}

// TestAgentRefused_DoctorSaysSoBefore checks that an agent which cannot be held to a level is
// refused and not started, and that doctor says so beforehand in the same words. Where it may use
// the web, and the kernel has Landlock, that is level shell alone.
func TestAgentRefused_DoctorSaysSoBefore(t *testing.T) {
	t.Parallel()
	needAgents(t)
	for name, c := range map[string]struct {
		web     bool
		program string
		why     string // level read is refused
	}{
		"no web":      {false, pair.Whole, "consult.web is false"},
		"web":         {true, pair.Whole, ""},
		"no Landlock": {true, withoutLandlock, "this one has Landlock ABI 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).countRuns()
			p.configure(map[string]any{}, "consult", map[string]any{
				"web": c.web, "agents": consultDeath{}.fakeAgent(p),
				"allow": map[string]any{"*": map[string]any{"levels": []string{"read", "shell"}}},
			})
			p.exe = filepath.Join(programs, c.program)
			p.daemonAt(p.exe)
			out, _, _ := p.run("", "doctor", "--json")
			var found []struct{ Check, State, What, Fix string }
			decode(t, out, &found)
			a := p.agent("--no-autostart").shake()
			for _, level := range []string{"read", "shell"} {
				what := ""
				for _, f := range found {
					if f.Check == fakeAgentEngine+" level "+level {
						what = f.What
					}
				}
				why, refused := strings.CutPrefix(what, "refused: ")
				x := a.wait(a.call("consult", map[string]any{"prompt": "x", "engine": fakeAgentEngine, "level": level}))
				if refused != (level == "shell" || c.why != "") || refused != (x.code() == "denied") ||
					refused && !strings.Contains(x.text(), why) || !refused && x.Result.IsError ||
					level == "read" && !strings.Contains(why, c.why) {
					t.Errorf("level %s: doctor says %q, and the consult %s\n%s", level, what, x.raw, out)
				}
			}
			if ran := p.runs(t) == 1; ran != (c.why == "") {
				t.Errorf("the program was started %d times", p.runs(t))
			}
			a.rest()
		})
	}
}
