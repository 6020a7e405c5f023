package clients

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// LoggedIn returns the file that shows that the client has logged in to a server of
// that name and address, or "". A login belongs to the client: if the server moves
// into holdline's configuration, a user has to log in there. Logins that a client keeps
// in the system's keychain cannot be seen.
func (c *Client) LoggedIn(p Places, name, url string) string {
	if c.Logins == "" {
		return ""
	}
	path := p.path(c.Logins)
	data, err := ReadFile(path)
	if err != nil { // the client cannot use the file either
		return ""
	}
	for _, l := range readLogins(data) {
		if l.isFor(name, url) {
			return path
		}
	}
	return ""
}

// login is a client's login to the server of an entry.
type login struct{ name, url string }

// isFor reports whether the login is for the server of an entry. An address with
// variables is taken for the login's: only the client can resolve it.
func (l login) isFor(name, url string) bool {
	return l.name == name && (l.url == "" || strings.ContainsAny(url, "${") ||
		strings.TrimRight(l.url, "/") == strings.TrimRight(url, "/"))
}

// readLogins returns the logins in a client's file. The forms are alike:
//
//   - Claude Code: {"mcpOAuth": {"NAME|HASH": {"serverName", "serverUrl", "accessToken", ...}}}
//   - Codex, without a keychain: {"KEY": {"server_name", "server_url", "access_token", ...}}
//   - Gemini CLI: [{"serverName", "mcpServerUrl", "token": {"accessToken", ...}}]
//   - opencode: {"NAME": {"serverUrl", "tokens": {"accessToken", ...}}}
//
// A login that was begun and never finished has no token and does not count.
func readLogins(data []byte) []login {
	var out []login
	doc := decode(data)
	if m, ok := doc.(map[string]any); ok && m["mcpOAuth"] != nil {
		doc = m["mcpOAuth"]
	}
	add := func(key string, v any) {
		m, _ := v.(map[string]any)
		tokens := m
		for _, name := range []string{"token", "tokens"} {
			if inner, ok := m[name].(map[string]any); ok {
				tokens = inner
			}
		}
		if firstText(tokens, "accessToken", "access_token", "refreshToken", "refresh_token") != "" {
			name := cmp.Or(firstText(m, "serverName", "server_name"), key)
			out = append(out, login{name, firstText(m, "serverUrl", "server_url", "mcpServerUrl")})
		}
	}
	switch doc := doc.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(doc)) {
			add(key, doc[key])
		}
	case []any:
		for _, v := range doc {
			add("", v)
		}
	}
	return out
}

// firstText returns the first member of m among keys that is a string and not empty.
func firstText(m map[string]any, keys ...string) string {
	for _, key := range keys {
		if s, _ := m[key].(string); s != "" {
			return s
		}
	}
	return ""
}
