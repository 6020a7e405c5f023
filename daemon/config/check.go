package config

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Longest names and tokens, in bytes.
const (
	maxName  = 128
	maxToken = 4096
)

// check refuses values that are of the right type and yet make no sense.
func (d *decoder) check(c *Config) {
	for _, name := range sorted(c.Identities) {
		d.identity(name, c.Identities[name])
	}
	within(d, "limits.connections", c.Limits.Connections, 1, 65_536)
	within(d, "limits.in_flight", c.Limits.InFlight, 1, 4096)
	d.consult(&c.Consult)
	within(d, "telemetry.max_bytes", c.Telemetry.MaxBytes, 64<<10, 1<<30)
	within(d, "telemetry.keep", c.Telemetry.Keep, 1, 100)
	for _, name := range sorted(c.Servers) {
		d.server(name, c.Servers[name])
	}
}

// where is the place of a value that the file may not have: then its parent's.
func (d *decoder) where(path string) int {
	for path != "" {
		if at, ok := d.at[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return d.at[""]
}

func (d *decoder) wrong(path, format string, args ...any) {
	d.fail(d.where(path), "%s: %s", clip(path), fmt.Sprintf(format, args...))
}

func within[N cmp.Ordered](d *decoder, path string, n, low, high N) {
	if n < low || n > high {
		d.wrong(path, "wants %v to %v", low, high)
	}
}

// oneOf takes the empty string for the default.
func (d *decoder) oneOf(path, s string, names ...string) {
	if s != "" && !slices.Contains(names, s) {
		d.wrong(path, "wants one of %s", strings.Join(names, ", "))
	}
}

// name checks a key that the user made up; the error is shown at the key.
func (d *decoder) name(path, name string, ok func(rune) bool, want string) {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !ok(r) }) {
		d.fail(d.where(path+"\x00"), "%s: the name wants 1 to %d %s", clip(path), maxName, want)
	}
}

func (d *decoder) identity(name string, id Identity) {
	at := "identities." + name
	d.name(at, name, func(r rune) bool { return r >= ' ' && r != 0x7f }, "characters, none of them a control character")
	if id.Token != "" && name == "anonymous" {
		d.wrong(at+".token", "anonymous is who sends no greeting, and so no token")
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
	d.globs(at+".allow", id.Allow)
	d.globs(at+".deny", id.Deny)
}

func (d *decoder) globs(at string, globs []string) {
	for i, g := range globs {
		if _, err := path.Match(g, ""); err != nil || g == "" {
			d.wrong(fmt.Sprintf("%s[%d]", at, i), "is no glob of tool names")
		}
	}
}

func (d *decoder) consult(c *Consult) {
	const at = "consult"
	d.word(at+".model", c.Model)
	d.word(at+".effort", c.Effort)
	within(d, at+".max_concurrent", c.MaxConcurrent, 1, 64)
	within(d, at+".timeout", c.Timeout, time.Second, 24*time.Hour)
	within(d, at+".wait", c.Wait, 0, 24*time.Hour)
	within(d, at+".max_turns", c.MaxTurns, 0, 10_000)
	within(d, at+".keep.count", c.Keep.Count, 0, 100_000)
	within(d, at+".keep.age", c.Keep.Age, 0, 10*365*24*time.Hour)
	d.program(at+".claude_bin", c.ClaudeBin)
	d.paths(at+".roots", c.Roots)
	d.path(at+".env_file", c.EnvFile)
	d.env(at+".env", c.Env)
}

// word refuses what could be taken for a flag, or for two arguments.
func (d *decoder) word(at, s string) {
	if strings.HasPrefix(s, "-") || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		d.wrong(at, "wants one word that does not begin with a dash")
	}
}

// program takes a name to be looked for, or a path from the root or the home:
// the daemon's working directory means nothing to a user.
func (d *decoder) program(at, s string) {
	if strings.Contains(s, "/") {
		d.path(at, s)
	}
}

func (d *decoder) path(at, s string) {
	if s != "" && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "~/") {
		d.wrong(at, "wants a path that begins with / or ~/")
	}
	if strings.Contains(s, "\x00") {
		d.wrong(at, "has a NUL character")
	}
}

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

func (d *decoder) env(at string, env map[string]Secret) {
	for _, name := range sorted(env) {
		d.name(at+"."+name, name, func(r rune) bool { return r > ' ' && r != '=' && r != 0x7f }, "characters without = or spaces")
		if strings.Contains(env[name].Reveal(), "\x00") {
			d.wrong(at+"."+name, "has a NUL character")
		}
	}
}

func (d *decoder) server(name string, s Server) {
	at := "mcpServers." + name
	d.name(at, name, func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}, "of A-Z a-z 0-9 _ . -")
	if strings.Contains(name, "__") {
		d.fail(d.where(at+"\x00"), "%s: the name must not have two underscores in a row", clip(at))
	}
	d.oneOf(at+".type", s.Type, "stdio", "http", "streamable-http", "sse")
	stdio := s.Type == "stdio" || s.Type == "" && s.URL == ""
	switch {
	case s.Command != "" && s.URL != "":
		d.wrong(at+".url", "a server has a command or a url, not both")
	case stdio && s.Command == "":
		d.wrong(at, "wants a command or a url")
	case !stdio && s.URL == "":
		d.wrong(at, "type %s wants a url", s.Type)
	}
	if s.URL != "" && !strings.Contains(s.URL, "${") {
		if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			d.wrong(at+".url", "wants a http or https address")
		}
	}
	for i, arg := range s.Args {
		if strings.Contains(arg, "\x00") {
			d.wrong(fmt.Sprintf("%s.args[%d]", at, i), "has a NUL character")
		}
	}
	d.env(at+".env", s.Env)
	for _, header := range sorted(s.Headers) {
		d.name(at+".headers."+header, header, func(r rune) bool { return r > ' ' && r != ':' && r < 0x7f }, "characters without : or spaces")
		if strings.ContainsAny(s.Headers[header].Reveal(), "\r\n\x00") {
			d.wrong(at+".headers."+header, "must be one line")
		}
	}
	d.hosting(at+".holdline", s.Holdline)
}

func (d *decoder) hosting(at string, h Hosting) {
	d.oneOf(at+".scope", h.Scope, "project", "shared", "session")
	d.oneOf(at+".inherit_env", h.InheritEnv, "all", "core", "none")
	for _, glob := range sorted(h.Contract) {
		inner := at + ".contract." + glob
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			d.wrong(inner, "is no glob of tool names")
		}
		if !slices.Contains([]string{"convergent", "probe_required", "never_replay"}, h.Contract[glob]) {
			d.wrong(inner, "wants one of convergent, probe_required, never_replay")
		}
	}
	d.globs(at+".allow", h.Allow)
	d.globs(at+".deny", h.Deny)
	d.paths(at+".projects", h.Projects)
	d.path(at+".env_file", h.EnvFile)
	within(d, at+".max_concurrent", h.MaxConcurrent, 0, 4096)
	within(d, at+".circuit_threshold", h.CircuitThreshold, 0, 1000)
	if h.MaxRestarts != nil {
		within(d, at+".max_restarts", *h.MaxRestarts, 0, 1000)
	}
	const week = 7 * 24 * time.Hour
	within(d, at+".keep_alive", h.KeepAlive, 0, week)
	within(d, at+".timeout", h.Timeout, 0, week)
	within(d, at+".max_timeout", h.MaxTimeout, 0, week)
	within(d, at+".restart_window", h.RestartWindow, 0, week)
	within(d, at+".circuit_reset", h.CircuitReset, 0, week)
}
