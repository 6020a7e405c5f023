package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
)

// TestE2EInspector has the MCP Inspector list and call tools, in both eras.
func TestE2EInspector(t *testing.T) {
	t.Parallel()
	inspector := realInspector(t)
	for _, era := range []string{"legacy", "modern", "auto"} {
		t.Run(era, func(t *testing.T) {
			p := newPlace(t)
			p.daemon()
			begin := func(args ...string) *client {
				t.Helper()
				argv := append(slices.Clone(inspector), "--protocol-era", era, "--quiet", "--format", "json",
					filepath.Join(programs, "holdline"), "mcp-stdio", "--identity", "inspector")
				return p.client(t, p.env, append(argv, args...)...)
			}
			end := func(c *client, v any) {
				t.Helper()
				if out := c.wait(t); json.Unmarshal([]byte(out), v) != nil {
					t.Fatalf("%q is no JSON", out)
				}
			}
			var list struct {
				Result struct {
					Tools []struct {
						Name string
					}
				}
			}
			end(begin("--method", "tools/list", "--strict"), &list)
			var names []string
			for _, tool := range list.Result.Tools {
				names = append(names, tool.Name)
			}
			if want := ownToolNames(); !slices.Equal(names, want) {
				t.Errorf("tools %q, want %q", names, want)
			}
			call := func(tool string, args map[string]any) *client {
				t.Helper()
				b, err := json.Marshal(args)
				if err != nil {
					t.Fatal(err)
				}
				return begin("--method", "tools/call", "--tool-name", tool, "--tool-args-json", string(b))
			}
			answer := func(c *client) (text string, structured json.RawMessage) {
				t.Helper()
				var x struct {
					Result struct {
						Content           []struct{ Text string }
						StructuredContent json.RawMessage
						IsError           bool
					}
				}
				end(c, &x)
				if x.Result.IsError || len(x.Result.Content) == 0 {
					t.Fatalf("answer %+v", x)
				}
				return x.Result.Content[0].Text, x.Result.StructuredContent
			}
			if text, structured := answer(call("health_snapshot", map[string]any{})); !strings.HasPrefix(text,
				"Ready. ") || structured != nil {
				t.Errorf("health_snapshot = %q, %s", text, structured)
			}
			var health struct{ Ready bool }
			_, structured := answer(call("health_snapshot", map[string]any{"render": "json"}))
			if err := json.Unmarshal(structured, &health); err != nil || !health.Ready {
				t.Errorf("health_snapshot as JSON = %s, %v", structured, err)
			}
			if text, _ := answer(call("telemetry_snapshot", map[string]any{})); !strings.Contains(text,
				"tools/call:health_snapshot") {
				t.Errorf("telemetry_snapshot = %q", text)
			}
			step := claudetest.Say("an opinion")
			step.Delay = 1
			c := call("consult", map[string]any{"prompt": claudetest.Prompt("what do you think?", step)})
			want := era
			if era == "auto" {
				want = "modern"
			}
			if s := p.calling(t); s.Era != want || s.Identity != "inspector" ||
				!strings.Contains(s.Client, "inspector") {
				t.Errorf("session %+v, want era %s", s, want)
			}
			if text, structured := answer(c); !strings.HasPrefix(text, "an opinion") || structured != nil {
				t.Errorf("consult = %q, %s", text, structured)
			}
			p.faultless(t)
		})
	}
}
