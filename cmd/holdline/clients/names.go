package clients

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/config"
)

// name finds a server's name in holdline's file. One that is there already is
// kept if it says the same; else the server is called after its client, too.
func (p *Plan) name(f *File, s *Server, made server) {
	settings, err := made.settings()
	if err != nil { // translate has asked already
		s.Verdict, s.Why = Stays, err.Error()
		return
	}
	want := serverName(s.Name)
	if want != s.Name {
		s.Why = "a name in holdline has letters, digits, _ . - only, and neither two underscores in a row nor its own name"
	}
	name, suffix := want, f.Client
	if s.Project != "" {
		suffix = serverName(filepath.Base(s.Project))
	}
	for n := 1; ; n++ {
		i := slices.IndexFunc(p.taken, func(c *candidate) bool { return c.name == name })
		if i < 0 {
			p.taken = append(p.taken, &candidate{name: name, server: made, settings: settings, by: f.Title})
			break
		}
		if p.taken[i].shared(made, settings) {
			break
		}
		if name == want {
			s.Why = fmt.Sprintf("another server %s is %s's and keeps the name, being first", name, p.taken[i].by)
		}
		if name = want + "-" + suffix; n > 1 {
			name = fmt.Sprintf("%s-%s-%d", want, suffix, n)
		}
	}
	s.As = name
}

// serverName makes of an entry's name one that holdline takes.
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
	case entryName:
		return entryName + "-server"
	}
	return clean
}

// shared lets a server be another one's, too, if both are the same but for
// where they are seen and how long their clients wait. The user's own servers
// are not changed.
func (c *candidate) shared(s server, settings config.Settings) bool {
	if !same(c.settings, settings) {
		return false
	}
	if c.fixed {
		return c.settings.Projects == nil || len(settings.Projects) > 0 && c.settings.VisibleIn(settings.Projects[0])
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
	return true
}

func same(a, b config.Settings) bool {
	for _, s := range []*config.Settings{&a, &b} {
		s.Name, s.Projects, s.Timeout, s.MaxTimeout = "", nil, 0, 0
		// Nothing and an empty list or object say the same.
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
