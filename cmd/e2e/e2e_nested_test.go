package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// consultVersion is the version of Claude Code that answers the consults of these tests.
const consultVersion = "2.1.329"

// nested returns a place whose consults run the real Claude Code.
func nested(t *testing.T) (*place, *claudetest.API) {
	t.Helper()
	bin := realClaude(t, consultVersion)
	p := newPlace(t)
	api := p.standIn(t)
	p.env = append(p.env, "HOLDLINE_CLAUDE_BIN="+bin)
	if err := os.WriteFile(filepath.Join(p.project, "main.go"), []byte("package main // the marker is 4711\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	p.daemon()
	return p, api
}

// asked returns the requests to the model of the conversation whose first user message has
// these words.
func asked(api *claudetest.API, words string) []claudetest.Request {
	return slices.DeleteFunc(api.Requests(), func(r claudetest.Request) bool {
		return !strings.Contains(string(r.Body), `"text":"`+words)
	})
}

// TestE2ENested has real clients consult the real Claude Code, which reads a file of the
// project.
func TestE2ENested(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	consult := func(p *place) map[string]any {
		return map[string]any{"prompt": claudetest.Prompt(
			"what is the marker?",
			claudetest.Step{Tool: claudetest.Tool{
				Name: "Read", Input: map[string]any{"file_path": filepath.Join(p.project, "main.go")},
			}},
			claudetest.Step{Echo: "tool_results"},
		)}
	}
	check := func(t *testing.T, p *place, api *claudetest.API, text string) {
		t.Helper()
		if !strings.Contains(text, "the marker is 4711") || !strings.Contains(text, "level read") {
			t.Errorf("the outer model read %q", text)
		}
		inner := asked(api, "what is the marker? ")
		for _, r := range inner {
			for _, name := range r.Tools {
				switch name {
				case "Read", "Grep", "Glob", "WebFetch", "WebSearch":
				case "DeferredToolPlaceholder": // a placeholder that cannot be called
				default:
					t.Errorf("the consulted model was offered %s", name)
				}
			}
		}
		if len(inner) != 2 {
			t.Errorf("%d requests of the consult, want 2", len(inner))
		}
		p.faultless(t)
	}
	t.Run("claude", func(t *testing.T) {
		p, api := nested(t)
		bin := realClaude(t, consultVersion)
		c := p.claudeClient(t, bin, "",
			claudetest.Prompt("work", holdlineTool("consult", consult(p)), claudetest.Step{Echo: "tool_results"}))
		run := readClaude(t, c.wait(t))
		check(t, p, api, toolResults(t, run.result, 1)[0].text())
	})
	t.Run("codex", func(t *testing.T) {
		p, api := nested(t)
		c, _ := p.codexClient(t, "",
			codexCode("text((await tools.mcp__holdline__consult("+mustJSON(t, consult(p))+")).content[0].text)"),
			codextest.Step{Echo: true})
		message, _ := readCodex(t, c.wait(t))
		check(t, p, api, codexOutputs(t, message, 1)[0])
	})
}
