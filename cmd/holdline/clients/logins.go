package clients

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// login is that of a client to a server. It is the client's own: a server that is
// moved would be one to which nobody has logged in.
type login struct{ name, url string }

// holds tells whether the login is to the server of an entry. What the address
// is that a client puts together from variables is not known here.
func (l login) holds(name, url string) bool {
	if l.name != name {
		return false
	}
	return l.url == "" || strings.ContainsAny(url, "${") || strings.TrimRight(l.url, "/") == strings.TrimRight(url, "/")
}

// loggedIn is the file by which the client has logged in to a server, or "". What
// it keeps in the system's keychain nobody else can see.
func (c *client) loggedIn(o *Options, name, url string) string {
	if c.logins == nil {
		return ""
	}
	path := c.logins.file(*o)
	data, err := readFile(path)
	if err != nil { // then the client has none either
		return ""
	}
	for _, l := range c.logins.read(data) {
		if l.holds(name, url) {
			return path
		}
	}
	return ""
}

// loginFile is where a client keeps its logins, and in which form. What is not
// of that form holds none.
type loginFile struct {
	file func(Options) string
	read func(data []byte) []login
}

// token is what a login is made of: one that was only begun has none.
type token struct {
	Access  string `json:"accessToken"`
	Refresh string `json:"refreshToken"`
}

func (t token) there() bool { return t.Access != "" || t.Refresh != "" }

// claudeLogins are those of Claude Code: objects by a key of the server's name and a hash.
var claudeLogins = &loginFile{
	file: func(o Options) string {
		if dir := o.Getenv("CLAUDE_SECURESTORAGE_CONFIG_DIR"); filepath.IsAbs(dir) {
			return filepath.Join(dir, ".credentials.json")
		}
		return inDir("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json")(o)[0]
	},
	read: func(data []byte) (out []login) {
		var doc struct {
			Servers map[string]struct {
				token
				Name string `json:"serverName"`
				URL  string `json:"serverUrl"`
			} `json:"mcpOAuth"`
		}
		_ = json.Unmarshal(data, &doc)
		for _, s := range doc.Servers {
			if s.there() {
				out = append(out, login{s.Name, s.URL})
			}
		}
		return out
	},
}

// codexLogins are those of Codex, where it has no keychain.
var codexLogins = &loginFile{
	file: func(o Options) string { return inDir("CODEX_HOME", ".codex", ".credentials.json")(o)[0] },
	read: func(data []byte) (out []login) {
		var doc map[string]struct {
			Name    string `json:"server_name"`
			URL     string `json:"server_url"`
			Access  string `json:"access_token"`
			Refresh string `json:"refresh_token"`
		}
		_ = json.Unmarshal(data, &doc)
		for _, s := range doc {
			if (token{s.Access, s.Refresh}).there() {
				out = append(out, login{s.Name, s.URL})
			}
		}
		return out
	},
}

// geminiLogins are those of the Gemini CLI.
var geminiLogins = &loginFile{
	file: func(o Options) string { return filepath.Join(o.Home, ".gemini/mcp-oauth-tokens.json") },
	read: func(data []byte) (out []login) {
		var doc []struct {
			Token token  `json:"token"`
			Name  string `json:"serverName"`
			URL   string `json:"mcpServerUrl"`
		}
		_ = json.Unmarshal(data, &doc)
		for _, s := range doc {
			if s.Token.there() {
				out = append(out, login{s.Name, s.URL})
			}
		}
		return out
	},
}

// opencodeLogins are those of opencode, by the names of the servers.
var opencodeLogins = &loginFile{
	file: func(o Options) string { return inDir("XDG_DATA_HOME", ".local/share", "opencode/mcp-auth.json")(o)[0] },
	read: func(data []byte) (out []login) {
		var doc map[string]struct {
			Tokens token  `json:"tokens"`
			URL    string `json:"serverUrl"`
		}
		_ = json.Unmarshal(data, &doc)
		for name, s := range doc {
			if s.Tokens.there() {
				out = append(out, login{name, s.URL})
			}
		}
		return out
	},
}
