package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// codexBehind returns a place whose engine codex is the real Codex, with a model that
// follows a script.
func codexBehind(t *testing.T, steps ...codextest.Step) (*place, *codextest.API) {
	t.Helper()
	bin := realCodex(t)
	api := codexStandIn(t, steps...)
	p := newPlace(t)
	p.consultCodex(t, bin, api.Config())
	p.daemon()
	return p, api
}

// consultCodex writes a configuration in which Codex answers consults.
func (p *place) consultCodex(t *testing.T, bin string, settings []string) {
	t.Helper()
	dir := filepath.Join(p.dir, "home/.config/holdline")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"consult": map[string]any{
		"engine": "codex", "codex_bin": bin, "model": "stand-in", "codex_config": settings,
		"env": map[string]string{"STAND_IN_KEY": "stand-in"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shellStep returns a step in which the model runs a command in Codex.
func shellStep(command string) codextest.Step {
	return codextest.Step{Call: &codextest.Call{Name: "exec_command", Arguments: map[string]any{"cmd": command}}}
}

// TestE2EConsultCodex has the real Codex answer consults. It can read and not write,
// resumes an earlier answer, and answers in the form of a schema.
func TestE2EConsultCodex(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	t.Run("answers", func(t *testing.T) {
		p, api := codexBehind(t, codextest.Step{Text: `{"ok":true}`})
		long := strings.Repeat("ü", 1<<20-1) + "x"
		for name, tt := range map[string]struct {
			stdin string
			args  []string
			code  int
			out   string
		}{
			"plain":    {"", []string{"look around"}, 0, "{\"ok\":true}\n"},
			"dash":     {"--help me", []string{"-"}, 0, "{\"ok\":true}\n"},
			"longest":  {long, []string{"-"}, 0, "{\"ok\":true}\n"},
			"too long": {long + "x", []string{"-"}, 2, ""},
			"schema": {"", []string{
				"--schema",
				`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],` +
					`"additionalProperties":false}`,
				"is it?",
			}, 0, "{\"ok\":true}\n"},
			"not met": {"", []string{
				"--schema",
				`{"type":"object","properties":{"no":{"type":"boolean"}},"required":["no"],` +
					`"additionalProperties":false}`,
				"is it?",
			}, 1, "{\"ok\":true}\n"},
		} {
			if out, errs, code := p.run(tt.stdin, append([]string{"consult"}, tt.args...)...); code != tt.code ||
				out != tt.out {
				t.Errorf("%s: exit %d, %q, %q", name, code, out, errs)
			}
		}
		var first, second struct {
			Session string   `json:"session_id"`
			Cost    *float64 `json:"cost_usd"`
			Engine  string   `json:"engine"`
		}
		out, errs, _ := p.run("", "consult", "--json", "begin here")
		if err := json.Unmarshal([]byte(out), &first); err != nil || first.Engine != "codex" || first.Cost != nil ||
			len(first.Session) != 36 {
			t.Fatalf("%v in %s%s", err, out, errs)
		}
		before := len(api.Requests())
		out, errs, _ = p.run("", "consult", "--json", "--session", first.Session, "and go on")
		if err := json.Unmarshal([]byte(out), &second); err != nil || second.Session == first.Session ||
			second.Session == "" {
			t.Errorf("%v in %s%s", err, out, errs)
		}
		if r := api.Requests(); len(r) != before+1 || !strings.Contains(string(r[before].Body), "begin here") ||
			!strings.Contains(string(r[before].Body), "and go on") {
			t.Errorf("%d requests for a follow-up", len(r)-before)
		}
		if _, errs, code := p.run("", "consult", "--session", "01a1fcee-a00d-7441-887f-2a8efa0d4458", "x"); code != 1 ||
			!strings.Contains(errs, "session: cannot go on") {
			t.Errorf("no session: exit %d, %q", code, errs)
		}
	})
	t.Run("hostile", func(t *testing.T) {
		write := shellStep("touch owned; touch /tmp/owned-by-codex; cat AGENTS.md main.go; echo written $?")
		p, api := codexBehind(t, write, codextest.Step{Echo: true}, write, codextest.Step{Echo: true})
		trap := filepath.Join(p.dir, "trap")
		for name, data := range map[string]string{
			"AGENTS.md": "CANARY IN AGENTS\n", "main.go": "the marker is 4711\n",
			".codex/config.toml": "sandbox_mode = \"danger-full-access\"\n" +
				"[mcp_servers.trap]\ncommand = \"touch\"\nargs = [\"" + trap + "\"]\n",
		} {
			for _, root := range []string{p.project, filepath.Join(p.dir, "home")} {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		var session string
		for n, args := range [][]string{{"look"}, {"--session", "", "again"}} {
			if args[0] == "--session" {
				args[1] = session
			}
			out, errs, code := p.run("", append([]string{"consult", "--json"}, args...)...)
			var v struct {
				Answer  string `json:"answer"`
				Session string `json:"session_id"`
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 ||
				strings.Count(v.Answer, "4711") != n+1 || strings.Count(v.Answer, "Read-only file system") != 2*(n+1) {
				t.Errorf("exit %d, %v, %q %q", code, err, out, errs)
			}
			session = v.Session
		}
		for _, path := range []string{filepath.Join(p.project, "owned"), "/tmp/owned-by-codex", trap} {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s was written", path)
			}
		}
		if r := api.Requests(); len(r) == 0 || strings.Contains(string(r[0].Body), "CANARY IN AGENTS") {
			t.Errorf("of %d requests the first has the project's instructions", len(r))
		}
	})
	t.Run("failing", func(t *testing.T) {
		p, _ := codexBehind(t, codextest.Step{Status: 429})
		if _, errs, code := p.run("", "consult", "x"); code != 1 || !strings.Contains(errs, "429") {
			t.Errorf("429: exit %d, %q", code, errs)
		}
	})
}

// TestE2EConsultOutlives checks that a consult of the real Claude Code outlives its client,
// the daemon, an upgrade and its client's timeout, and runs once.
func TestE2EConsultOutlives(t *testing.T) {
	t.Parallel()
	bin := realClaude(t, consultVersion)
	prompt := func(words string) map[string]any {
		step := claudetest.Say(words + " " + strings.Repeat("word ", 20))
		step.Chunk, step.ChunkDelay = 5, 0.1
		return map[string]any{"prompt": claudetest.Prompt(words, step)}
	}
	once := func(t *testing.T, api *claudetest.API, words string) {
		t.Helper()
		if n := len(asked(api, words)); n != 1 {
			t.Errorf("%d requests of %s, want 1", n, words)
		}
	}
	p := newPlace(t)
	api := p.standIn(t)
	p.env = append(p.env, "HOLDLINE_CLAUDE_BIN="+bin)
	p.login()
	p.installVersion(t, older)
	p.daemonAt(p.bin())
	pid := p.status().Daemon.PID
	// A consult runs once its program has asked the model. A daemon that dies before may
	// leave it to the next one, which has another environment.
	untilAsked := func(words string) {
		waitFor(t, "a request of "+words, func() bool { return len(asked(api, words)) > 0 })
	}
	idOf := func() string {
		out, _, _ := p.run("", "consult", "list", "--json")
		var list []control.Consult
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) == 0 {
			t.Fatalf("%v in %s", err, out)
		}
		return list[0].ID
	}

	// The client's wait ends.
	a := p.agent().shake()
	args := prompt("patience")
	args["wait_s"] = 1
	if got := a.wait(a.call("consult", args)).text(); !strings.Contains(got, "No answer yet") {
		t.Errorf("patience: %q", got)
	}
	id := idOf()
	if got := a.wait(a.call("consult_result", map[string]any{
		"consult_id": id,
	})).text(); !strings.HasPrefix(got, "patience word") {
		t.Errorf("patience: %q", got)
	}
	once(t, api, "patience")

	// The client ends, with the consult in the background.
	args = prompt("client")
	args["wait_s"] = 0
	a.wait(a.call("consult", args))
	untilAsked("client")
	id = idOf()
	a.leave()
	if out, errs, code := p.run("", "consult", "wait", id); code != 0 || !strings.HasPrefix(out, "client word") {
		t.Errorf("client: exit %d, %q %q", code, out, errs)
	}
	once(t, api, "client")

	// An upgrade, and then the daemon is killed.
	a = p.agent().shake()
	call := a.call("consult", prompt("upgrade"))
	untilAsked("upgrade")
	p.installVersion(t, newer)
	p.upgrade(newer + " has taken over")
	if got := a.wait(call).text(); !strings.HasPrefix(got, "upgrade word") {
		t.Errorf("upgrade: %q", got)
	}
	once(t, api, "upgrade")
	call = a.call("consult", prompt("death"))
	untilAsked("death")
	kill9(t, pid)
	if got := a.wait(call).text(); !strings.HasPrefix(got, "death word") {
		t.Errorf("death: %q", got)
	}
	once(t, api, "death")
	a.rest(call)
}
