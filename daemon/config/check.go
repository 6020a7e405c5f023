package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"holdline/daemon/clienttable"
	"holdline/daemon/command"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/hostname"
	"holdline/daemon/redact"
)

// Longest names and tokens, in bytes.
const (
	maxName  = 128
	maxToken = 4096
)

// check refuses values that are of the right type and yet make no sense: those that
// their rows of the table do not allow, and those that do not fit to others. Call it
// once the whole file is decoded without a mistake.
func (d *decoder) check(c *Config) {
	for _, check := range d.rows {
		check()
	}
	for _, name := range sorted(c.Identities) {
		d.identity(name, c.Identities[name])
	}
	for _, name := range sorted(c.Consult.Allow) {
		if known := clienttable.Identity(name); known != name && name != Everyone {
			d.wrongKey("consult.allow."+name, "this client is called %q here, so the key means no client", known)
		}
	}
	d.agents(&c.Consult)
	for i, s := range c.Consult.CodexConfig {
		if key, _, ok := strings.Cut(s, "="); !ok || strings.TrimSpace(key) == "" {
			d.wrong(fmt.Sprintf("consult.codex_config[%d]", i), "wants key=value, as codex -c does")
		}
	}
	for i, kind := range c.Notify {
		if !slices.Contains(notifyKinds, kind) {
			d.wrong(fmt.Sprintf("notifications[%d]", i), "wants true, false, or a list of some of: %s",
				strings.Join(notifyKinds, ", "))
		}
	}
	d.logins(c.Logins)
	d.commands(c.Commands)
	d.views(c)
	d.sockets(c)
	for _, name := range sorted(c.Servers) {
		d.name("mcpServers."+name, name, serverName, "of A-Z a-z 0-9 _ . -")
		d.in(&name, func() {
			if len(d.wrongIn[name]) == 0 { // else what was not understood would be said to be missing
				d.checkServer(name, c.Servers[name], c.Commands)
			}
		})
	}
}

// where returns the offset of the value at path. If the file does not have the value,
// it is the offset of the nearest object around it.
func (d *decoder) where(path string) int {
	for path != "" {
		if at, ok := d.at[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return d.at[""]
}

// wrong records a mistake in the value at path.
func (d *decoder) wrong(path, format string, args ...any) {
	d.fail(d.where(path), "%s: %s", clipName(path), fmt.Sprintf(format, args...))
}

// wrongKey records a mistake in the key at the end of path, which the user made up.
func (d *decoder) wrongKey(path, format string, args ...any) {
	d.fail(d.where(path+"\x00"), "%s: %s", clipName(path), fmt.Sprintf(format, args...))
}

// name checks a key that the user made up; the error is shown at the key.
func (d *decoder) name(path, name string, ok func(rune) bool, want string) {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !ok(r) }) {
		d.wrongKey(path, "the name wants 1 to %d %s", maxName, want)
	}
}

// identity checks what the file says of one identity: its name, which clients must be able to have,
// its token, and what makes no sense for anonymous clients. The token is not shown.
func (d *decoder) identity(name string, id Identity) {
	at := "identities." + name
	if known := clienttable.Identity(name); known != name {
		d.wrongKey(at, "this client is called %q here, so the key means no client", known)
	}
	d.name(at, name, func(r rune) bool { return r >= ' ' && r != 0x7f }, "characters, none of them a control character")
	if id.Token != "" && name == "anonymous" {
		d.wrong(at+".token", "anonymous clients send no greeting, and so no token")
	}
	if _, given := d.at[at+".token"]; given {
		token := id.Token.Reveal()
		switch {
		case strings.TrimSpace(token) != token || token == "":
			d.wrong(at+".token", "wants a string that is not empty and neither begins nor ends with a space")
		case len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r == 0x7f }):
			d.wrong(at+".token", "wants at most %d bytes, none of them a control character", maxToken)
		}
	}
	if id.Expose == ExposeSearch && name == "anonymous" {
		d.wrong(at+".expose", "anonymous clients send no greeting, and cannot use tools of hosted servers")
	}
}

// globs checks patterns of names.
func (d *decoder) globs(at string, globs []string) {
	for i, g := range globs {
		if _, err := path.Match(g, ""); err != nil || g == "" {
			d.wrong(fmt.Sprintf("%s[%d]", at, i), "is no glob of tool names")
		}
	}
}

// word refuses a value that a program could take for an option, or for two arguments.
func (d *decoder) word(at, s string) {
	if strings.HasPrefix(s, "-") || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		d.wrong(at, "wants one word that does not begin with a dash")
	}
}

// host checks where a server runs.
func (d *decoder) host(at, s string) {
	if err := hostname.Check(s); s != "" && err != nil {
		d.wrong(at, "%v", err)
	}
}

// program checks a name to be looked for, or a path from the root or the home
// directory. A path from the daemon's working directory would mean nothing to a user.
func (d *decoder) program(at, s string) {
	if word, _, isLine := strings.Cut(s, " "); isLine && !strings.Contains(word, "/") && strings.Contains(s, "/") {
		d.wrong(at, "wants a program: write its first word, and the others into args")
	} else if strings.Contains(s, "/") {
		d.path(at, s)
	}
}

// path checks a path, which begins at the root or at the home directory.
func (d *decoder) path(at, s string) {
	if s != "" && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "~/") {
		d.wrong(at, "wants a path that begins with / or ~/")
	}
}

// paths checks a list of such paths.
func (d *decoder) paths(at string, list []string) {
	for i, s := range list {
		inner := fmt.Sprintf("%s[%d]", at, i)
		if s == "" || s == "~" {
			d.wrong(inner, "wants a path that begins with / or ~/")
			continue
		}
		d.path(inner, s)
	}
}

// env checks variables of an environment.
func (d *decoder) env(at string, env map[string]redact.Secret) {
	for _, name := range sorted(env) {
		d.variableName(at, name)
	}
}

// variableName checks the name of a variable of the environment at a path.
func (d *decoder) variableName(at, name string) {
	d.name(at+"."+name, name, func(r rune) bool { return r > ' ' && r != '=' && r != 0x7f },
		"characters without = or spaces")
}

// checkServer checks what the file says of one hosted server: its name among others, its transport, which
// must fit its command or address, and every text in which ${NAME} is expanded.
func (d *decoder) checkServer(name string, s Server, commands map[string]Command) {
	at := "mcpServers." + name
	if name == reserved {
		d.wrongKey(at, "is the name of holdline itself")
	}
	if strings.Contains(name, "__") || strings.HasSuffix(name, "_") { // what follows it in a tool's name are two
		d.wrongKey(at, "the name must not have two underscores in a row, nor one at its end")
	}
	stdio := s.transport() == Stdio
	switch {
	case s.Command != "" && s.URL != "":
		d.wrong(at+".url", "a server has a command or a url, not both")
	case stdio && s.Command == "":
		d.wrong(at, "wants a command or a url")
	case !stdio && s.URL == "":
		d.wrong(at, "type %s wants a url", s.Type)
	}
	d.expands(at+".command", s.Command)
	if !strings.HasPrefix(s.Command, "${") {
		d.program(at+".command", s.Command)
	}
	for i, arg := range s.Args {
		d.expands(fmt.Sprintf("%s.args[%d]", at, i), arg)
	}
	d.expands(at+".cwd", s.Cwd)
	d.serverEnv(at+".env", s.Env, commands)
	if s.EnvFile != "" && s.Holdline.EnvFile != "" {
		d.wrong(at+".env_file", "is also in the holdline object")
	}
	if s.Enabled != nil && *s.Enabled && (s.Disabled || s.Holdline.Disabled) {
		d.wrong(at+".enabled", "is true, and disabled is, too")
	}
	d.remote(at, s, commands)
	d.oauth(at+".oauth", s)
	d.hosting(at+".holdline", s)
}

// reserved is what a session says for holdline's own tools in the place of a server's name.
const reserved = "holdline"

// serverName reports whether a character may be in a server's name.
func serverName(r rune) bool {
	return r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// expands checks that each ${ in a value begins something that can be expanded. The
// value may be a secret, and is not shown.
func (d *decoder) expands(at, s string) {
	// Every variable is set and empty, so that every default is looked into.
	if _, err := expand.Text(s, func(string) (string, bool) { return "", true }); err != nil {
		d.wrong(at, "%v", err)
	}
	if len(commandRefs(s)) > 0 {
		d.wrong(at, "%v", errCommandHere)
	}
}

// serverEnv checks the variables of a hosted server.
func (d *decoder) serverEnv(at string, env map[string]Variable, commands map[string]Command) {
	for _, name := range sorted(env) {
		d.variableName(at, name)
		if c := env[name].Command; c.Argv != nil {
			d.command(at+"."+name, c)
		} else {
			d.expandsCommands(at+"."+name, env[name].Text.Reveal(), commands)
		}
		if NeverInherited(name) {
			d.wrongKey(at+"."+name, "is never given to a server")
		}
	}
}

// NeverInherited reports whether no server gets a variable, not even from its own entry.
// HOLDLINE_WORKER is how a worker's children are found.
func NeverInherited(name string) bool { return command.Loaders.Has(name) || name == "HOLDLINE_WORKER" }

// remote checks what a remote server has.
func (d *decoder) remote(at string, s Server, commands map[string]Command) {
	d.expands(at+".url", s.URL)
	if s.URL != "" && !strings.Contains(s.URL, "${") {
		if err := CheckURL(s.URL); err != nil {
			d.wrong(at+".url", "%v", err)
		}
	}
	for _, header := range sorted(s.Headers) {
		inner := at + ".headers." + header
		d.name(inner, header, func(r rune) bool { return r > ' ' && r != ':' && r < 0x7f },
			"characters without : or spaces")
		d.expandsCommands(inner, s.Headers[header].Reveal(), commands)
		if strings.ContainsAny(s.Headers[header].Reveal(), "\r\n") {
			d.wrong(inner, "must be one line")
		}
	}
}

// CheckURL returns what is wrong with the address of a server.
func CheckURL(address string) error {
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("wants a http or https address") // the parser's error would show it
	}
	return nil
}

// hosting checks what the rows of the holdline object do not say: the contracts, and
// that the two time limits of a call fit to each other.
func (d *decoder) hosting(at string, s Server) {
	h := s.Holdline
	for _, glob := range sorted(h.Contracts) {
		inner := at + ".contract." + glob
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			d.wrong(inner, "is no glob of tool names")
		}
		if !slices.Contains([]string{"convergent", "never_replay"}, h.Contracts[glob]) {
			d.wrong(inner, "wants one of convergent, never_replay")
		}
	}
	if h.Host != "" && s.transport() != Stdio {
		d.wrong(at+".host", "is for servers with a command")
	}
	for _, name := range sorted(s.Env) {
		if h.Host != "" && len(commandRefs(s.Env[name].Text.Reveal())) > 0 {
			d.wrong(strings.TrimSuffix(at, "holdline")+"env."+name, "the host puts the value together, and has no "+
				`commands of yours: the whole value must be one, as {"command": [...]}`)
		}
	}
	if timeout := h.effective(s).Timeout; h.MaxTimeout != 0 && h.MaxTimeout < timeout {
		d.wrong(at+".max_timeout", "is shorter than timeout, which is %v", timeout)
	}
	d.confinement(at, s)
}

// confinement checks that a server can be held to what its keys say, as far as the file shows.
func (d *decoder) confinement(at string, s Server) {
	h := s.Holdline.effective(s)
	switch limited := h.Network != nil || h.Write != nil; {
	case h.Host != "" && (h.Confine != ConfineOff || limited):
		d.wrong(at+".host", "not with confine, write or network: this machine's kernel enforces them, and %s would not",
			h.Host)
	case h.Confine == ConfineOff && limited:
		key := "network"
		if h.Write != nil {
			key = "write"
		}
		d.wrong(at+"."+key, "wants confine: read or project; a server that may change all files can have "+
			"another program do what it may not")
	case h.Confine != ConfineOff && s.transport() != Stdio:
		d.wrong(at+".confine", "is for servers with a command: this one runs elsewhere")
	case h.Confine == ConfineProject && h.Scope == ScopeShared:
		d.wrong(at+".confine", "a server of scope shared has no project; take read, and name directories in write")
	}
	if s.Holdline.Bounds != (Bounds{}) && (s.transport() != Stdio || h.Host != "") {
		d.wrong(at+".limits", "is for servers with a command on this machine: this one runs elsewhere")
	}
	for i, port := range h.Network {
		if port < 1 || port > 65535 {
			d.wrong(fmt.Sprintf("%s.network[%d]", at, i), "wants 1 to 65535")
		}
	}
}
