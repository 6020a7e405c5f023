// Package clienttable has one table of the programs that are MCP clients: how each calls
// itself, where it keeps its configuration of MCP servers and how an entry is written there,
// what it speaks, what it listens to, how long it waits, and which environment its servers get.
// All code that has to know what one client does differently from others reads a row. A row is
// data, so a new client, or a new version of one, needs a row and no code.
//
// What nobody has seen a client do is the zero value of its field, which says "unknown".
package clienttable

import (
	"slices"
	"strings"
	"time"
)

// Syntax is how a client writes variables into the strings of a server's entry.
type Syntax int

// The syntaxes.
const (
	Literal  Syntax = iota // the client replaces nothing
	Shell                  // ${NAME} and ${NAME:-default}
	Dollar                 // those of Shell, and $NAME
	Editor                 // ${env:NAME}, ${workspaceFolder}, ${input:id} and others
	Brackets               // {env:NAME} and {file:path}
)

// Field is a member of an entry. Its value is a string, a bool, or a list of strings
// as []any; in a JSON file it may be anything that has a JSON.
type Field struct {
	Key   string
	Value any
}

// Row is what is known of one client.
type Row struct {
	Name  string // as the flag --from takes it
	Title string // as people call it

	// Identity is the name by which Holdline knows a session of the client, and by which
	// rules of the configuration name it. Calls are what the client calls itself in its
	// handshake, in lower case; one that ends in * stands for all names that begin so.
	Identity string
	Calls    []string

	Files       // where its configuration lies
	Entry       // how it writes a server
	Speech      // what it says to a server
	Limits      // how long it waits
	Environment // what its servers get
}

// Files says where a client keeps what concerns servers. A pattern is a path that begins with
// the name of a directory, such as $CODEX_HOME.
type Files struct {
	// User are the user's own, as patterns; the first is created if none exists. A * stands for any name of
	// a file or directory.
	User      []string
	OfProject []string // a project's, by their paths from its root
	UsedIf    string   // pattern of a directory that exists where the client is used; "" is that of User[0]
	Logins    string   // pattern of the file with its logins to servers; "" if there is none
	TOML      bool     // its files are TOML, not JSON
	// Locked is the base name of the file that the client locks while it writes, by a
	// directory beside it; "" if it locks none.
	Locked string
}

// Entry says how a client writes the entries of servers.
type Entry struct {
	Key    string  // of the object, or table, that has the servers as its members
	Newer  string  // key of an object in that one which has them instead, in newer versions of the client; "" for none
	Nested string  // key of an object in the same file that has, for each directory, servers of that alone; "" for none
	Syntax Syntax  // of variables
	Kind   Field   // member with which an entry begins that starts a program; its Key is "" if there is none
	Always []Field // further members of an entry that starts a program
	Own    []Field // and of one that is new
	// OneCommand says that "command" is one list, of the program and its arguments.
	OneCommand bool
	// Bare is what an entry is that has neither a command nor an address; "" for a mistake.
	Bare string
	Add  string // command line that adds an entry for a program, up to the name; "" if there is none
}

// Speech is what a client says to a server, by stdio.
type Speech struct {
	// Era is the newest version of MCP that the client speaks, with which it begins: with
	// server/discover for 2026-07-28, else with initialize. "" is unknown.
	Era string
	// Older is the version that it names in initialize to a server that does not know
	// server/discover; "" if it does not begin with that.
	Older   string
	Relists []List // what it lists again when a server says that the list has changed
}

// List is a kind of list of a server: tools, prompts or resources.
type List string

// The lists.
const (
	Tools     List = "tools"
	Prompts   List = "prompts"
	Resources List = "resources"
)

// Limits says how long a client waits for a server, and where a user sets that. A limit of a
// user is a number, in milliseconds but for keys that say otherwise.
type Limits struct {
	Start time.Duration // for the handshake, by default; 0 is unknown
	Call  time.Duration // for the answer to a call, by default; 0 is unknown
	// Silence is how long a call by stdio may have no notice of progress, by default; 0 is
	// no such limit.
	Silence time.Duration
	// Extends says that a notice of progress begins the limit of a call anew.
	Extends bool

	StartKeys, CallKeys           []Limit // members of an entry
	StartVariables, CallVariables []string
	// SilenceVariable sets Silence; "" for none. All variables are in milliseconds.
	SilenceVariable string
	// Settings is the pattern of a file of the client with an object EnvKey, whose members are
	// variables of its environment; "" if it has none.
	Settings, EnvKey string
}

// Limit is a member of an entry that sets a limit.
type Limit struct {
	Key  string
	Unit time.Duration // of its number
}

// Inheritance is how much of its own environment a client gives to the servers that it starts.
type Inheritance int

// The ways. A client of unknown ways is taken for one that passes nothing.
const (
	Unknown Inheritance = iota
	All                 // every variable
	Some                // those of Environment.Inherited, of Environment.InheritKey, and of the entry
)

// Environment says which variables the servers of a client get, besides those of the entry.
type Environment struct {
	Inherits   Inheritance
	Inherited  []string // names of variables, if it passes some; one that ends in * stands for all that begin so
	InheritKey string   // key of an entry with further names; "" for none
	// Adds are variables that the client itself sets for its servers: they tell about one
	// conversation and are no wish of the user.
	Adds []string
}

// byDefault are the variables that an MCP SDK passes to a server unless it is told otherwise.
var byDefault = []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}

// milliseconds is the key of a limit that most clients have.
var milliseconds = []Limit{{"timeout", time.Millisecond}}

// Files inside the directory of an editor's settings.
const (
	codeFile  = "User/mcp.json"
	clineFile = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
)

// table lists the clients in order of precedence: if two clients have different servers of
// one name, the first client's keeps the name.
var table = []Row{
	{
		Name: "claude", Title: "Claude Code", Identity: "claude-code", Calls: []string{"claude-code", "claude code"},
		Files: Files{
			User: []string{"$CLAUDE_FILE_DIR/.claude.json"}, OfProject: []string{".mcp.json"},
			UsedIf: "$CLAUDE_CONFIG_DIR", Logins: "$CLAUDE_SECURESTORAGE_CONFIG_DIR/.credentials.json",
			Locked: ".claude.json",
		},
		Entry: Entry{
			Key: "mcpServers", Nested: "projects", Syntax: Shell, Kind: Field{"type", "stdio"},
			Add: "claude mcp add --scope user",
		},
		Speech: Speech{Era: "2026-07-28", Older: "2025-11-25", Relists: []List{Tools, Prompts, Resources}},
		Limits: Limits{
			Start: 30 * time.Second, Call: 100_000 * time.Second, Silence: 30 * time.Minute,
			CallKeys: milliseconds, StartVariables: []string{"MCP_TIMEOUT"}, CallVariables: []string{"MCP_TOOL_TIMEOUT"},
			SilenceVariable: "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT",
			Settings:        "$CLAUDE_CONFIG_DIR/settings.json", EnvKey: "env",
		},
		Environment: Environment{Inherits: All, Adds: []string{
			"AI_AGENT", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_MESSAGING_SOCKET",
			"CLAUDE_CODE_MESSAGING_TOKEN", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PROJECT_DIR",
		}},
	},
	{
		Name: "codex", Title: "Codex", Identity: "codex", Calls: []string{"codex", "codex-mcp-client"},
		Files: Files{
			// The others are those of its profiles.
			User: []string{"$CODEX_HOME/config.toml", "$CODEX_HOME/*.config.toml"}, OfProject: []string{".codex/config.toml"},
			Logins: "$CODEX_HOME/.credentials.json", TOML: true,
		},
		Entry: Entry{Key: "mcp_servers", Add: "codex mcp add"},
		// It lists nothing again, unless its user has enabled mcp_tool_list_changed.
		Speech: Speech{Era: "2025-06-18"},
		Limits: Limits{
			Start: 30 * time.Second, Call: 300 * time.Second,
			StartKeys: []Limit{{"startup_timeout_sec", time.Second}, {"startup_timeout_ms", time.Millisecond}},
			CallKeys:  []Limit{{"tool_timeout_sec", time.Second}},
		},
		Environment: Environment{
			Inherits: Some, Inherited: []string{"HOME", "LANG", "LC_*", "PATH", "TERM"}, InheritKey: "env_vars",
		},
	},
	{
		Name: "cursor", Title: "Cursor", Identity: "cursor", Calls: []string{"cursor", "cursor-vscode", "cursor-agent"},
		Files:  Files{User: []string{"$HOME/.cursor/mcp.json"}, OfProject: []string{".cursor/mcp.json"}},
		Entry:  Entry{Key: "mcpServers", Syntax: Editor},
		Limits: Limits{CallKeys: milliseconds},
	},
	{
		Name: "vscode", Title: "VS Code", Identity: "vscode",
		Calls: []string{
			"vscode", "visual studio code", "visual studio code - insiders", "visual-studio-code",
		},
		// Over ssh and in a container the editor's part on this machine reads the file of the server.
		Files: Files{
			User: slices.Concat(inEditors(codeFile), inEditors("User/profiles/*/mcp.json"), []string{
				"$HOME/.vscode-server/data/User/mcp.json", "$HOME/.vscode-server-insiders/data/User/mcp.json",
				"$HOME/.vscode-server/data/User/profiles/*/mcp.json",
			}),
			OfProject: []string{".vscode/mcp.json"},
		},
		Entry:  Entry{Key: "servers", Syntax: Editor, Kind: Field{"type", "stdio"}},
		Limits: Limits{CallKeys: milliseconds},
	},
	{
		Name: "gemini", Title: "Gemini CLI", Identity: "gemini",
		Calls: []string{"gemini", "gemini-cli", "gemini-cli-mcp-client", "gemini-cli-mcp-client-*"}, // and the entry's name
		Files: Files{
			User: []string{"$HOME/.gemini/settings.json"}, OfProject: []string{".gemini/settings.json"},
			UsedIf: "$HOME/.gemini/tmp", Logins: "$HOME/.gemini/mcp-oauth-tokens.json", // Antigravity is in ~/.gemini, too
		},
		Entry:       Entry{Key: "mcpServers", Syntax: Dollar},
		Speech:      Speech{Era: "2025-06-18", Relists: []List{Tools, Prompts, Resources}},
		Limits:      Limits{Call: 10 * time.Minute, CallKeys: milliseconds},
		Environment: Environment{Adds: []string{"GEMINI_CLI"}},
	},
	{
		Name: "zed", Title: "Zed", Identity: "zed", Calls: []string{"zed"},
		Files: Files{User: []string{"$XDG_CONFIG_HOME/zed/settings.json"}, OfProject: []string{".zed/settings.json"}},
		Entry: Entry{
			Key: "context_servers", Kind: Field{"source", "custom"}, Bare: "an extension of the client",
		},
		Limits: Limits{CallKeys: milliseconds},
	},
	{
		Name: "opencode", Title: "opencode", Identity: "opencode", Calls: []string{"opencode"},
		Files: Files{
			User: []string{
				"$XDG_CONFIG_HOME/opencode/opencode.json", "$XDG_CONFIG_HOME/opencode/opencode.jsonc",
				"$XDG_CONFIG_HOME/opencode/config.json",
			},
			OfProject: []string{"opencode.json", "opencode.jsonc"}, Logins: "$XDG_DATA_HOME/opencode/mcp-auth.json",
		},
		// Version 2 has the servers in mcp.servers, and reads those of version 1, too: opencode.ai/v2/docs/migrate-v1.
		Entry: Entry{
			Key: "mcp", Newer: "servers", Syntax: Brackets, Kind: Field{"type", "local"}, OneCommand: true, Always: []Field{{"enabled", true}},
		},
		Speech: Speech{Era: "2025-11-25", Relists: []List{Tools}},
		// Its "timeout" limits the list of tools, too. Older versions limit that alone.
		Limits:      Limits{Call: 60 * time.Second, Extends: true},
		Environment: Environment{Inherits: All, Adds: []string{"OPENCODE_CONFIG_CONTENT", "OPENCODE_PID"}},
	},
	{
		// It is also a program of its own.
		Name: "cline", Title: "Cline", Identity: "cline", Calls: []string{"cline"},
		Files:  Files{User: append(inEditors(clineFile), "$HOME/.cline/data/settings/cline_mcp_settings.json")},
		Entry:  Entry{Key: "mcpServers", Syntax: Editor},
		Limits: Limits{CallKeys: []Limit{{"timeout", time.Second}}},
	},
	{
		Name: "claude-desktop", Title: "Claude Desktop", Identity: "claude-desktop",
		Calls:       []string{"claude-ai", "claude-desktop", "claude desktop"},
		Files:       Files{User: []string{"$APPLICATIONS/Claude/claude_desktop_config.json"}},
		Entry:       Entry{Key: "mcpServers"},
		Limits:      Limits{CallKeys: milliseconds},
		Environment: Environment{Inherits: Some, Inherited: byDefault},
	},
	{
		Name: "windsurf", Title: "Windsurf", Identity: "windsurf", Calls: []string{"windsurf", "windsurf-client"},
		// The second is that of its plugin for JetBrains' editors.
		Files: Files{
			User:   []string{"$HOME/.codeium/windsurf/mcp_config.json", "$HOME/.codeium/mcp_config.json"},
			UsedIf: "$HOME/.codeium/windsurf",
		},
		Entry:  Entry{Key: "mcpServers", Syntax: Editor},
		Limits: Limits{CallKeys: milliseconds},
	},
	{
		// The file, its members and the project's files: docs.github.com, "Adding MCP servers for GitHub Copilot
		// CLI". COPILOT_HOME: github/copilot-cli issues 1750 and 3000. Variables: issue 903, since 1.0.10.
		Name: "copilot", Title: "GitHub Copilot CLI", Identity: "copilot", Calls: []string{"copilot", "copilot-cli"},
		Files: Files{User: []string{"$COPILOT_HOME/mcp-config.json"}, OfProject: []string{".github/mcp.json", ".mcp.json"}},
		Entry: Entry{
			Key: "mcpServers", Syntax: Dollar, Kind: Field{"type", "local"}, Own: []Field{{"tools", []any{"*"}}},
		},
		Speech:      Speech{Era: "2026-07-28", Older: "2025-11-25", Relists: []List{Tools}},
		Limits:      Limits{Call: 180 * time.Second, Extends: true, CallKeys: milliseconds},
		Environment: Environment{Adds: []string{"COPILOT_AGENT_SESSION_ID"}},
	},
	{
		// Antigravity 2 and its command line read the first file, older versions of the editor the second:
		// antigravity.google/docs/cli/mcp and browseros-ai/BrowserOS pull request 1862. The address of a remote
		// server is its serverUrl. Variables stay as they are: google-antigravity/antigravity-cli issue 233.
		Name: "antigravity", Title: "Antigravity", Identity: "antigravity", Calls: []string{"antigravity"},
		Files: Files{
			User:   []string{"$HOME/.gemini/config/mcp_config.json", "$HOME/.gemini/antigravity/mcp_config.json"},
			UsedIf: "$HOME/.gemini/antigravity",
		},
		Entry:  Entry{Key: "mcpServers"},
		Limits: Limits{CallKeys: milliseconds},
	},
}

// inEditors returns the patterns of a file in each of the editors of one family.
func inEditors(file string) []string {
	var files []string
	for _, editor := range []string{"Code", "Code - Insiders", "VSCodium"} {
		files = append(files, "$APPLICATIONS/"+editor+"/"+file)
	}
	return files
}

// Rows returns the clients, in order of precedence. The caller may change the slice, and
// nothing that its rows refer to.
func Rows() []Row { return slices.Clone(table) }

// Identity returns the one name by which Holdline knows a client, given what the client
// calls itself in its handshake with a server: several clients use more than one name
// there, or one that no user would write into a configuration. A name that is not known is
// returned as it is.
func Identity(name string) string {
	said, _, _ := strings.Cut(strings.ToLower(name), " (via mcp-remote") // what a bridge appends
	said = strings.TrimSpace(said)
	for i := range table {
		if slices.ContainsFunc(table[i].Calls, func(call string) bool {
			begin, open := strings.CutSuffix(call, "*")
			return said == call || open && strings.HasPrefix(said, begin)
		}) {
			return table[i].Identity
		}
	}
	return name
}

// Ignores reports whether a client is known not to list again what a server says has changed. client is what it
// calls itself, which its version may follow. Of a client that nobody has watched that is not known.
func Ignores(client string, list List) bool {
	name := client
	if i := strings.LastIndexByte(client, ' '); i > 0 && Identity(client) == client {
		name = client[:i]
	}
	identity := Identity(name)
	i := slices.IndexFunc(table, func(row Row) bool { return row.Identity == identity })
	return i >= 0 && table[i].Era != "" && !slices.Contains(table[i].Relists, list)
}

// Identities returns the names of all clients that [Identity] knows, sorted.
func Identities() []string {
	var names []string
	for i := range table {
		names = append(names, table[i].Identity)
	}
	slices.Sort(names)
	return names
}
