package planview

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/clients"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/importer"
	"holdline/daemon/config"
)

// goesOn is a long text.
var goesOn = strings.TrimSpace(strings.Repeat("on and on ", 9))

// plan returns the plan for some clients' files.
func plan(t *testing.T) *importer.Plan {
	t.Helper()
	home := t.TempDir()
	for name, text := range map[string]string{
		".claude.json": `{"mcpServers": {"github": {"command": "a", "env": {"TOKEN": "x"}},
			"far": {"url": "https://x/mcp"}, "fails": {"command": "b"}}}`,
		".cursor/mcp.json": `{"mcpServers": {"github": {"command": "a", "env": {"TOKEN": "y"}},
			"my tool": {"command": "a"}}}`,
		".codex/config.toml":       "[mcp_servers.github]\ncommand = \"a\"\nenv = {TOKEN = \"x\"}\n",
		".copilot/mcp-config.json": "{\n  \"mcpServers\": {,\n",
		"w/.git/HEAD":              "", "w/.mcp.json": `{"mcpServers": {"p": {"command": "a"}, "q": {"command": "a"}}}`,
	} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := importer.Look(t.Context(), importer.Options{
		Places: clients.Places{
			Home: home, Cwd: filepath.Join(home, "w"), Getenv: func(string) string { return "" }, System: "linux",
		},
		Command: "/opt/bin/holdline", Config: filepath.Join(home, "c.json"), State: filepath.Join(home, "s"),
		Try: func(_ context.Context, s *config.Settings, _ string) importer.Trial {
			switch {
			case s.URL != "":
				return importer.Trial{Err: errors.New("it needs a login (401)"), Login: true}
			case s.Command == "b":
				return importer.Trial{Err: errors.New("its last words go " + goesOn)}
			}
			return importer.Trial{Tools: []string{"read", "write"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPrint checks the lines of a plan: the summary first, then each server once.
func TestPrint(t *testing.T) {
	p := plan(t)
	var out bytes.Buffer
	Print(console.NewOutput(&out), p, false)
	home := filepath.Dir(p.Config)
	got := strings.ReplaceAll(strings.ReplaceAll(out.String(), home, "$HOME"), goesOn, "…")
	want := `7 servers (3 clients, 8 entries): 3 start, 1 needs a login, 1 does not start, 2 stay.
  moves  github         Claude Code, Codex; 2 tools     one for each project
  moves  far            Claude Code; log in once: holdline servers login far; shared by all projects
  moves  github-cursor  Cursor; 2 tools; not as github: variable TOKEN differs; one for each project
  moves  my-tool        Cursor; 2 tools; there my tool  one for each project
  stays  fails          Claude Code: it does not start: its last words go …
  adds   holdline       Claude Code, Codex, Cursor; consult and Holdline's other own tools
  stays  p, q           Claude Code: $HOME/w/.mcp.json is not edited: it is a project's file: --project has it imported
  error  copilot        $HOME/.copilot/mcp-config.json: line 2, column 18: it is no valid JSON
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPrintLate checks that a plan says once what may keep servers from answering that a
// downloader starts.
func TestPrintLate(t *testing.T) {
	const hint = "No answer in time by way of npx: the server may still be downloading"
	for runs, want := range map[string]int{"npx": 1, "python3": 0} {
		var out bytes.Buffer
		late := func(name string) *importer.Server {
			return &importer.Server{Name: name, Verdict: importer.Stays, Runs: runs, Late: true}
		}
		Print(console.NewOutput(&out), &importer.Plan{
			Files: []*importer.File{{Servers: []*importer.Server{late("a"), late("b")}}},
		}, false)
		if got := strings.Count(out.String(), hint); got != want {
			t.Errorf("%s: the hint is there %d times, want %d:\n%s", runs, got, want, out.String())
		}
	}
}

// TestTriesElsewhere checks that progress in a pipe is one line for each server.
func TestTriesElsewhere(t *testing.T) {
	var out bytes.Buffer
	live, show := Tries(console.NewOutput(&out))
	show(importer.TryEvent{Name: "a", Of: 2})
	show(importer.TryEvent{Name: "b", Of: 2})
	live.Say("b", "it comes")
	show(importer.TryEvent{Name: "a", Of: 2, Trial: &importer.Trial{Tools: []string{"x"}}})
	show(importer.TryEvent{Name: "b", Of: 2, Trial: &importer.Trial{Err: errors.New("it is gone")}})
	live.Close()
	live.Say("b", "it comes late")
	if got, want := out.String(), "a: starts, 1 tool\nb: it is gone\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
