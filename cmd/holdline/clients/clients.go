package clients

import (
	"os"
	"path/filepath"
	"slices"

	"holdline/protocol/project"
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

// Client is a program that keeps a configuration of MCP servers.
type Client struct {
	Name    string // as the flag --from takes it
	Title   string // as people call it
	Key     string // of the object, or table, that has the servers as its members
	Syntax  Syntax // of variables
	Seconds bool   // the unit of its timeouts is a second, not a millisecond
	TOML    bool   // its files are TOML, not JSON

	kind    Field    // member with which an entry begins that starts a program; its Key is "" if there is none
	files   []string // the user's own, as patterns; the first is created if none exists
	project []string // a project's, by their paths from its root
	used    string   // pattern of a directory that exists where the client is used; "" is that of files[0]
	logins  string   // pattern of the file with its logins to servers; "" if there is none
	own     []Field  // further members that a new entry needs
}

// Files inside the directory of an editor's settings.
const (
	codeFile  = "User/mcp.json"
	clineFile = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
)

// table lists the clients in order of precedence: if two clients have different
// servers of one name, the first client's keeps the name. Patterns are resolved by
// [Places.path].
var table = []Client{
	{
		Name: "claude", Title: "Claude Code", Key: "mcpServers", Syntax: Shell,
		kind: Field{"type", "stdio"}, files: []string{"$CLAUDE_FILE_DIR/.claude.json"}, project: []string{".mcp.json"},
		used: "$CLAUDE_CONFIG_DIR", logins: "$CLAUDE_SECURESTORAGE_CONFIG_DIR/.credentials.json",
	},
	{
		Name: "codex", Title: "Codex", Key: "mcp_servers", Seconds: true, TOML: true,
		files: []string{"$CODEX_HOME/config.toml"}, project: []string{".codex/config.toml"},
		logins: "$CODEX_HOME/.credentials.json",
	},
	{
		Name: "cursor", Title: "Cursor", Key: "mcpServers", Syntax: Editor,
		files: []string{"$HOME/.cursor/mcp.json"}, project: []string{".cursor/mcp.json"},
	},
	{
		Name: "vscode", Title: "VS Code", Key: "servers", Syntax: Editor,
		kind: Field{"type", "stdio"}, files: inEditors(codeFile), project: []string{".vscode/mcp.json"},
	},
	{
		Name: "gemini", Title: "Gemini CLI", Key: "mcpServers", Syntax: Dollar,
		files: []string{"$HOME/.gemini/settings.json"}, project: []string{".gemini/settings.json"},
		used: "$HOME/.gemini/tmp", logins: "$HOME/.gemini/mcp-oauth-tokens.json", // Antigravity is in ~/.gemini, too
	},
	{
		Name: "zed", Title: "Zed", Key: "context_servers",
		kind: Field{"source", "custom"}, files: []string{"$XDG_CONFIG_HOME/zed/settings.json"},
		project: []string{".zed/settings.json"},
	},
	{
		Name: "opencode", Title: "opencode", Key: "mcp", Syntax: Brackets, kind: Field{"type", "local"},
		files: []string{
			"$XDG_CONFIG_HOME/opencode/opencode.json", "$XDG_CONFIG_HOME/opencode/opencode.jsonc",
			"$XDG_CONFIG_HOME/opencode/config.json",
		},
		project: []string{"opencode.json", "opencode.jsonc"}, logins: "$XDG_DATA_HOME/opencode/mcp-auth.json",
	},
	{
		// It is also a program of its own.
		Name: "cline", Title: "Cline", Key: "mcpServers", Syntax: Editor, Seconds: true,
		files: append(inEditors(clineFile), "$HOME/.cline/data/settings/cline_mcp_settings.json"),
	},
	{
		Name: "claude-desktop", Title: "Claude Desktop", Key: "mcpServers",
		files: []string{"$APPLICATIONS/Claude/claude_desktop_config.json"},
	},
	{
		Name: "windsurf", Title: "Windsurf", Key: "mcpServers", Syntax: Editor,
		files: []string{"$HOME/.codeium/windsurf/mcp_config.json"},
	},
	{
		// The file, its members and the project's file: docs.github.com, "Adding MCP servers for GitHub Copilot
		// CLI". COPILOT_HOME: github/copilot-cli issues 1750 and 3000. Variables: issue 903, since 1.0.10.
		Name: "copilot", Title: "GitHub Copilot CLI", Key: "mcpServers", Syntax: Dollar,
		kind: Field{"type", "local"}, files: []string{"$COPILOT_HOME/mcp-config.json"},
		project: []string{".github/mcp.json"}, own: []Field{{"tools", []any{"*"}}},
	},
	{
		// Antigravity 2 and its command line read the first file, older versions of the editor the second:
		// antigravity.google/docs/cli/mcp and browseros-ai/BrowserOS pull request 1862. The address of a remote
		// server is its serverUrl. Variables stay as they are: google-antigravity/antigravity-cli issue 233.
		Name: "antigravity", Title: "Antigravity", Key: "mcpServers",
		files: []string{"$HOME/.gemini/config/mcp_config.json", "$HOME/.gemini/antigravity/mcp_config.json"},
		used:  "$HOME/.gemini/antigravity",
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

// Holdline stands for holdline's own configuration file, so that it can be edited
// as those of the clients are. It is not one of [Names].
var Holdline = Client{Title: "holdline", Key: "mcpServers"}

// ByName returns the client of that name, or [Holdline] for any other name.
func ByName(name string) *Client {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return &Holdline
}

// Names returns the names of the known clients, in order of precedence.
func Names() []string {
	var names []string
	for _, c := range table {
		names = append(names, c.Name)
	}
	return names
}

// Parse reads the bytes of a client's file. Errors do not contain its path.
func (c *Client) Parse(data []byte) (Document, error) {
	if c.TOML {
		return parseTOML(data, c.Key)
	}
	return parseJSON(data, c)
}

// OwnEntry is the name of the entry that starts holdline for its own tools.
const OwnEntry = "holdline"

// OwnFields returns the members of an entry for holdline itself, where the client had
// none: those of [Client.StartingFields], and what else the client wants in an entry.
// The snippets in contrib/clients have the same members.
func (c *Client) OwnFields(command string, more ...string) []Field {
	return append(c.StartingFields(command, more...), c.own...)
}

// StartingFields returns the members of an entry by which the client starts command
// as its MCP server, with more added to its arguments.
func (c *Client) StartingFields(command string, more ...string) []Field {
	args := []any{"mcp-stdio"}
	for _, m := range more {
		args = append(args, m)
	}
	var fields []Field
	if c.kind.Key != "" {
		fields = append(fields, c.kind)
	}
	if c.Name == "opencode" {
		return append(fields, Field{"command", append([]any{command}, args...)}, Field{"enabled", true})
	}
	return append(fields, Field{"command", command}, Field{"args", args})
}

// Places says where one user's clients keep their files.
type Places struct {
	Home   string              // absolute
	Cwd    string              // absolute; its project's files are found, too
	Getenv func(string) string // of the environment in which the clients run
	System string              // as runtime.GOOS
}

// directories are the names in the patterns of paths: the variable that moves the
// directory, and the pattern of where it is by default.
var directories = map[string]struct{ variable, pattern string }{
	"CLAUDE_CONFIG_DIR":               {"CLAUDE_CONFIG_DIR", "$HOME/.claude"},
	"CLAUDE_FILE_DIR":                 {"CLAUDE_CONFIG_DIR", "$HOME"}, // the file lies beside the directory
	"CLAUDE_SECURESTORAGE_CONFIG_DIR": {"CLAUDE_SECURESTORAGE_CONFIG_DIR", "$CLAUDE_CONFIG_DIR"},
	"CODEX_HOME":                      {"CODEX_HOME", "$HOME/.codex"},
	"COPILOT_HOME":                    {"COPILOT_HOME", "$HOME/.copilot"},
	"XDG_CONFIG_HOME":                 {"XDG_CONFIG_HOME", "$HOME/.config"},
	"XDG_DATA_HOME":                   {"XDG_DATA_HOME", "$HOME/.local/share"},
}

// path resolves a pattern such as "$CODEX_HOME/config.toml". The result is absolute if
// p.Home is.
func (p Places) path(pattern string) string {
	return filepath.Clean(os.Expand(pattern, p.directory))
}

// directory resolves the name of a directory in a pattern.
func (p Places) directory(name string) string {
	switch {
	case name == "HOME":
		return p.Home
	case name == "APPLICATIONS" && p.System == "darwin": // where graphical programs keep their files
		return filepath.Join(p.Home, "Library/Application Support")
	case name == "APPLICATIONS":
		name = "XDG_CONFIG_HOME"
	}
	d := directories[name]
	if dir := p.Getenv(d.variable); filepath.IsAbs(dir) {
		return dir
	}
	return p.path(d.pattern)
}

// File is a configuration file of a client.
type File struct {
	Client  *Client
	Path    string // as the client names it; it may be a link
	Project string // root of the project that it is for; "" for one of the user's own
	Missing bool   // it does not exist, and the client would read it if it did
	Tree    string // git work tree that it lies in, or ""
	Twin    string // path of an earlier File that is the same file, or ""
}

// Files finds the configuration files of the clients that are named in from, or of all
// clients if from is nil: first the user's own files of a client, then those of the
// project of p.Cwd.
//
// A client without a file has its first one listed as Missing if it is named in from,
// or if its directory shows that it is used here. Names of unknown clients are ignored.
func Files(p Places, from []string) []File {
	root := project.Root(p.Cwd)
	var out []File
	add := func(f File) {
		f.Tree, f.Twin = project.WorkTree(f.Path), twin(out, f.Path)
		out = append(out, f)
	}
	for i := range table {
		c := &table[i]
		if from != nil && !slices.Contains(from, c.Name) {
			continue
		}
		var files []string
		for _, pattern := range c.files {
			files = append(files, p.path(pattern))
		}
		used := filepath.Dir(files[0])
		if c.used != "" {
			used = p.path(c.used)
		}
		switch {
		case slices.ContainsFunc(files, exists):
			for _, path := range slices.DeleteFunc(
				slices.Clone(files), func(path string) bool { return !exists(path) },
			) {
				add(File{Client: c, Path: path})
			}
		case from != nil || exists(used):
			add(File{Client: c, Path: files[0], Missing: true})
		}
		for _, rel := range c.project {
			// In the home directory these are the user's own files, which are listed above.
			if path := filepath.Join(root, rel); exists(path) && !slices.Contains(files, path) {
				add(File{Client: c, Path: path, Project: root})
			}
		}
	}
	return out
}

// twin returns the path of a listed file that is the same file as path, or "".
func twin(list []File, path string) string {
	info, err := os.Stat(path)
	for _, f := range list {
		if other, oerr := os.Stat(f.Path); err == nil && oerr == nil && os.SameFile(info, other) {
			return f.Path
		}
	}
	return ""
}

// exists reports whether a path has anything, be it a link that leads nowhere.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
