package protocol

import "strings"

// ClientName returns the one name by which Holdline knows a client, given what
// the client calls itself in its handshake with a server: several clients use more
// than one name there, or one that no user would write into a configuration.
// A name that is not known is returned as it is.
func ClientName(name string) string {
	known, _, _ := strings.Cut(strings.ToLower(name), " (via mcp-remote") // what a bridge appends
	switch strings.TrimSpace(known) {
	case "claude-code", "claude code":
		return "claude-code"
	case "claude-ai", "claude-desktop", "claude desktop":
		return "claude-desktop"
	case "codex", "codex-mcp-client":
		return "codex"
	case "cursor", "cursor-vscode", "cursor-agent":
		return "cursor"
	case "gemini", "gemini-cli", "gemini-cli-mcp-client":
		return "gemini"
	case "vscode", "visual studio code", "visual studio code - insiders", "visual-studio-code":
		return "vscode"
	case "zed", "opencode", "cline":
		return known
	case "windsurf", "windsurf-client":
		return "windsurf"
	}
	if strings.HasPrefix(known, "gemini-cli-mcp-client-") { // and the entry's name
		return "gemini"
	}
	return name
}

// ClientNames returns the names of all clients that [ClientName] knows.
func ClientNames() []string {
	return []string{
		"claude-code", "claude-desktop", "cline", "codex", "cursor",
		"gemini", "opencode", "vscode", "windsurf", "zed",
	}
}
