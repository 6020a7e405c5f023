package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
	"holdline/protocol/programtest"
)

// fakeCodex writes a program named like Codex, which notes what it does, and answers with
// the words of its prompt.
func (p *place) fakeCodex(path string) {
	p.t.Helper()
	script := `#!/bin/sh
case "$*" in
--version) echo "codex-cli 0.169.0";;
"exec --help") echo "--json --sandbox --skip-git-repo-check --ignore-user-config --ignore-rules --output-schema";;
*"login status") [ ! -e "$0.logged-out" ]; exit;;
exec*)
	[ -z "$LEDGER" ] || echo begun >>"$LEDGER"
	echo '{"type":"thread.started","thread_id":"01a1fcee-a00d-7441-887f-2a8efa0d4458"}'
	words=$(cat | wc -w)
	sleep ${PAUSE:-0}
	while [ -e "$0.held" ]; do sleep 0.05; done
	echo '{"type":"item.completed","item":{"type":"agent_message","text":"'$words' words"}}'
	echo '{"type":"turn.completed","usage":{"input_tokens":100,"output_tokens":10}}';;
esac
`
	programtest.Write(p.t, path, script)
}

// codexLedger returns the file in which a fake Codex notes what it does. It lies among the sessions, where
// the wall around Codex lets it write; p.ledger becomes a link to it.
func (p *place) codexLedger() string {
	p.t.Helper()
	file := filepath.Join(p.dir, "home", ".codex", "sessions", "ledger")
	for _, dir := range []string{filepath.Dir(file), filepath.Dir(p.ledger())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := os.Symlink(file, p.ledger()); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// TestConsultCommandEngine checks that an option names the engine, that a missing program
// is one fault, and that the same daemon finds it once it is installed.
func TestConsultCommandEngine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bin := filepath.Join(p.dir, "codex-elsewhere")
	p.env = append(p.env, "HOLDLINE_CODEX_BIN="+bin)
	p.daemon()
	pid := p.status().Daemon.PID
	if _, errs, code := p.run("", "consult", "--engine", "codex", "one two"); code != 1 ||
		!strings.Contains(errs, "npm install -g @openai/codex") {
		t.Errorf("missing: exit %d, %q", code, errs)
	}
	p.fakeCodex(bin)
	if out, errs, code := p.run("", "consult", "--engine", "codex", "one two"); code != 0 || out != "2 words\n" {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
	if _, errs, code := p.run("", "consult", "--engine", "codex", "--max-usd", "1", "one two"); code != 2 ||
		!strings.Contains(errs, "max_usd") {
		t.Errorf("money: exit %d, %q", code, errs)
	}
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, bin) {
		t.Errorf("doctor: %s", out)
	}
	out, _, _ := p.run("", "consult", "list", "--json")
	var list []control.Consult
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Engine != "codex" ||
		list[0].CostUSD != nil {
		t.Errorf("%v in %s", err, out)
	}
	if got := p.status().Daemon.PID; got != pid {
		t.Errorf("daemon %d, then %d", pid, got)
	}
}

// TestConsultNotLoggedIn checks that the fault of a program that is not logged in for the
// daemon names the variables of its engine that the caller has and the daemon has not,
// without their values.
func TestConsultNotLoggedIn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	bin := filepath.Join(p.dir, "codex-elsewhere")
	p.fakeCodex(bin)
	p.env = append(p.env, "HOLDLINE_CODEX_BIN="+bin)
	if err := os.WriteFile(bin+".logged-out", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Without a daemon, doctor judges by what the next one will have: not the key of this shell,
	// but that of a file which the configuration names.
	mine := p.env
	p.env = append(p.env, "CODEX_API_KEY=secret")
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "as seen by the next daemon") ||
		!strings.Contains(out, "your own environment has CODEX_API_KEY, and the daemon's has not") {
		t.Errorf("doctor without a daemon:\n%s", out)
	}
	p.env = mine
	keys := filepath.Join(p.dir, "keys")
	if err := os.WriteFile(keys, []byte("CODEX_API_KEY=secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must("config", "set", "consult.env_file", keys)
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "version 0.169.0, by the environment") {
		t.Errorf("doctor without a daemon, and with a file of variables:\n%s", out)
	}
	p.must("config", "unset", "consult.env_file")
	p.daemon()
	if _, errs, code := p.run("", "consult", "--engine", "codex", "one two"); code != 1 ||
		strings.Contains(errs, "your own environment") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if out := p.must("status"); !strings.Contains(out, "1 recent fault.") ||
		!strings.Contains(out, "1 consult failed within the last 15 minutes") {
		t.Errorf("status after a consult that could not run:\n%s", out)
	}
	p.env = append(p.env, "CODEX_API_KEY=secret", "CODEX_HOME=", "ANTHROPIC_API_KEY=secret")
	const want = "your own environment has CODEX_API_KEY, and the daemon's has not"
	check := func(who, text string) {
		t.Helper()
		if !strings.Contains(text, want) || strings.Contains(text, "secret") ||
			strings.Contains(text, "ANTHROPIC_API_KEY") {
			t.Errorf("%s: %q", who, text)
		}
	}
	_, errs, _ := p.run("", "consult", "--engine", "codex", "one two")
	check("command", errs)
	out, _, _ := p.run("", "doctor", "-v")
	check("doctor", out)
	a := p.agent().shake()
	check("agent", a.wait(a.call("consult", map[string]any{"prompt": "x", "engine": "codex"})).raw)
}

// TestConsultCommandPartial checks that a partial answer is reported as partial on stderr,
// and that standard output has the answer alone.
func TestConsultCommandPartial(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	const note = "holdline: time was up: this is the best answer so far\n"
	prompt := claudetest.Prompt("x", claudetest.Step{Do: "hang"})
	if out, errs, code := p.run("", "consult", "--timeout", "1s", prompt); code != 0 ||
		!strings.HasPrefix(out, "fake answer: ") || strings.Contains(out, note) ||
		!strings.HasPrefix(errs, note+"[consult ") {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
	out, _, _ := p.run("", "consult", "list", "--json")
	var list []control.Consult
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	for _, how := range []string{"show", "wait"} {
		if _, errs, code := p.run("", "consult", how, list[0].ID); code != 0 || !strings.HasPrefix(errs, note) {
			t.Errorf("%s: exit %d, %q", how, code, errs)
		}
	}
	if out, errs, code := p.run("", "consult", "whole"); code != 0 || strings.Count(errs, "\n") != 2 ||
		!strings.HasPrefix(errs, "[consult ") || !strings.Contains(errs, "$") {
		t.Errorf("whole: exit %d, %q %q", code, out, errs)
	}
}

// TestConsultWithoutDaemon checks that kept consults are listed with their questions, and
// shown, by the beginning of an id or as the last one, with a daemon and without; and that
// start brings a daemon, once.
func TestConsultWithoutDaemon(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.daemon()
	for _, words := range []string{"the first", "the second"} {
		p.must("consult", words)
	}
	look := func(when string) {
		t.Helper()
		var list []control.Consult
		out := p.must("consult", "list", "--json")
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 ||
			list[0].Question != "the second" || list[1].State != "done" {
			t.Fatalf("%s: %v in %s", when, err, out)
		}
		for word, want := range map[string]string{
			"last": "fake answer: the second\n", list[1].ID[:8]: "fake answer: the first\n",
		} {
			if out := p.must("consult", "show", word); out != want {
				t.Errorf("%s, show %s: %q, want %q", when, word, out, want)
			}
		}
		if out := p.must("consult", "list"); !strings.Contains(out, "the first") {
			t.Errorf("%s: the list has no question:\n%s", when, out)
		}
	}
	look("with a daemon")
	p.must("stop")
	look("without a daemon")
	if _, errs, code := p.run("", "consult", "rm", "last"); code != exitNoDaemon ||
		!strings.Contains(errs, "holdline start") {
		t.Errorf("rm without a daemon: exit %d, %q", code, errs)
	}
	first, again := p.must("start"), p.must("start")
	t.Cleanup(func() { p.run("", "stop", "--all") })
	if want := fmt.Sprintf("(daemon %d)", p.status().Daemon.PID); !strings.Contains(first, "is running "+want) ||
		!strings.Contains(again, "is running already "+want) {
		t.Errorf("start says %q, then %q; want %s", first, again, want)
	}
}

// TestConsultEnvFile checks that no consult runs while the file of variables cannot be
// used: it would not be logged in, or by another account. The fault says so, and a
// corrected or changed file is used by the next consult.
func TestConsultEnvFile(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := filepath.Join(p.dir, "consult.env")
	config := filepath.Join(p.dir, "config.json")
	if err := os.WriteFile(config, []byte(`{"consult":{"env_file":"`+file+`"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "HOLDLINE_CONFIG="+config)
	p.daemon()
	ask := func(want string) {
		t.Helper()
		out, errs, _ := p.run("", "consult", claudetest.Prompt("x", claudetest.Step{Do: "env"}))
		if !strings.Contains(out+errs, want) {
			t.Errorf("no %q in %q %q", want, out, errs)
		}
	}
	put := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, []byte(text), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	ask("consult.env_file of the configuration cannot be used: open " + file)
	put("MINE=first\n", 0o644)
	ask("others can read it")
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "others can read it") ||
		!strings.Contains(out, "each consult reads the file again") {
		t.Errorf("doctor: %s", out)
	}
	put("MINE=first\n", 0o600)
	ask("MINE=first")
	put("MINE=other\n", 0o600)
	ask("MINE=other")
	put("MINE=may be a secret\n", 0o600) // no word that occurs by chance: it is not shown
	ask("MINE=***")
}

// TestConsultCodexOutlives kills the daemon during a consult of Codex, which reads its
// prompt to the end of its input. There is one answer, of one run.
func TestConsultCodexOutlives(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	bin := filepath.Join(p.dir, "codex")
	p.fakeCodex(bin)
	dir := filepath.Join(p.dir, "home/.config/holdline")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"consult": {"engine": "codex", "codex_bin": %q, "env": {"LEDGER": %q, "PAUSE": "1"}}}`,
		bin, p.codexLedger())
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.up()
	pid := p.pid(0)
	ask := p.asking(t, "consult", "three little words")
	p.untilSteps(1)
	kill9(t, pid)
	ask.want(0, "3 words\n", "")
	if n := p.steps(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestConsultCommandContext checks that piped input and files are added behind the prompt,
// and that the command does not wait for a pipe into which nothing is written.
func TestConsultCommandContext(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	if err := os.WriteFile(filepath.Join(p.project, "sub", "notes"), []byte("the marker is 4711\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := p.run("+ a line of a diff\n", "consult", "review this"); code != 0 ||
		out != "fake answer: review this\n\n<stdin>\n+ a line of a diff\n</stdin>\n" {
		t.Errorf("piped in: exit %d, %q, %q", code, out, errs)
	}
	if out, errs, code := p.run("", "consult", "--file", "sub/notes", "review this"); code != 0 ||
		!strings.Contains(out, "the marker is 4711\n</file>") {
		t.Errorf("a file: exit %d, %q, %q", code, out, errs)
	}
	if _, errs, code := p.run("", "consult", "--file", "/etc/passwd", "x"); code != 1 ||
		!strings.Contains(errs, "consult.roots") || !strings.Contains(errs, "--cwd DIR") {
		t.Errorf("a file of elsewhere: exit %d, %q", code, errs)
	}
	if _, errs, code := p.run("", "consult", "--schema", "nowhere.json", "x"); code != 2 ||
		!strings.Contains(errs, "nowhere.json") {
		t.Errorf("no schema: exit %d, %q", code, errs)
	}
}

// TestConsultCommandInterrupted checks that an interrupt ends a consult politely, and that
// its text so far is printed and kept.
func TestConsultCommandInterrupted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	prompt := claudetest.Prompt("x",
		claudetest.Step{
			Text: new("So far so good."),
			Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}},
		},
		claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "hang"})
	ask := p.asking(t, "consult", prompt)
	p.untilSteps(1)
	if err := ask.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ask.want(1, "So far so good.\n", "interrupted: the consult is ended")
	list, _, _ := p.run("", "consult", "list", "--json")
	var kept []control.Consult
	if err := json.Unmarshal([]byte(list), &kept); err != nil || len(kept) != 1 || kept[0].State != "cancelled" ||
		kept[0].CostUSD == nil {
		t.Errorf("%v, %s", err, list)
	}
	if out, _, _ := p.run("", "consult", "show", kept[0].ID); !strings.Contains(out, "So far so good.") {
		t.Errorf("kept %q", out)
	}
}

// TestConsultCommandImpatient checks that a second interrupt does not wait for a program
// that ignores it: the command ends before the consult does.
func TestConsultCommandImpatient(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	ask := p.asking(t, "consult",
		claudetest.Prompt("x", claudetest.Step{Do: "ledger", Message: p.ledger()}, claudetest.Step{Do: "deaf"}))
	p.untilSteps(1)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ended := false; !ended; {
		// A signal after the second one may meet a command that is about to exit.
		_ = ask.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ask.ended:
			ended = true
		case <-again.C:
		}
	}
	left := time.Now().UnixMilli()
	p.until("no consult", func(s control.StatusAnswer) bool { return s.Consults.Running == 0 })
	out, _, _ := p.run("", "consult", "list", "--json")
	var kept []control.Consult
	if err := json.Unmarshal([]byte(out), &kept); err != nil || len(kept) != 1 || kept[0].State != "cancelled" {
		t.Fatalf("%v, %s", err, out)
	}
	if ended := kept[0].CreatedMS + kept[0].TookMS; ended < left {
		t.Errorf("the command ended at %d, the consult at %d", left, ended)
	}
}

// TestConsultAudit checks that each consult has one line in the audit log, without its
// prompt, that status reports what was spent, and that an answer can be removed.
func TestConsultAudit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.env = append(p.env, "HOLDLINE_TEST_WINDOWS=100")
	p.daemon()
	day := time.Now().Format(time.DateOnly)
	if out, errs, code := p.run("", "consult", "--max-usd", "2.5", "what is the secret of the sea?"); code != 0 {
		t.Fatalf("exit %d, %q %q", code, out, errs)
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/logs/consults.jsonl"))
	if err != nil || strings.Count(string(b), "\n") != 1 || strings.Contains(string(b), "secret of") {
		t.Fatalf("%v, %s", err, b)
	}
	var line struct {
		ID      string   `json:"consult_id"`
		SHA     string   `json:"prompt_sha256"`
		Argv    []string `json:"argv"`
		State   string   `json:"state"`
		Level   string   `json:"level"`
		CostUSD *float64 `json:"cost_usd"`
		Session string   `json:"session_id"`
	}
	if err := json.Unmarshal(b, &line); err != nil || len(line.SHA) != 64 || line.State != "done" ||
		line.CostUSD == nil || line.Session == "" ||
		!strings.Contains(strings.Join(line.Argv, " "), "--max-budget-usd 2.5") {
		t.Errorf("%v in %s", err, b)
	}
	if out, _, _ := p.run("", "status"); !strings.Contains(out, "cli asked for 1 today, <$0.01") &&
		time.Now().Format(time.DateOnly) == day {
		t.Errorf("status: %s", out)
	}
	// At once, unless a busy machine kept the command from telling the daemon that it has its answer.
	waitFor(t, "consult rm", func() bool { _, _, code := p.run("", "consult", "rm", line.ID); return code == 0 })
	if out, _, _ := p.run("", "consult", "list"); !strings.Contains(out, "no consult") {
		t.Errorf("after it was removed: %s", out)
	}
	if _, errs, code := p.run("", "consult", "rm", line.ID); code == 0 ||
		!strings.Contains(errs, "there is no consult") {
		t.Errorf("removed twice: exit %d, %q", code, errs)
	}
}

// TestConsultDiff checks that a diff of the project is quoted in the prompt.
func TestConsultDiff(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	if err := os.RemoveAll(filepath.Join(p.project, ".git")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "init", "-q", p.project)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(p.project, "new"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), "git", "-C", p.project, "add", ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	out, errs, code := p.run("", "consult", "--diff", "staged", "review")
	if code != 0 || !strings.Contains(out, "+x\n") {
		t.Errorf("exit %d, %q %q", code, out, errs)
	}
}
