package importer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config"
)

// candidate is a server that holdline's file has, or is to get.
type candidate struct {
	name     string
	server   server
	settings config.Settings
	fixed    bool   // the user wrote it into holdline's file; it is not changed
	by       string // title of the client that it comes from
}

// chooseName returns the server's name in holdline's file, and records it as taken.
//
// If a server of its name is there whose process sees the same, both become one. Otherwise the
// name gets the client's name as a suffix, or that of the project's directory, and
// then a number. If the name is not that of the entry, s.Why says so.
func (p *Plan) chooseName(f *File, s *Server, made *server, settings config.Settings) string {
	want := serverName(s.Name)
	if want != s.Name {
		s.Why = "a name in holdline has letters, digits, _ . - only, " +
			"and neither two underscores in a row nor its own name"
	}
	name, suffix := want, f.Client
	if s.Project != "" {
		suffix = serverName(filepath.Base(s.Project))
	}
	for n := 1; ; n++ {
		i := slices.IndexFunc(p.taken, func(c *candidate) bool { return c.name == name })
		if i < 0 {
			p.taken = append(p.taken, &candidate{name: name, server: *made, settings: settings, by: f.Title})
			return name
		}
		if p.taken[i].share(p.o, made, settings) {
			return name
		}
		if name == want {
			alike := p.taken[i].withItsScope(p.o, settings)
			s.Differs = p.o.differences(&alike, &p.taken[i].settings)
			s.Why = fmt.Sprintf("another server %s is %s's and keeps the name, being first (here: %s)",
				name, p.taken[i].by, strings.Join(s.Differs, ", "))
		}
		if name = want + "-" + suffix; n > 1 {
			name = fmt.Sprintf("%s-%s-%d", want, suffix, n)
		}
	}
}

// serverName returns the name closest to an entry's that holdline accepts: other
// characters become dashes, two underscores in a row become one, and the name is cut
// so that a suffix fits.
func serverName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, name)
	for strings.Contains(clean, "__") {
		clean = strings.ReplaceAll(clean, "__", "_")
	}
	const longest = 60 // which leaves room for a client's name
	clean = strings.TrimLeft(clean, "-")
	clean = clean[:min(len(clean), longest)]
	switch clean {
	case "":
		return "server"
	case clients.OwnEntry:
		return clients.OwnEntry + "-server"
	}
	return clean
}

// share makes c stand for another server, too, and reports whether it does. Their processes must
// see the same, and they must be hosted in the same way but for the projects that see them and for
// the timeouts.
//
// The shared server is seen in the projects of both, and the longer timeouts and the narrower scope count. A
// server that the user wrote into holdline's file is never changed: it is shared only
// if the projects of the other one see it already. It keeps its scope, unless [Options.Scope] asks for another one.
func (c *candidate) share(o *Options, s *server, settings config.Settings) bool {
	if !o.isSame(c.settings, c.withItsScope(o, settings)) {
		return false
	}
	if c.fixed {
		return c.settings.Projects == nil || len(settings.Projects) > 0 && c.settings.VisibleIn(settings.Projects[0])
	}
	for name, value := range s.passed {
		if c.server.passed == nil {
			c.server.passed = map[string]string{}
		}
		c.server.passed[name] = value
	}
	if isNarrower(settings.Scope, c.settings.Scope) {
		c.setScope(settings.Scope, s.scopeWhy)
	}
	h := &c.server.Hosting
	switch {
	case h.Projects == nil || s.Hosting.Projects == nil:
		h.Projects = nil
	case !slices.Contains(h.Projects, s.Hosting.Projects[0]):
		h.Projects = append(h.Projects, s.Hosting.Projects[0])
	}
	if settings.Timeout > c.settings.Timeout {
		h.Timeout, c.settings.Timeout = s.Hosting.Timeout, settings.Timeout
	}
	if settings.StartTimeout > c.settings.StartTimeout {
		h.StartTimeout, c.settings.StartTimeout = s.Hosting.StartTimeout, settings.StartTimeout
	}
	return true
}

// withItsScope returns the settings of another server with the scope of c, unless [Options.Scope] asks for one: a scope that
// was chosen for a server makes it no other server.
func (c *candidate) withItsScope(o *Options, settings config.Settings) config.Settings {
	if o.Scope == "" {
		settings.Scope = c.settings.Scope
	}
	return settings
}

// setScope sets the scope of a server that moves, and why it has that.
func (c *candidate) setScope(scope, why string) {
	c.settings.Scope = scope
	c.server.writeScope(scope, why)
}

// isNarrower reports whether fewer agents share a process with one scope than with another.
func isNarrower(scope, other string) bool {
	order := []string{config.ScopeShared, config.ScopeProject, config.ScopeSession}
	return slices.Index(order, scope) > slices.Index(order, other)
}

// sameServer reports whether two servers are the same but for what share can join:
// their names, projects and timeouts.
func sameServer(a, b config.Settings) bool {
	for _, s := range []*config.Settings{&a, &b} {
		s.Name, s.Projects, s.Timeout, s.MaxTimeout, s.StartTimeout = "", nil, 0, 0, 0
		// An empty list or object says the same as none.
		if len(s.Env) == 0 {
			s.Env = nil
		}
		if len(s.Headers) == 0 {
			s.Headers = nil
		}
		if len(s.Args) == 0 {
			s.Args = nil
		}
	}
	return a.Equal(b)
}
