package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"holdline/daemon/clienttable"
	"holdline/protocol/project"
)

// Field is a member of an entry: see [clienttable.Field].
type Field = clienttable.Field

// Client is a program that keeps a configuration of MCP servers.
type Client struct{ clienttable.Row }

// table has a client for each row, in order of precedence.
var table = func() []Client {
	var all []Client
	for _, row := range clienttable.Rows() {
		all = append(all, Client{row})
	}
	return all
}()

// Holdline stands for holdline's own configuration file, so that it can be edited
// as those of the clients are. It is not one of [Names].
var Holdline = Client{clienttable.Row{Title: "holdline", Entry: clienttable.Entry{Key: "mcpServers"}}}

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
	return append(c.StartingFields(command, more...), c.Own...)
}

// StartingFields returns the members of an entry by which the client starts command
// as its MCP server, with more added to its arguments.
func (c *Client) StartingFields(command string, more ...string) []Field {
	args := []any{"mcp-stdio"}
	for _, m := range more {
		args = append(args, m)
	}
	var fields []Field
	if c.Kind.Key != "" {
		fields = append(fields, c.Kind)
	}
	if c.OneCommand {
		fields = append(fields, Field{Key: "command", Value: append([]any{command}, args...)})
	} else {
		fields = append(fields, Field{Key: "command", Value: command}, Field{Key: "args", Value: args})
	}
	return append(fields, c.Always...)
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

// paths resolves a pattern, and a * in it to the files that there are.
func (p Places) paths(pattern string) []string {
	fixed, open, ok := strings.Cut(pattern, "*")
	if !ok {
		return []string{p.path(pattern)}
	}
	// What the directories' names have of the characters of a pattern is meant as it is.
	quoted := globCharacters.ReplaceAllString(p.path(fixed+"x"), `\$0`)
	found, err := filepath.Glob(strings.TrimSuffix(quoted, "x") + "*" + open)
	if err != nil {
		return nil
	}
	return found
}

// globCharacters mean something in a pattern of [filepath.Glob].
var globCharacters = regexp.MustCompile(`[][*?\\]`)

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
	Further bool   // one of several of a kind, such as of a profile: the client reads its first file, too
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
		var files, further []string
		for _, pattern := range c.User {
			files = append(files, p.paths(pattern)...)
			if strings.Contains(pattern, "*") {
				further = append(further, p.paths(pattern)...)
			}
		}
		used := filepath.Dir(files[0])
		if c.UsedIf != "" {
			used = p.path(c.UsedIf)
		}
		switch {
		case slices.ContainsFunc(files, exists):
			for _, path := range slices.DeleteFunc(
				slices.Clone(files), func(path string) bool { return !exists(path) },
			) {
				add(File{Client: c, Path: path, Further: slices.Contains(further, path)})
			}
		case from != nil || exists(used):
			add(File{Client: c, Path: files[0], Missing: true})
		}
		for _, rel := range c.OfProject {
			// In the home directory these are the user's own files, which are listed above.
			path := filepath.Join(root, rel)
			isListed := slices.ContainsFunc(out, func(f File) bool { return f.Path == path })
			if exists(path) && !isListed && !slices.Contains(files, path) {
				add(File{Client: c.inShared(rel), Path: path, Project: root})
			}
		}
	}
	return out
}

// inShared returns the client as it writes a project's file. If several clients read that, entries are written as
// the first of them does: the others take that, too.
func (c *Client) inShared(rel string) *Client {
	first := slices.IndexFunc(table, func(other Client) bool { return slices.Contains(other.OfProject, rel) })
	if first < 0 || table[first].Name == c.Name {
		return c
	}
	shared := *c
	shared.Kind = table[first].Kind
	return &shared
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
