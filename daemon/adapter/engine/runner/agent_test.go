package runner_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/messages"
	"holdline/daemon/sandbox"
	"holdline/daemon/sandbox/writetest"
	"holdline/protocol/fault"
)

// The engine of the fake agent, and what its process needs to know.
const (
	acpFake     = "acp:fake"
	envAgent    = "TEST_AGENT" // an [engine.Agent]
	envAgentBin = "TEST_AGENT_BIN"
)

// agents runs consults of the fake agent, in one home and one directory of consults.
type agents struct {
	t                   *testing.T
	home, project, jobs string
	count               int
}

func newAgents(t *testing.T) *agents {
	t.Helper()
	if sandbox.Landlock() < sandbox.Complete {
		t.Skip("needs Landlock")
	}
	a := &agents{t: t, home: t.TempDir(), project: t.TempDir(), jobs: t.TempDir()}
	return a
}

// start begins a consult of an agent, and returns its host and its directory.
func (a *agents) start(agent engine.Agent, args map[string]any, env ...string) (*host, string) {
	a.t.Helper()
	a.count++
	dir := filepath.Join(a.jobs, fmt.Sprintf("%012x", a.count))
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		a.t.Fatal(err)
	}
	agent.Name = "fake"
	b, err := json.Marshal(agent)
	if err != nil {
		a.t.Fatal(err)
	}
	env = append(env, envAgent+"="+string(b), envAgentBin+"="+filepath.Join(programs, "agent"), "HOME="+a.home,
		"XDG_CONFIG_HOME="+a.home+"/.config")
	h := newHost(a.t, true, acpFake, dir, env...)
	call := map[string]any{"cwd": a.project, "dir": dir, "temp": filepath.Join(dir, "tmp")}
	maps.Copy(call, args)
	h.run(1, call)
	return h, dir
}

// run runs a consult to its end.
func (a *agents) run(agent engine.Agent, args map[string]any, env ...string) (engine.Outcome, string) {
	a.t.Helper()
	h, dir := a.start(agent, args, env...)
	h.wait()
	return outcomeOf(a.t, dir), dir
}

// said is what a fault or an answer says.
func said(out *engine.Outcome) string {
	if out.Fault != nil {
		return out.Fault.Fault.Detail
	}
	return out.Answer
}

type steps = []acptest.Step

// TestAgent checks the answer or the fault of each way in which the dialogue with an agent ends.
func TestAgent(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	permission := func(kinds ...string) json.RawMessage {
		var options []string
		for _, k := range kinds {
			options = append(options, fmt.Sprintf(`{"optionId":"o-%s","kind":"%s","name":"n"}`, k, k))
		}
		return json.RawMessage(`{"toolCall":{"toolCallId":"t","title":"touch x"},"options":[` +
			strings.Join(options, ",") + `]}`)
	}
	ask := func(method string, params json.RawMessage, times int) steps {
		return steps{{Call: method, Params: params, Times: times}, {TellResult: true}}
	}
	for name, tt := range map[string]struct {
		agent   engine.Agent
		prompt  string // "" is x
		steps   steps
		args    map[string]any
		code    fault.Code
		reason  fault.Reason
		text    string // part of the answer or of the fault
		denials int
	}{
		"answer":      {text: "answer to: x"},
		"slash":       {prompt: "/help", text: "answer to:  /help"},
		"two pieces":  {steps: steps{{Say: "one "}, {Say: "piece"}}, text: "one piece"},
		"two answers": {steps: steps{{Say: "one", ID: "1"}, {Say: "two", ID: "2"}}, text: "one\n\ntwo"},
		"behind the last tool": {
			steps: steps{{Say: "let me look"}, {Shell: "true"}, {Say: "seen"}}, text: "seen",
		},
		"plan and noise": {steps: steps{{Plan: "think"}, {Noise: "hello"}, {Noise: `{"a":[`}, {Say: "well"}}, text: "well"},
		"rejects once": {
			steps: ask("session/request_permission", permission("allow_once", "allow_always", "reject_always", "reject_once"), 1),
			text:  `"optionId":"o-reject_once"`, denials: 1,
		},
		"rejects always": {
			steps: ask("session/request_permission", permission("allow_always", "reject_always"), 1),
			text:  `"optionId":"o-reject_always"`, denials: 1,
		},
		"nothing rejects": {
			steps: ask("session/request_permission", permission("allow_once", "allow_always"), 1),
			text:  `{"outcome":{"outcome":"cancelled"}}`, denials: 1,
		},
		"a thousand permissions": {
			steps: ask("session/request_permission", permission("allow_once"), 1000),
			text:  `{"outcome":{"outcome":"cancelled"}}`, denials: 1000,
		},
		"writes a file": {steps: ask("fs/write_text_file", nil, 1), text: "-32601", denials: 1},
		"reads a file":  {steps: ask("fs/read_text_file", nil, 1), text: "-32601", denials: 1},
		"writes a file where it may read": {
			agent: engine.Agent{FS: true}, steps: ask("fs/write_text_file", nil, 1), text: "-32601", denials: 1,
		},
		"makes a terminal":  {steps: ask("terminal/create", nil, 1), text: "-32601", denials: 1},
		"an unknown method": {steps: ask("what/ever", nil, 1), text: "-32601", denials: 1},
		"version 2": {
			agent: engine.Agent{Args: []string{"version=2"}}, code: fault.SpawnFailure, reason: fault.Version, text: "version 2",
		},
		"dies at the start": {
			agent: engine.Agent{Args: []string{"die=initialize"}}, code: fault.DownstreamFailure, reason: fault.BadOutput,
		},
		"dies opening": {
			agent: engine.Agent{Args: []string{"die=session/new"}}, code: fault.DownstreamFailure, reason: fault.BadOutput,
		},
		"dies logging in": {
			agent: engine.Agent{Auth: "fake-login", Args: []string{"die=authenticate"}},
			code:  fault.DownstreamFailure, reason: fault.BadOutput,
		},
		"dies at a setting": {
			agent: engine.Agent{Args: []string{"settings", "die=session/set_config_option"}},
			args:  map[string]any{"model": "m2"}, code: fault.DownstreamFailure, reason: fault.BadOutput,
		},
		"dies at its mode": {
			agent: engine.Agent{Args: []string{"settings", "die=session/set_mode"}, Mode: "plan"},
			code:  fault.DownstreamFailure, reason: fault.BadOutput,
		},
		"dies at the prompt": {
			agent: engine.Agent{Args: []string{"die=session/prompt"}}, code: fault.DownstreamFailure, reason: fault.BadOutput,
		},
		"dies behind its answer": {
			agent: engine.Agent{Args: []string{"die=session/close"}}, text: "answer to: x",
		},
		"dies in the turn": {
			steps: steps{{Say: "so far"}, {Die: true}}, code: fault.DownstreamFailure, reason: fault.BadOutput, text: "exit code 3",
		},
		"kills itself": {steps: steps{{Shell: "kill -9 $PPID"}}, code: fault.ProcessFailure, reason: fault.Killed},
		"not logged in": {
			agent: engine.Agent{Args: []string{"error=session/new:-32000"}}, code: fault.Unauthenticated,
			reason: fault.NotLoggedIn, text: "fake-login",
		},
		"logs in": {agent: engine.Agent{Auth: "fake-login"}, text: "answer to: x"},
		"cannot log in": {
			agent: engine.Agent{Auth: "x", Args: []string{"error=authenticate:-32603"}}, code: fault.DownstreamFailure,
		},
		"details of an error": {
			agent: engine.Agent{Args: []string{"details", "error=session/new:-32603"}}, code: fault.DownstreamFailure,
			text: "scripted error: the key has no credit (-32603)",
		},
		"no session": {agent: engine.Agent{Args: []string{"error=session/new:-32603"}}, code: fault.DownstreamFailure},
		"error in the turn": {
			steps: steps{{Say: "so far"}, {Error: -32603}}, code: fault.DownstreamFailure, text: "scripted error (-32603)",
		},
		"refusal": {
			steps: steps{{Stop: "refusal"}}, code: fault.DownstreamFailure, reason: fault.Refused,
		},
		"turns": {
			steps: steps{{Say: "so far"}, {Stop: "max_turn_requests"}}, code: fault.DownstreamFailure, reason: fault.MaxTurns,
		},
		"empty":       {steps: steps{{Say: " "}}, code: fault.DownstreamFailure, reason: fault.EmptyAnswer},
		"max_turns":   {args: map[string]any{"max_turns": 3}, code: fault.InvalidInput, text: "max_turns: "},
		"max_usd":     {args: map[string]any{"max_usd": 3}, code: fault.InvalidInput, text: "max_usd: "},
		"shell":       {args: map[string]any{"level": "shell"}, code: fault.Denied, text: "cannot be kept from the network"},
		"directories": {args: map[string]any{"add_dirs": []string{"/"}}, text: "answer to: x"},
		"no directories": {
			agent: engine.Agent{Args: []string{"bare"}}, args: map[string]any{"add_dirs": []string{"/"}},
			code: fault.InvalidInput, text: "add_dirs: ",
		},
		"settings": {
			agent: engine.Agent{Args: []string{"settings"}, Mode: "plan"}, steps: steps{{TellAll: true}},
			args: map[string]any{"model": "m2", "effort": "high"}, text: "model m2, mode plan",
		},
		"another model": {
			agent: engine.Agent{Args: []string{"settings"}}, args: map[string]any{"model": "m3"},
			code: fault.InvalidInput, text: "it has m1, m2",
		},
		"a model that is no option": {
			agent: engine.Agent{Args: []string{"models"}}, steps: steps{{TellAll: true}},
			args: map[string]any{"model": "m2"}, text: "model m2, ",
		},
		"another model that is no option": {
			agent: engine.Agent{Args: []string{"models"}}, args: map[string]any{"model": "m3"},
			code: fault.InvalidInput, text: "it has m1, m2",
		},
		"another effort": {
			agent: engine.Agent{Args: []string{"settings"}}, args: map[string]any{"effort": "max"},
			code: fault.InvalidInput, text: "it has low, high",
		},
		"another mode": {
			agent: engine.Agent{Args: []string{"settings"}, Mode: "x"}, code: fault.InvalidInput, text: "consult.agents.fake.mode",
		},
		"no models": {args: map[string]any{"model": "m1"}, code: fault.InvalidInput, text: "model: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := *a
			b.t, b.jobs = t, t.TempDir()
			prompt := tt.prompt
			if prompt == "" {
				prompt = "x"
			}
			if tt.steps != nil {
				prompt = acptest.Prompt(prompt, tt.steps...)
			}
			args := map[string]any{"prompt": prompt}
			maps.Copy(args, tt.args)
			out, _ := b.run(tt.agent, args)
			var code fault.Code
			var reason fault.Reason
			if out.Fault != nil {
				code, reason = out.Fault.Fault.Code, out.Fault.Reason()
			}
			if code != tt.code || reason != tt.reason || !strings.Contains(said(&out), tt.text) ||
				len(out.Denials) != tt.denials {
				t.Errorf("%s %s %q, %d denials; want %s %s %q, %d", code, reason, said(&out), len(out.Denials), tt.code,
					tt.reason, tt.text, tt.denials)
			}
			if code == "" && (out.EngineVersion != "7.8.9" || out.EnforcedBy != engine.ByLandlock || out.Turns != 1) {
				t.Errorf("%+v", out)
			}
		})
	}
}

// TestAgentSchema checks that the answer in the form of a schema is the last object of the text.
func TestAgentSchema(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	out, _ := a.run(engine.Agent{}, map[string]any{
		"prompt": acptest.Prompt("x", acptest.Step{Say: "first {\"v\":1} {broken, then\n```json\n{\"v\":{\"w\":2}}\n```\n"}),
		"schema": map[string]any{"type": "object"},
	})
	if string(out.Structured) != `{"v":{"w":2}}` {
		t.Errorf("structured %s of %+v", out.Structured, out)
	}
}

// TestAgentConfined lets the agent and its commands write wherever they can: only in the private
// home, in the temporary directory and in the directories that the configuration names.
func TestAgentConfined(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	own, login := t.TempDir(), filepath.Join(a.home, ".fake-login", "token")
	for _, dir := range []string{a.home, a.project} {
		if err := writetest.Prepare(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(login), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(login, []byte("the token"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := func() string {
		t.Helper()
		before, err := writetest.Listing(a.home)
		more, err2 := writetest.Listing(a.project)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return before + more
	}
	before := list()
	script := fmt.Sprintf(`
for d in %q %q; do touch $d/a; echo x >>$d/kept; rm -rf $d/other; mv $d/kept $d/b; ln -s / $d/c; : >$d/kept; done
echo stolen >~/.fake-login/token; cp ~/.fake-login/token ~/copy
touch ~/home $TMPDIR/temp %q/own && echo could; echo "home $HOME, token $(cat ~/copy), xdg $XDG_CONFIG_HOME"`,
		a.home, a.project, own)
	prompt := acptest.Prompt("x", acptest.Step{Shell: script}, acptest.Step{TellResult: true})
	out, dir := a.run(engine.Agent{Login: []string{login}, Writable: []string{own}}, map[string]any{"prompt": prompt})
	want := "could\nhome " + filepath.Join(dir, "tmp", "home") + ", token the token, xdg \n"
	if !strings.Contains(out.Answer, want) {
		t.Errorf("answer %q, want %q; %v", out.Answer, want, out.Fault)
	}
	if after := list(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if notes := strings.Join(out.Notes, "\n"); !strings.Contains(notes, "it may write below "+own) ||
		!strings.Contains(notes, "has a shell of its own") {
		t.Errorf("notes %q", notes)
	}
	if _, err := os.Stat(filepath.Join(own, "own")); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// TestAgentSession checks that a session is kept with its home directory, without the login, and
// that consults that go on from it have copies, however the agent loads it.
func TestAgentSession(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"", "load"} {
		t.Run("by "+how, func(t *testing.T) {
			t.Parallel()
			a := newAgents(t)
			login := filepath.Join(a.home, "login-file")
			if err := os.WriteFile(login, []byte("the token"), 0o600); err != nil {
				t.Fatal(err)
			}
			agent := engine.Agent{Args: []string{how}, Login: []string{login}}
			first, dir := a.run(agent, map[string]any{"prompt": acptest.Prompt("one",
				acptest.Step{Shell: "rm ~/login-*; echo renewed >~/login-file; mkdir ~/.cache; mkfifo ~/fifo; ln -s / ~/root"},
				acptest.Step{Cost: 0.25}, acptest.Step{Say: "hi"})})
			if first.Session != filepath.Base(dir) || first.CostUSD == nil || *first.CostUSD != 0.25 {
				t.Fatalf("%+v", first)
			}
			kept, err := writetest.Listing(filepath.Join(dir, "home"))
			if err != nil || strings.Contains(kept, "/login-file -") || strings.Contains(kept, "/.cache d") ||
				strings.Contains(kept, "/fifo p") || !strings.Contains(kept, ".fake") {
				t.Errorf("%v, kept %s", err, kept)
			}
			second := ""
			for range 2 {
				out, next := a.run(agent, map[string]any{
					"prompt":  acptest.Prompt("two", acptest.Step{TellAll: true}, acptest.Step{Shell: "touch ~/more"}, acptest.Step{TellAll: true}),
					"session": first.Session,
				})
				if strings.Count(out.Answer, "@acp") != 2 || strings.Contains(out.Answer, "said before") ||
					out.Session != filepath.Base(next) {
					t.Errorf("%+v, %v", out, out.Fault)
				}
				second = out.Session
			}
			if now, err := writetest.Listing(filepath.Join(dir, "home")); err != nil || now != kept {
				t.Errorf("%v, the first session is now %s", err, now)
			}
			out, _ := a.run(agent, map[string]any{"prompt": acptest.Prompt("three", acptest.Step{TellAll: true}), "session": second})
			if strings.Count(out.Answer, "@acp") != 3 {
				t.Errorf("%+v", out)
			}
			for _, bad := range []string{"ffffffffffff", "../" + first.Session, "00000000-0000-0000-0000-000000000000"} {
				out, _ := a.run(agent, map[string]any{"prompt": "x", "session": bad})
				if out.Fault == nil || out.Fault.Fault.Code != fault.InvalidInput {
					t.Errorf("session %s: %+v", bad, out)
				}
			}
			for _, method := range []string{"resume", "load"} {
				agent := engine.Agent{Args: []string{how, "die=session/" + method}}
				out, _ = a.run(agent, map[string]any{"prompt": "x", "session": second})
				died := out.Fault != nil && out.Fault.Reason() == fault.BadOutput
				if asked := (method == "load") == (how == "load"); died != asked {
					t.Errorf("of one that dies at session/%s: %+v, %v", method, out, out.Fault)
				}
			}
			out, _ = a.run(engine.Agent{Args: []string{"bare"}}, map[string]any{"prompt": "x", "session": second})
			if out.Fault == nil || out.Fault.Fault.Code != fault.InvalidInput {
				t.Errorf("of an agent that loads none: %+v", out)
			}
		})
	}
}

// TestAgentsAtOnce runs two consults of one agent at the same time. Neither sees what the other has in
// its home.
func TestAgentsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	both := filepath.Join(t.TempDir(), "both")
	var hosts []*host
	var dirs []string
	for _, name := range []string{"one", "two"} {
		h, dir := a.start(engine.Agent{}, map[string]any{"prompt": acptest.Prompt("x",
			acptest.Step{Shell: "touch ~/" + name}, acptest.Step{Say: "ready"}, acptest.Step{Await: both},
			acptest.Step{Shell: "cd; ls"}, acptest.Step{TellResult: true})})
		hosts, dirs = append(hosts, h), append(dirs, dir)
	}
	for _, dir := range dirs {
		transcriptHas(t, dir, engine.KindPiece, "ready")
	}
	if err := os.WriteFile(both, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, h := range hosts {
		h.wait()
		if out := outcomeOf(t, dirs[i]); out.Answer != []string{"one\n<nil>", "two\n<nil>"}[i] {
			t.Errorf("in the home of %d there is %q; %v", i, out.Answer, out.Fault)
		}
	}
}

// TestAgentHome lets the agent put links in the place of its home directory and of parts of it: no
// file of the user's is removed or copied when the home is kept, and one that is too large is not.
func TestAgentHome(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		kept   bool
	}{
		"the home":        {`mv ~ $TMPDIR/x; ln -s $P $TMPDIR/home`, false},
		"of the login":    {`rm -r ~/.l; ln -s $P/.l ~/.l`, false},
		"the cache":       {`ln -s $P/.l ~/.cache`, true},
		"relative":        {`ln -s ../../../../../../../../..$P/.l ~/way`, true},
		"too large":       {`head -c 70000000 /dev/zero >~/big`, false},
		"large and cache": {`mkdir ~/.cache; head -c 70000000 /dev/zero >~/.cache/big`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAgents(t)
			login := filepath.Join(a.home, ".l", "token")
			err := os.MkdirAll(filepath.Dir(login), 0o700)
			if err == nil {
				err = os.WriteFile(login, []byte("the token"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			out, _ := a.run(engine.Agent{Login: []string{login}}, map[string]any{"prompt": acptest.Prompt("x",
				acptest.Step{Shell: strings.ReplaceAll(tt.script, "$P", a.home)}, acptest.Step{Say: "hi"})})
			if out.Answer != "hi" || (out.Session != "") != tt.kept {
				t.Errorf("%+v, %v", out, out.Fault)
			}
			if notes := strings.Join(out.Notes, " "); strings.Contains(notes, "its session is not kept") == tt.kept {
				t.Errorf("notes %q", notes)
			}
			if b, err := os.ReadFile(login); err != nil || string(b) != "the token" {
				t.Errorf("the login: %q, %v", b, err)
			}
			if tt.kept {
				again, _ := a.run(engine.Agent{Login: []string{login}}, map[string]any{"prompt": "y", "session": out.Session})
				if again.Answer != "answer to: y" {
					t.Errorf("%+v, %v", again, again.Fault)
				}
			}
		})
	}
}

// TestAgentReads checks what an agent reads through the host: regular files below the directories
// of the consult, and nothing else.
func TestAgentReads(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	in := func(name string) string { return filepath.Join(a.project, name) }
	secret := filepath.Join(a.home, "secret")
	for path, text := range map[string]string{
		in("f.txt"): "one\ntwo\nthree\n", secret: "secret", in("big"): strings.Repeat("x", 1<<20+1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Symlink(secret, in("link")), os.Symlink("f.txt", in("inside")), os.Symlink(a.home, in("dir")),
		os.Symlink("/dev/zero", in("device")), syscall.Mkfifo(in("fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		params map[string]any
		want   string // "" is an error
	}{
		{map[string]any{"path": in("f.txt")}, `{"content":"one\ntwo\nthree\n"}`},
		{map[string]any{"path": in("inside"), "line": 2, "limit": 1}, `{"content":"two\n"}`},
		{map[string]any{"path": in("f.txt"), "line": 9, "limit": 7}, `{"content":""}`},
		{map[string]any{"path": in("../" + filepath.Base(a.home) + "/secret")}, ""},
		{map[string]any{"path": secret}, ""},
		{map[string]any{"path": "f.txt"}, ""},
		{map[string]any{"path": in("link")}, ""},
		{map[string]any{"path": in("dir/secret")}, ""},
		{map[string]any{"path": in("fifo")}, ""},
		{map[string]any{"path": in("device")}, ""},
		{map[string]any{"path": "/dev/zero"}, ""},
		{map[string]any{"path": a.project}, ""},
		{map[string]any{"path": in("big")}, ""},
		{map[string]any{"path": 7}, ""},
	}
	var all steps
	denials := 0
	for i, tt := range tests {
		b, err := json.Marshal(tt.params)
		if err != nil {
			t.Fatal(err)
		}
		if tt.want == "" {
			denials++
		}
		all = append(all, acptest.Step{Call: "fs/read_text_file", Params: b}, acptest.Step{TellResult: true, ID: fmt.Sprint(i)})
	}
	out, _ := a.run(engine.Agent{FS: true}, map[string]any{"prompt": acptest.Prompt("x", all...)})
	answers := strings.Split(out.Answer, "\n\n")
	if len(answers) != len(tests) || len(out.Denials) != denials {
		t.Fatalf("%d answers, %d denials, %v", len(answers), len(out.Denials), out.Fault)
	}
	for i, tt := range tests {
		if refused := strings.Contains(answers[i], `"code":-32602`); refused != (tt.want == "") ||
			!strings.Contains(answers[i], tt.want) {
			t.Errorf("%v: %q, want %q", tt.params, answers[i], tt.want)
		}
	}
}

// TestAgentReadsAPipe_ItEndsAtOnce checks that an agent which says that it reads a named pipe of the project
// finds it empty, and answers.
func TestAgentReadsAPipe_ItEndsAtOnce(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	pipe := filepath.Join(a.project, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := a.run(engine.Agent{}, map[string]any{
		"prompt": acptest.Prompt("x", acptest.Step{Read: pipe}, acptest.Step{TellResult: true}),
	})
	if out.Fault != nil || !strings.Contains(out.Answer, `read "", <nil>`) {
		t.Errorf("%v: %q", out.Fault, out.Answer)
	}
}

// TestAgentEnds checks how a run ends that must end: at its deadline with the best answer, by a
// cancellation with what was said, and both of an agent that heeds nothing.
func TestAgentEnds(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	quick := engine.Ladder{
		Interrupt: 3 * time.Second, Best: 10 * time.Second, Leave: time.Second, Cancel: 3 * time.Second,
		Grace: 200 * time.Millisecond, CancelGrace: 200 * time.Millisecond, Stall: time.Minute, Introduce: time.Minute,
	}
	// One that heeds has as long as it takes on a busy machine.
	heeded := patient()
	heeded.Leave, heeded.Cancel = waitLimit, waitLimit
	hangs := acptest.Prompt("x", acptest.Step{Say: "so far"}, acptest.Step{Hang: true})
	late := map[string]any{"prompt": hangs, "timeout_ms": 8000, "ladder": quick}
	out, _ := a.run(engine.Agent{}, map[string]any{"prompt": hangs, "timeout_ms": 8000, "ladder": heeded})
	if out.Fault != nil || !out.Partial || !strings.Contains(out.Answer, "answer to: The time for this task is up.") {
		t.Errorf("deadline: %+v, %v", out, out.Fault)
	}
	out, _ = a.run(engine.Agent{Args: []string{"deaf"}}, late)
	if out.Fault == nil || out.Fault.Fault.Code != fault.Timeout || out.Answer != "so far" || out.Session == "" {
		t.Errorf("deadline of a deaf one: %+v, %v", out, out.Fault)
	}
	for _, tt := range []struct {
		args   []string
		ladder engine.Ladder
	}{{nil, heeded}, {[]string{"deaf"}, quick}, {[]string{"die=session/cancel"}, quick}} {
		h, dir := a.start(engine.Agent{Args: tt.args}, map[string]any{"prompt": hangs, "ladder": tt.ladder})
		transcriptHas(t, dir, engine.KindPiece, "so far")
		h.send(0, "notifications/cancelled", map[string]any{"requestId": 1})
		if answers := h.wait(); len(answers) != 0 {
			t.Errorf("a cancelled call was answered: %+v", answers)
		}
		out := outcomeOf(t, dir)
		if out.State != engine.Aborted || out.Answer != "so far" || out.Session != filepath.Base(dir) {
			t.Errorf("cancelled: %+v", out)
		}
	}
	out, _ = a.run(engine.Agent{Args: []string{"die=session/cancel"}}, late)
	if out.Fault == nil || out.Answer != "so far" {
		t.Errorf("deadline of one that dies then: %+v, %v", out, out.Fault)
	}
	// One that never answers the handshake.
	h, dir := a.start(engine.Agent{Args: []string{"version=1"}}, map[string]any{
		"prompt": "x", "timeout_ms": 1, "ladder": quick,
	})
	h.wait()
	if out := outcomeOf(t, dir); out.Fault == nil || out.Fault.Fault.Code != fault.Timeout {
		t.Errorf("at once: %+v", out)
	}
}

// TestAgentThatSpeaksSomethingElse_SaysWhatItPrinted checks what becomes of a program that does not answer
// initialize: it is ended soon, whatever time the consult has, with the words that it printed.
func TestAgentThatSpeaksSomethingElse_SaysWhatItPrinted(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	impatient := engine.DefaultLadder()
	impatient.Grace = 200 * time.Millisecond
	for _, tt := range []struct {
		args, want string
		introduce  time.Duration // for those that print something first, enough on a busy machine
	}{
		{"mute", "has not answered initialize", 5 * time.Second},
		{"mute greets", `It printed: "Welcome! / Type your message."`, 20 * time.Second},
		{"greets die=initialize", `It printed: "Welcome! / Type your message."`, time.Minute},
	} {
		impatient.Introduce = tt.introduce
		out, _ := a.run(engine.Agent{Args: strings.Fields(tt.args)}, map[string]any{
			"prompt": "x", "timeout_ms": 10 * 60 * 1000, "ladder": impatient,
		})
		if out.Fault == nil || out.Fault.Fault.Code != fault.DownstreamFailure || out.Fault.Reason() != fault.BadOutput ||
			!strings.Contains(out.Fault.Fault.Detail, tt.want) {
			t.Errorf("%s: %+v, %v", tt.args, out, out.Fault)
		}
	}
}

// TestAgentSaid checks that a message to a running agent is its next turn, in the same process.
func TestAgentSaid(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	go1 := filepath.Join(t.TempDir(), "go")
	h, dir := a.start(engine.Agent{}, map[string]any{
		"prompt": acptest.Prompt("x", acptest.Step{Say: "first"}, acptest.Step{Await: go1}),
	})
	transcriptHas(t, dir, engine.KindPiece, "first")
	for _, id := range []string{"m1", "m2"} {
		if err := messages.Add(dir, messages.Message{ID: id, Text: "more of " + id}); err != nil {
			t.Fatal(err)
		}
	}
	transcriptHas(t, dir, engine.KindSaid, "")
	await(t, "both messages", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, engine.FileTranscript))
		return strings.Count(string(b), `"k":"said"`) == 2
	})
	if err := os.WriteFile(go1, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.wait()
	out := outcomeOf(t, dir)
	b, err := os.ReadFile(filepath.Join(dir, engine.FileTranscript))
	if out.Answer != "answer to: more of m1\n\nmore of m2" || out.Turns != 2 || err != nil ||
		strings.Count(string(b), `"k":"heard"`) != 2 {
		t.Errorf("%+v, %v, transcript %s", out, out.Fault, b)
	}
	if err := messages.Add(dir, messages.Message{ID: "m3", Text: "late"}); err == nil {
		t.Error("a message was taken behind the end")
	}
}

// TestAgentSecrets checks that values of the variables that the configuration gives an agent are
// in no file that is kept, although the agent prints them wherever it can.
func TestAgentSecrets(t *testing.T) {
	t.Parallel()
	a := newAgents(t)
	show := acptest.Prompt("x", acptest.Step{Shell: "echo $KEY; echo $KEY >&2; true $KEY"}, acptest.Step{TellResult: true},
		acptest.Step{Error: -32603})
	_, dir := a.run(engine.Agent{}, map[string]any{"prompt": show, "mask": []string{"KEY"}}, "KEY=planted-secret-value")
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if b, err := os.ReadFile(path); err != nil || strings.Contains(string(b), "planted-secret") {
			if filepath.Base(path) != engine.FileOutcome { // it has the model's answer, as it was said
				t.Errorf("%s: %v, %s", path, err, b)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
