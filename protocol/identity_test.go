package protocol_test

import (
	"slices"
	"testing"

	"holdline/protocol"
)

// TestClientName checks under which name each well-known client is known.
func TestClientName(t *testing.T) {
	for name, want := range map[string]string{
		"claude-code": "claude-code", "claude-ai": "claude-desktop", "codex-mcp-client": "codex", "Codex": "codex",
		"cursor-vscode": "cursor", "Cursor": "cursor", "gemini-cli-mcp-client": "gemini",
		"gemini-cli-mcp-client-holdline": "gemini", "Visual Studio Code": "vscode",
		"Visual Studio Code - Insiders": "vscode", "Zed": "zed", "opencode": "opencode", "Cline": "cline",
		"windsurf-client": "windsurf", "claude-ai (via mcp-remote 0.1.37)": "claude-desktop",
		"Zed (via mcp-remote 1)": "zed", "": "", "nightly": "nightly", "Nightly Build": "Nightly Build",
		"codexx":           "codexx",
		"unverified:codex": "unverified:codex",
	} {
		got := protocol.ClientName(name)
		if got != want {
			t.Errorf("%q is called %q, want %q", name, got, want)
		}
		if again := protocol.ClientName(got); again != got {
			t.Errorf("%q is called %q, and that %q", name, got, again)
		}
		if got != name && !slices.Contains(protocol.ClientNames(), got) {
			t.Errorf("%q is no name of a known client", got)
		}
	}
	for _, name := range protocol.ClientNames() {
		if got := protocol.ClientName(name); got != name {
			t.Errorf("%q is called %q", name, got)
		}
	}
}
