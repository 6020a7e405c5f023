package clients

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// diff is how the edit is shown: what goes, and what comes in its place. It is
// called before the edit.
func (s *step) diff(doc document) []string {
	label := shown(strings.Join(s.path, "."))
	var out []string
	var kept []string
	if s.old != "" {
		keys := map[string]any{}
		for _, x := range doc.fields(s.path) {
			keys[x.key] = x.value
			if !slices.Contains(describing, x.key) && !slices.ContainsFunc(s.fields, func(o field) bool { return o.key == x.key }) {
				kept = append(kept, shown(x.key))
			}
		}
		out = append(out, "- "+label+": "+summary(keys))
	}
	if s.fields == nil {
		return out
	}
	line := "+ " + label + ": " + started(s.fields)
	if len(kept) > 0 {
		line += " (keeps " + strings.Join(kept, ", ") + ")"
	}
	return append(out, line)
}

// started is the command line of an entry that starts holdline.
func started(fields []field) string {
	var words []string
	for _, x := range fields {
		switch v := x.value.(type) {
		case string:
			if x.key == "command" {
				words = append([]string{v}, words...)
			}
		case []any:
			for _, one := range v {
				words = append(words, fmt.Sprint(one))
			}
		}
	}
	return shown(strings.Join(words, " "))
}

// summary is what an entry starts, without anything that may be secret.
func summary(keys map[string]any) string {
	if name, ok := ours(keys); ok {
		if name == "" {
			return "holdline mcp-stdio"
		}
		return "holdline mcp-stdio --server " + shown(name)
	}
	s := Server{}
	s.describe(keys)
	return s.words()
}

// words tell what a server is.
func (s *Server) words() string {
	parts := []string{shown(s.Runs)}
	switch s.Args {
	case 0:
	case 1:
		parts = append(parts, "1 argument")
	default:
		parts = append(parts, fmt.Sprintf("%d arguments", s.Args))
	}
	if len(s.Env) > 0 {
		parts = append(parts, "env "+shown(strings.Join(s.Env, " ")))
	}
	if len(s.Headers) > 0 {
		parts = append(parts, "headers "+shown(strings.Join(s.Headers, " ")))
	}
	return strings.Join(parts, ", ")
}

// shown is a text of a file as a terminal may show it.
func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Print shows the plan to people.
func (p *Plan) Print(w io.Writer) {
	for _, f := range p.Files {
		f.print(w)
	}
	if len(p.Servers) > 0 {
		title := p.Config
		switch {
		case p.made:
			title += " (new)"
		case p.closes():
			title += fmt.Sprintf(" (mode %04o becomes %04o: what moves into it may be secret)", p.mode, p.mode&^others)
		}
		fmt.Fprintf(w, "holdline: %s\n", title)
		for _, name := range p.Servers {
			fmt.Fprintf(w, "    + mcpServers.%s\n", shown(name))
		}
	}
}

func (f *File) print(w io.Writer) {
	title := f.Title + ": " + shown(f.Path)
	switch {
	case f.Make:
		title += " (new)"
	case f.Why != "":
		title += " (not edited: " + f.Why + ")"
	case !f.Changes:
		title += " (nothing to do)"
	}
	fmt.Fprintln(w, title)
	for _, s := range f.Servers {
		line := fmt.Sprintf("  %-20s %s", shown(s.Name), s.state())
		if s.Project != "" {
			line += " [for " + shown(s.Project) + "]"
		}
		fmt.Fprintln(w, line)
		for _, n := range s.Notes {
			fmt.Fprintf(w, "  %-20s   note: %s\n", "", n)
		}
	}
	for _, line := range f.Diff {
		fmt.Fprintln(w, "    "+line)
	}
}

func (s *Server) state() string {
	switch {
	case s.Verdict == Ours:
		return "is holdline's already"
	case s.Verdict == Stays:
		return "stays: " + shown(s.Why)
	case s.Why != "":
		return "moves as " + s.As + ": " + shown(s.Why)
	}
	return "moves"
}
