package e2e

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// heldServerMain plays an MCP server that offers something of each kind: the tools effect and look, of
// which the second is read-only, the prompt greet, and the resource mem://a. It notes each use
// of them in the ledger, "begin" and the kind, answers once the file of -gate is there, and notes
// "end" and the kind.
func heldServerMain(args []string, stdin io.Reader, stdout io.Writer) int {
	f := flag.NewFlagSet("heldserver", flag.ContinueOnError)
	s := &standIn{name: "held", in: stdin, out: stdout}
	f.StringVar(&s.ledger, "ledger", "", "")
	gate, mark := f.String("gate", "", ""), f.String("mark", "", "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	_ = *mark // another one makes another entry
	var calls sync.WaitGroup
	defer calls.Wait()
	return s.serve(func(m *toolMessage) int {
		hold := func(kind, result string) {
			s.note("begin " + kind)
			calls.Go(func() {
				for { // the file may come at any time
					if _, err := os.Stat(*gate); err == nil {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				s.answer(m.ID, result)
				s.note("end " + kind)
			})
		}
		switch m.Method {
		case "initialize":
			s.answer(m.ID, `{"protocolVersion":"2025-11-25","serverInfo":{"name":"held","version":"1"},`+
				`"capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{}}}`)
		case "tools/list":
			s.answer(m.ID, `{"tools":[{"name":"effect","inputSchema":{"type":"object"}},`+
				`{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}`)
		case "prompts/list":
			s.answer(m.ID, `{"prompts":[{"name":"greet","arguments":[{"name":"who"}]}]}`)
		case "resources/list":
			s.answer(m.ID, `{"resources":[{"name":"a","uri":"mem://a"}]}`)
		case "tools/call":
			hold(m.Params.Name, textResult("held "+m.Params.Name))
		case "prompts/get":
			hold("prompt", `{"messages":[{"role":"user","content":{"type":"text","text":"held prompt"}}]}`)
		case "resources/read":
			hold("resource", `{"contents":[{"uri":"mem://a","text":"held resource"}]}`)
		case "completion/complete":
			hold("completion", `{"completion":{"values":["held completion"]}}`)
		default:
			s.reply(m)
		}
		return goOn
	})
}

// heldEntry returns the held server as an entry of the configuration.
func (p *place) heldEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command":  filepath.Join(programs, "heldserver"),
		"args":     append([]string{"-ledger", p.effects(), "-gate", filepath.Join(p.dir, "gate")}, args...),
		"holdline": h,
	}
}

// TestConfigurationChangesOverKill_PendingCallsGoByTheLaw has calls of each kind pending at a kill of the daemon,
// and changes the configuration before the next one starts, so that none of them could be made any more. Their
// server lives on, or is killed, too, or answers and leaves meanwhile. Whatever was answered arrives. What was
// lost is made again if it may run twice and still may be called, else its outcome is unknown. No call is
// answered as if it had never run, and no effect happens twice.
func TestConfigurationChangesOverKill_PendingCallsGoByTheLaw(t *testing.T) {
	t.Parallel()
	with := func(p *place, h hosting, args ...string) map[string]any {
		return map[string]any{"held": p.heldEntry(h, args...)}
	}
	shared := hosting{"scope": "shared"}
	view := []any{"views", map[string]any{"v": map[string]any{"allow": []string{"held__*", "held"}}}}
	for _, change := range []struct {
		name string
		edit func(p *place)
		may  bool // the calls may still be made
	}{
		{"removed", func(p *place) { p.configure(map[string]any{}, view...) }, false},
		{"without settings", func(p *place) { p.configure(map[string]any{}) }, false},
		{"renamed", func(p *place) { p.configure(map[string]any{"other": p.heldEntry(shared)}, view...) }, false},
		{"edited", func(p *place) { p.configure(with(p, shared, "-mark", "x"), view...) }, true},
		{"disabled", func(p *place) {
			e := p.heldEntry(shared)
			e["disabled"] = true
			p.configure(map[string]any{"held": e}, view...)
		}, false},
		{"denied", func(p *place) {
			p.configure(with(p, hosting{"scope": "shared", "deny": []string{"*"}}), view...)
		}, false},
		{"identity denied", func(p *place) {
			p.configure(with(p, shared), append(view, "identities",
				map[string]any{"m": map[string]any{"deny": []string{"held", "held__*"}}})...)
		}, false},
		{"view narrowed", func(p *place) {
			p.configure(with(p, shared), "views", map[string]any{"v": map[string]any{"allow": []string{"none__*"}}})
		}, false},
		{"view removed", func(p *place) { p.configure(with(p, shared)) }, false},
		{"no calls in the budget", func(p *place) {
			p.configure(with(p, shared), append(view, "identities",
				map[string]any{"m": map[string]any{"budget": map[string]any{"calls": 1}}})...)
		}, true},
		{"one call in flight", func(p *place) {
			p.configure(with(p, hosting{"scope": "shared", "max_concurrent": 1}), append(view, "limits",
				map[string]any{"in_flight": 1})...)
		}, true},
	} {
		for _, server := range []string{"lives", "killed", "left"} {
			t.Run(change.name+", server "+server, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				p.configure(with(p, shared), view...)
				d := p.daemon()
				a := p.agent("--no-autostart", "--identity", "m", "--view", "v").shake()
				p.untilReady("held")
				argument := map[string]any{"name": "who", "value": ""}
				pending := map[string]int{
					"effect":   a.call("held__effect", map[string]any{}),
					"look":     a.call("held__look", map[string]any{}),
					"prompt":   a.begin("prompts/get", map[string]any{"name": "held__greet"}),
					"resource": a.begin("resources/read", map[string]any{"uri": "mem://a"}),
					"completion": a.begin("completion/complete", map[string]any{
						"ref": map[string]any{"type": "ref/prompt", "name": "held__greet"}, "argument": argument,
					}),
				}
				for kind := range pending {
					p.untilEffect("begin " + kind)
				}
				workers := p.until("the server's process", func(s control.StatusAnswer) bool {
					return len(s.Workers) == 1
				}).Workers
				kill9(t, d.Process.Pid)
				change.edit(p)
				gate := func() {
					if err := os.WriteFile(filepath.Join(p.dir, "gate"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				switch server {
				case "killed":
					kill9(t, workers[0].PID)
					_ = syscall.Kill(workers[0].ChildPID, syscall.SIGKILL)
					gate()
				case "left":
					gate()
					for kind := range pending {
						p.untilEffect("end " + kind)
					}
					kill9(t, workers[0].ChildPID)
				}
				p.daemon()
				if server == "lives" {
					p.until("the session", func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 })
					gate()
				}
				got := map[string]string{}
				for len(got) < len(pending) {
					line := a.read()
					for kind, id := range pending {
						if strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) {
							got[kind] = line
						}
					}
				}
				for kind := range pending {
					lost := server == "killed" && (kind == "effect" || !change.may)
					if line := got[kind]; !lost && !strings.Contains(line, "held "+kind) ||
						lost && !strings.Contains(line, "outcome_unknown") {
						t.Errorf("%s, lost %v: %s", kind, lost, line)
					}
					again := server == "killed" && change.may && kind != "effect" // it may run twice
					if n := p.effectsOf("begin " + kind); n > 1 && !again {
						t.Errorf("%s was made %d times", kind, n)
					}
				}
			})
		}
	}
}

// TestConfigurationChangesOverKill_ConsultsGoOn has a consult pending at a kill of the daemon, and changes the
// configuration before the next one starts, so that it could not be begun any more. It goes on, once.
func TestConfigurationChangesOverKill_ConsultsGoOn(t *testing.T) {
	t.Parallel()
	identity := func(m map[string]any) []any { return []any{"identities", map[string]any{"m": m}} }
	for name, more := range map[string][]any{
		"denied":         identity(map[string]any{"deny": []string{"consult*"}}),
		"without budget": identity(map[string]any{"budget": map[string]any{"consults_per_day": 1, "max_usd_per_day": 0.01}}),
		"engine not allowed": {
			"consult", map[string]any{"allow": map[string]any{"m": map[string]any{"engines": []string{"codex"}}}},
		},
		"another engine": {"consult", map[string]any{"engine": "codex", "claude_bin": "/does/not/exist"}},
		"no wait":        {"consult", map[string]any{"wait": "0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{})
			d := p.daemon()
			a := p.agent("--no-autostart", "--identity", "m").shake()
			id := a.call("consult", map[string]any{"wait_s": 60, "render": "json", "prompt": claudetest.Prompt("x",
				claudetest.Step{Do: "ledger", Message: p.ledger()},
				claudetest.Step{Delay: 1, Text: new("said after the kill")})})
			p.untilSteps(1)
			kill9(t, d.Process.Pid)
			p.configure(map[string]any{}, more...)
			p.daemon()
			if x := a.wait(id); x.Error != nil || x.Result.IsError || !strings.Contains(x.raw, "said after the kill") {
				t.Errorf("the answer: %s", x.raw)
			}
			if n := p.steps(); n != 1 {
				t.Errorf("the program ran %d times", n)
			}
			a.rest()
		})
	}
}

// TestServerRemovedOverKill_TaskEnds removes the server of a task, and kills the daemon. The task comes to
// its result, and the call that became it is answered with it again.
func TestServerRemovedOverKill_TaskEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t).tasking("shared")
	d := p.daemon()
	a := p.taskAgent("--no-autostart", "--identity", "a")
	working := a.callTask("tools__effect", map[string]any{"token": "one", "until": p.latch("one")})
	p.untilEffect("begin one")
	kill9(t, d.Process.Pid)
	p.configure(map[string]any{})
	p.daemon()
	p.letThrough("one")
	got := a.untilTask(t, working.TaskID)
	if got.Status != "completed" || got.Result == nil || len(got.Result.Content) != 1 || got.Result.Content[0].Text != "one" {
		t.Errorf("the task: %+v", got)
	}
	if n := p.effectsOf("begin one"); n != 1 {
		t.Errorf("the call was made %d times", n)
	}
	a.rest()
}
