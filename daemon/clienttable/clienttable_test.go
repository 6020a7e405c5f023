package clienttable_test

import (
	"slices"
	"strings"
	"testing"

	"holdline/daemon/clienttable"
	"holdline/protocol/mcp"
)

// TestIdentity checks under which name each well-known client is known.
func TestIdentity(t *testing.T) {
	for name, want := range map[string]string{
		"claude-code": "claude-code", "claude-ai": "claude-desktop", "codex-mcp-client": "codex", "Codex": "codex",
		"cursor-vscode": "cursor", "Cursor": "cursor", "gemini-cli-mcp-client": "gemini",
		"gemini-cli-mcp-client-holdline": "gemini", "Visual Studio Code": "vscode",
		"Visual Studio Code - Insiders": "vscode", "Zed": "zed", "opencode": "opencode", "Cline": "cline",
		"windsurf-client": "windsurf", "claude-ai (via mcp-remote 0.1.37)": "claude-desktop",
		"Zed (via mcp-remote 1)": "zed", "copilot-cli": "copilot",
		"": "", "nightly": "nightly", "Nightly Build": "Nightly Build",
		"codexx":           "codexx",
		"unverified:codex": "unverified:codex",
	} {
		got := clienttable.Identity(name)
		if got != want {
			t.Errorf("%q is called %q, want %q", name, got, want)
		}
		if again := clienttable.Identity(got); again != got {
			t.Errorf("%q is called %q, and that %q", name, got, again)
		}
		if got != name && !slices.Contains(clienttable.Identities(), got) {
			t.Errorf("%q is no name of a known client", got)
		}
	}
	for _, name := range clienttable.Identities() {
		if got := clienttable.Identity(name); got != name {
			t.Errorf("%q is called %q", name, got)
		}
	}
}

// TestIgnores checks which clients are known not to list again.
func TestIgnores(t *testing.T) {
	for client, want := range map[string]bool{
		"codex-mcp-client 0.130.0": true, "codex": true, "Codex": true,
		"claude-code 2.1.329": false, "opencode 1.0": false, "gemini-cli-mcp-client 1": false,
		"cursor-vscode 1": false, "nightly 2": false, "": false, // nobody has watched these
	} {
		if got := clienttable.Ignores(client, clienttable.Tools); got != want {
			t.Errorf("%q: %v", client, got)
		}
	}
	if !clienttable.Ignores("opencode 1.0", clienttable.Prompts) {
		t.Error("opencode lists no prompts again")
	}
}

// TestRowsAgreeWithThemselves checks what the code that reads rows relies on.
func TestRowsAgreeWithThemselves(t *testing.T) {
	seen := map[string]string{} // what must be one client's alone, and that client
	alone := func(what, name string) {
		if other, taken := seen[what]; taken {
			t.Errorf("%s and %s both have %s", name, other, what)
		}
		seen[what] = name
	}
	for _, row := range clienttable.Rows() {
		alone("the name "+row.Name, row.Name)
		alone("the title "+row.Title, row.Name)
		alone("the identity "+row.Identity, row.Name)
		for _, call := range row.Calls {
			alone("the call "+call, row.Name)
			if call != strings.ToLower(call) {
				t.Errorf("%s: the call %q is not in lower case, and so is never met", row.Name, call)
			}
		}
		for _, file := range row.User {
			alone("the file "+file, row.Name)
			if !strings.HasPrefix(file, "$") {
				t.Errorf("%s: %q does not begin with a directory", row.Name, file)
			}
		}
		if len(row.User) == 0 || row.Key == "" || len(row.Calls) == 0 {
			t.Errorf("%s lacks a file, the key of its servers, or its name in a handshake", row.Name)
		}
		eras := mcp.Supported()
		for _, version := range []string{row.Era, row.Older} {
			if version != "" && !slices.Contains(eras, version) {
				t.Errorf("%s: %q is no version of MCP", row.Name, version)
			}
		}
		if (row.Era == mcp.Modern) != (row.Older != "") {
			t.Errorf("%s speaks %q, and %q to older servers: it needs both if it begins with server/discover", row.Name,
				row.Era, row.Older)
		}
		if row.Inherits != clienttable.Some && (row.Inherited != nil || row.InheritKey != "") {
			t.Errorf("%s names variables that it passes, and does not pass some", row.Name)
		}
		if (row.Settings == "") != (row.EnvKey == "") {
			t.Errorf("%s: a file of settings needs the key of its variables, and the other way round", row.Name)
		}
	}
}
