package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/tool"
)

// What a client says of itself in each request of MCP 2026-07-28, as Claude Code 2.1.329 says it.
const claudeMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"claude-code","title":"Claude Code","version":"2.1.329",` +
	`"description":"Anthropic's agentic coding tool","websiteUrl":"https://claude.com/claude-code"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}}`

// ownToolNames returns the names of holdline's own tools that a session lists, sorted. A session
// that has to search for hosted tools also has those that find and call them.
func ownToolNames() []string {
	return slices.DeleteFunc(tool.OwnNames(), func(name string) bool {
		return name == tool.FindTools || name == tool.CallTool
	})
}

// TestToolLists_OfRealClients_AreTheGoldenOnes sends what real clients send for the list of tools,
// and compares the answers byte by byte with testdata/tools, where each tool begins a line.
// UPDATE=1 writes those files. What clients cut must not be in the list: descriptions of 2,048
// characters and more.
func TestToolLists_OfRealClients_AreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"e": map[string]any{"command": filepath.Join(programs, "echoserver")}})
	p.daemon()
	for name, lines := range map[string][]string{
		"claude-code-2.1.329": {
			`{"method":"server/discover","jsonrpc":"2.0","id":0,"params":{` + claudeMeta + `}}`,
			`{"method":"tools/list","jsonrpc":"2.0","id":1,"params":{` + claudeMeta + `}}`,
		},
		"claude-code-2.1.329-legacy": {
			`{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},` +
				`"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"claude-code","title":"Claude Code",` +
				`"version":"2.1.329","description":"Anthropic's agentic coding tool",` +
				`"websiteUrl":"https://claude.com/claude-code"}},"jsonrpc":"2.0","id":0}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"method":"tools/list","jsonrpc":"2.0","id":1}`,
		},
		"codex-0.169.0": {
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":` +
				`{"experimental":{"codex/auth-change":{}},"elicitation":{"form":{},"url":{}}},` +
				`"clientInfo":{"name":"codex-mcp-client","title":"Codex","version":"0.169.0"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":0}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.agent()
			for _, line := range lines {
				a.send(line)
			}
			got := strings.Replace(a.wait(1).raw, `"`+cmdenv.Version+`"`, `"VERSION"`, 1)
			var list struct {
				Result struct{ Tools []json.RawMessage }
			}
			decode(t, got, &list)
			for _, raw := range list.Result.Tools {
				got = strings.Replace(got, string(raw), "\n"+string(raw), 1)
				var tool struct{ Name, Description string }
				decode(t, string(raw), &tool)
				if n := utf8.RuneCountInString(tool.Description); n >= 2048 {
					t.Errorf("the description of %s has %d characters", tool.Name, n)
				}
			}
			path := filepath.Join("testdata/tools", name+".txt")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want := content(t, path); got+"\n" != want {
				had := strings.Split(want, "\n")
				t.Errorf("%s (UPDATE=1 writes it anew) has no\n%s", path, strings.Join(slices.DeleteFunc(
					strings.Split(got, "\n"), func(line string) bool { return slices.Contains(had, line) }), "\n"))
			}
		})
	}
}
