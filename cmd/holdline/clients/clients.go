package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/contrib"

	"holdline/daemon/config"
)

// Options say where to look and what is wanted.
type Options struct {
	Home   string              // absolute
	Cwd    string              // absolute
	Getenv func(string) string // of variables that say where clients keep their files
	System string              // as runtime.GOOS
	Config string              // holdline's configuration file
	State  string              // holdline's state directory
	// Command starts holdline: an absolute path, since the programs that read
	// the entries have a PATH of their own.
	Command string
	Environ []string // of holdline: servers that need other variables get a note

	From      []string // names of clients; nil is all that are found
	Project   bool     // files of the project of Cwd, and in git work trees, too
	Aggregate bool     // one entry for all servers instead of one for each
	Scope     string   // of servers that are moved and say nothing of it; "" is the default

	// Try starts a server as the daemon would, and returns why it does not work.
	// Some are tried at the same time. Nil tries none: then all move that can.
	Try    func(ctx context.Context, s *config.Settings, root string) error
	Trying func(servers int) // called before servers are tried; nil for nothing
}

// dialect is how a client spells variables in the strings of a server.
type dialect int

const (
	literal  dialect = iota // not at all
	shell                   // ${NAME}, ${NAME:-default}
	dollar                  // that, and $NAME
	editor                  // ${env:NAME}, ${workspaceFolder}, ${input:id} and the like
	brackets                // {env:NAME}, {file:path}
)

// client is a program whose configuration holds MCP servers.
type client struct {
	name, title string
	snippet     string   // file of package contrib
	key         string   // of the object of servers
	project     []string // its files in a project, by path from the root
	dialect     dialect
	seconds     bool // its timeout is in seconds, else in milliseconds
	toml        bool
	// files are the user's own, as far as they may exist; the first is the one
	// that is made if none does.
	files func(Options) []string
	// used tells by a directory that the program is used here.
	used   func(Options) string
	logins *loginFile // nil if nothing is known of where it keeps them
}

// under is a func for paths under the home directory.
func under(paths ...string) func(Options) []string {
	return func(o Options) []string {
		var out []string
		for _, p := range paths {
			out = append(out, filepath.Join(o.Home, p))
		}
		return out
	}
}

func first(files func(Options) []string) func(Options) string {
	return func(o Options) string { return filepath.Dir(files(o)[0]) }
}

// inDir is a func for a file in a directory that a variable names, by default
// one of the home directory.
func inDir(variable, dir string, files ...string) func(Options) []string {
	return func(o Options) []string {
		base := filepath.Join(o.Home, dir)
		if v := o.Getenv(variable); filepath.IsAbs(v) {
			base = v
		}
		var out []string
		for _, f := range files {
			out = append(out, filepath.Join(base, f))
		}
		return out
	}
}

// application is a func for files in the directory in which a system's
// programs with windows keep theirs.
func application(files ...string) func(Options) []string {
	return func(o Options) []string {
		base := filepath.Join(o.Home, ".config")
		if v := o.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(v) {
			base = v
		}
		if o.System == "darwin" {
			base = filepath.Join(o.Home, "Library/Application Support")
		}
		var out []string
		for _, f := range files {
			out = append(out, filepath.Join(base, f))
		}
		return out
	}
}

// claudeFiles lie in the home directory, beside Claude Code's own directory.
func claudeFiles(o Options) []string {
	if dir := o.Getenv("CLAUDE_CONFIG_DIR"); filepath.IsAbs(dir) {
		return []string{filepath.Join(dir, ".claude.json")}
	}
	return []string{filepath.Join(o.Home, ".claude.json")}
}

const clineFile = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"

// clineFiles are those of the editor's extension and of the program by itself.
func clineFiles(o Options) []string {
	return append(application("Code/"+clineFile, "Code - Insiders/"+clineFile, "VSCodium/"+clineFile)(o),
		filepath.Join(o.Home, ".cline/data/settings/cline_mcp_settings.json"))
}

// table has the clients in the order in which they are asked: of two servers
// of one name, the first client's keeps it.
func table() []client {
	codex := inDir("CODEX_HOME", ".codex", "config.toml")
	cursor := under(".cursor/mcp.json")
	code := application("Code/User/mcp.json", "Code - Insiders/User/mcp.json", "VSCodium/User/mcp.json")
	gemini := under(".gemini/settings.json")
	zed := inDir("XDG_CONFIG_HOME", ".config", "zed/settings.json")
	opencode := inDir("XDG_CONFIG_HOME", ".config", "opencode/opencode.json", "opencode/opencode.jsonc", "opencode/config.json")
	desktop := application("Claude/claude_desktop_config.json")
	windsurf := under(".codeium/windsurf/mcp_config.json")
	return []client{
		{
			name: "claude", title: "Claude Code", snippet: "claude-code.json", key: "mcpServers", project: []string{".mcp.json"}, dialect: shell,
			files: claudeFiles, used: first(inDir("CLAUDE_CONFIG_DIR", ".claude", "settings.json")), logins: claudeLogins,
		},
		{
			name: "codex", title: "Codex", snippet: "codex.toml", key: "mcp_servers", project: []string{".codex/config.toml"}, seconds: true, toml: true,
			files: codex, used: first(codex), logins: codexLogins,
		},
		{name: "cursor", title: "Cursor", snippet: "cursor.json", key: "mcpServers", project: []string{".cursor/mcp.json"}, dialect: editor, files: cursor, used: first(cursor)},
		{name: "vscode", title: "VS Code", snippet: "vscode.json", key: "servers", project: []string{".vscode/mcp.json"}, dialect: editor, files: code, used: first(code)},
		{name: "gemini", title: "Gemini CLI", snippet: "gemini-cli.json", key: "mcpServers", project: []string{".gemini/settings.json"}, dialect: dollar, files: gemini, used: first(gemini), logins: geminiLogins},
		{name: "zed", title: "Zed", snippet: "zed.json", key: "context_servers", project: []string{".zed/settings.json"}, files: zed, used: first(zed)},
		{name: "opencode", title: "opencode", snippet: "opencode.json", key: "mcp", project: []string{"opencode.json", "opencode.jsonc"}, dialect: brackets, files: opencode, used: first(opencode), logins: opencodeLogins},
		{name: "cline", title: "Cline", snippet: "cline.json", key: "mcpServers", dialect: editor, seconds: true, files: clineFiles, used: first(clineFiles)},
		{name: "claude-desktop", title: "Claude Desktop", snippet: "claude-desktop.json", key: "mcpServers", files: desktop, used: first(desktop)},
		{name: "windsurf", title: "Windsurf", snippet: "windsurf.json", key: "mcpServers", dialect: editor, files: windsurf, used: first(windsurf)},
	}
}

// Names are those of the clients that are known.
func Names() []string {
	var names []string
	for _, c := range table() {
		names = append(names, c.name)
	}
	return names
}

// chosen are the clients that are asked for.
func chosen(from []string) ([]client, error) {
	all := table()
	if from == nil {
		return all, nil
	}
	for _, name := range from {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("client %q is not known; these are: %s", name, strings.Join(Names(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(c client) bool { return !slices.Contains(from, c.name) }), nil
}

// source is one file of a client.
type source struct {
	client  *client
	path    string // as it is named
	project string // root of the project that it is for; "" for the user's own
	make    bool   // it is not there, and is to be made
	tree    string // git work tree that it lies in, or ""
	twin    string // path of an earlier source that is the same file, or ""
}

// sources are the files of the clients.
func sources(o Options) ([]source, error) {
	list, err := chosen(o.From)
	if err != nil {
		return nil, err
	}
	root := projectRoot(o.Cwd)
	var out []source
	for i := range list {
		c := &list[i]
		files := c.files(o)
		there := slices.DeleteFunc(slices.Clone(files), func(p string) bool { return !exists(p) })
		if len(there) == 0 && (o.From != nil || exists(c.used(o))) {
			out = append(out, source{client: c, path: files[0], make: true, tree: workTree(files[0])})
		}
		for _, p := range there {
			out = append(out, source{client: c, path: p, tree: workTree(p)})
		}
		for _, rel := range c.project {
			// The home directory's files are the user's, whatever it is besides.
			if p := filepath.Join(root, rel); exists(p) && !slices.Contains(files, p) {
				out = append(out, source{client: c, path: p, project: root, tree: workTree(p)})
			}
		}
	}
	for i := range out {
		out[i].twin = twin(out[:i], out[i].path)
	}
	return out, nil
}

// twin is the path of a source that is the same file as path.
func twin(list []source, path string) string {
	info, err := os.Stat(path)
	for _, s := range list {
		if other, oerr := os.Stat(s.path); err == nil && oerr == nil && os.SameFile(info, other) {
			return s.path
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// projectRoot is the nearest parent of dir with .git, else dir itself.
func projectRoot(dir string) string {
	if tree := workTree(filepath.Join(dir, "x")); tree != "" {
		return tree
	}
	return dir
}

// workTree is the git work tree that a file lies in, links followed; "" if it
// lies in none.
func workTree(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, ".git")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// field is a member of an entry, in the order in which it is written.
type field struct {
	key   string
	value any // a string, a bool, or a list of strings as []any
}

// starting is the entry by which a client starts holdline: that of its
// snippet, with the command and what else it is told.
func (c *client) starting(command string, more ...string) ([]field, error) {
	text, err := fs.ReadFile(contrib.Clients(), c.snippet)
	if err != nil {
		return nil, err
	}
	doc, err := c.parse(c.snippet, text)
	if err != nil {
		return nil, err
	}
	fields := doc.fields([]string{c.key, entryName})
	for i := range fields {
		fields[i].value = fill(fields[i].value, command, more)
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("snippet %s has no entry %s", c.snippet, entryName)
	}
	return fields, nil
}

// entryName is what the entry for holdline's own tools is called.
const entryName = "holdline"

func fill(value any, command string, more []string) any {
	list, ok := value.([]any)
	if !ok {
		if value == any("holdline") {
			return command
		}
		return value
	}
	var out []any
	for _, v := range list {
		out = append(out, fill(v, command, nil))
	}
	if slices.Contains(list, any("mcp-stdio")) {
		for _, m := range more {
			out = append(out, m)
		}
	}
	return out
}

// document is a client's file, of which the entries of servers are edited.
type document interface {
	// entries are those of all places at which the client looks.
	entries() []entry
	// fields are the members of the entry at a path; nil if there is none.
	fields(path []string) []field
	// start makes the entry at a path one of those fields, which is made if
	// need be; it loses the keys that describe another server.
	start(path []string, fields []field) error
	// text is the entry as it is spelled; false if there is none.
	text(path []string) (string, bool)
	// put makes the entry at a path what was text once.
	put(path []string, text string) error
	remove(path []string)
	// same tells whether the entry at a path says what a text of one says.
	same(path []string, text string) bool
	bytes() []byte
}

// entry is one server in a client's file.
type entry struct {
	path    []string       // of keys, the last one its name
	keys    map[string]any // as encoding/json decodes them, numbers as json.Number
	project string         // directory that it is for; "" for all
	odd     string         // why it cannot be edited, or ""
}

func (e *entry) name() string { return e.path[len(e.path)-1] }

// parse reads a client's file; name stands for it in errors.
func (c *client) parse(name string, data []byte) (document, error) {
	if c.toml {
		return parseTOML(name, data, c.key)
	}
	return parseJSON(name, data, c)
}

// encode is JSON that people can read.
func encode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings, numbers and bools to memory
	return []byte(strings.TrimSpace(b.String()))
}

// describing are the keys of an entry that say what the server is: those that
// holdline needs and its client no longer. All others are the client's own and
// stay with it.
var describing = []string{
	"args", "bearer_token_env_var", "command", "cwd", "env", "env_http_headers", "env_vars", "environment", "headers",
	"http_headers", "httpUrl", "serverUrl", "source", "transport", "transportType", "type", "url", "workingDirectory",
	"working_directory",
}
