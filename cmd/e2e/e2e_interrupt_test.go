package e2e

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// endLimit is how long a consult may take to end after its client has cancelled it or
// ended.
const endLimit = waitLimit

// endless returns a prompt whose answer does not end.
func endless() string {
	return claudetest.Prompt("think",
		claudetest.Step{Text: new(strings.Repeat("word ", 10_000)), Chunk: 5, ChunkDelay: 0.05})
}

// TestE2EInterrupt interrupts real clients during a consult, as Ctrl-C does. Within three
// seconds no process of the consult is left.
func TestE2EInterrupt(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	args := map[string]any{"prompt": endless()}
	for _, tt := range []struct {
		name string
		run  func(t *testing.T) (p *place, c *client, deep func() bool)
	}{
		{"claude", func(t *testing.T) (*place, *client, func() bool) {
			t.Helper()
			p, api := nested(t)
			c := p.claudeClient(t, realClaude(t, consultVersion), "",
				claudetest.Prompt("work", holdlineTool("consult", args)))
			return p, c, func() bool { return len(asked(api, "think ")) > 0 }
		}},
		{"codex", func(t *testing.T) (*place, *client, func() bool) {
			t.Helper()
			p, api := nested(t)
			c, _ := p.codexClient(t, "stand-in", codexTool("consult", args))
			return p, c, func() bool { return len(asked(api, "think ")) > 0 }
		}},
		{"codex, in a script", func(t *testing.T) (*place, *client, func() bool) {
			t.Helper()
			p, api := nested(t)
			c, _ := p.codexClient(t, "", codexCode("text(await tools.mcp__holdline__consult("+mustJSON(t, args)+"))"))
			return p, c, func() bool { return len(asked(api, "think ")) > 0 }
		}},
		{"a process of the consult's own", func(t *testing.T) (*place, *client, func() bool) {
			t.Helper()
			bin := realClaude(t, consultVersion)
			p := newPlace(t)
			p.standIn(t)
			p.daemon()
			prompt := claudetest.Prompt("think", claudetest.Step{Do: "grandchild"}, claudetest.Step{Do: "hang"})
			c := p.claudeClient(t, bin, "",
				claudetest.Prompt("work", holdlineTool("consult", map[string]any{"prompt": prompt})))
			return p, c, func() bool {
				for _, command := range p.processes() {
					if strings.HasPrefix(command, "sleep ") {
						return true
					}
				}
				return false
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, c, deep := tt.run(t)
			p.calling(t)
			s := p.until("the consult's processes", func(s control.StatusAnswer) bool {
				return len(s.Workers) == 1 && s.Workers[0].ChildPID != 0 && deep()
			})
			begin := time.Now()
			if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			p.until("the end of the consult", func(now control.StatusAnswer) bool {
				return now.Consults.Running == 0 && len(now.Workers) == 0 && len(now.Sessions) == 0
			})
			for {
				left := p.processes()
				delete(left, s.Daemon.PID)
				if len(left) == 0 {
					break
				}
				if time.Since(begin) > endLimit {
					t.Fatalf("left after %v: %v", time.Since(begin), left)
				}
				time.Sleep(10 * time.Millisecond)
			}
			took := time.Since(begin)
			t.Logf("all was gone after %v", took)
			if took > endLimit {
				t.Errorf("it took %v, want at most %v", took, endLimit)
			}
			<-c.done
			out, errs, code := p.run("", "consult", "list", "--json")
			var kept []control.Consult
			if err := json.Unmarshal([]byte(out), &kept); err != nil || code != 0 || len(kept) != 1 ||
				kept[0].State != "cancelled" {
				t.Errorf("consults: exit %d, %v\n%s%s", code, err, out, errs)
			}
		})
	}
}

// TestE2ECancel interrupts a turn of Claude Code, which keeps running. The consult ends,
// the session stays, and the next turn works.
func TestE2ECancel(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	for _, tt := range []struct {
		era string
		env []string
	}{{"modern", nil}, {"legacy", []string{"MCP_PROTOCOL_NEGOTIATION=legacy"}}} {
		t.Run(tt.era, func(t *testing.T) {
			p, api := nested(t)
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			argv := append(p.claudeArgs(t, realClaude(t, consultVersion), ""), "--input-format", "stream-json")
			c := p.clientOn(t, in, claudeEnv(p.env, tt.env...), argv...)
			say := func(prompt string) {
				t.Helper()
				if _, err := io.WriteString(out,
					`{"type":"user","message":{"role":"user","content":`+mustJSON(t, prompt)+"}}\n"); err != nil {
					t.Fatal(err)
				}
			}
			say(claudetest.Prompt("work", holdlineTool("consult", map[string]any{"prompt": endless()})))
			before := p.calling(t)
			if before.Era != tt.era {
				t.Errorf("session %+v, want era %s", before, tt.era)
			}
			p.until("the consult", func(control.StatusAnswer) bool { return len(asked(api, "think ")) > 0 })
			begin := time.Now()
			if _, err := io.WriteString(out,
				`{"type":"control_request","request_id":"stop","request":{"subtype":"interrupt"}}`+"\n"); err != nil {
				t.Fatal(err)
			}
			s := p.until("the end of the consult", func(s control.StatusAnswer) bool {
				return s.Consults.Running == 0 && len(s.Workers) == 0
			})
			if took := time.Since(begin); took > endLimit {
				t.Errorf("it took %v, want at most %v", took, endLimit)
			}
			if len(s.Sessions) != 1 || s.Sessions[0].ID != before.ID || s.Sessions[0].InFlight != 0 {
				t.Errorf("sessions %+v, want the one of %+v", s.Sessions, before)
			}
			say(claudetest.Prompt("work again", holdlineTool("health_snapshot", map[string]any{}),
				claudetest.Step{Echo: "tool_results"}))
			if err := out.Close(); err != nil {
				t.Fatal(err)
			}
			<-c.done
			if text := c.out.String(); !strings.Contains(text, `"Ready. `) {
				t.Error("health_snapshot was not answered after the interrupt")
			}
		})
	}
}
