package importer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/plural"
	"holdline/daemon/servertable"
)

// diff returns the lines that show an edit of doc: what the entry runs now, and what
// replaces it, with the names of the keys that stay. Call it before the edit is made.
func (s *step) diff(doc clients.Document) []string {
	label := printable(strings.Join(s.path, "."))
	var out, kept []string
	if e := clients.Find(doc, s.path); e != nil {
		for _, key := range e.Order {
			isSet := slices.ContainsFunc(s.fields, func(f clients.Field) bool { return f.Key == key })
			if !clients.Describes(key) && !isSet {
				kept = append(kept, printable(key))
			}
		}
		out = append(out, "- "+label+": "+summary(e))
	}
	if s.fields == nil {
		return out
	}
	line := "+ " + label + ": " + commandLine(s.fields)
	if len(kept) > 0 {
		line += " (keeps " + strings.Join(kept, ", ") + ")"
	}
	return append(out, line)
}

// commandLine returns what an entry with these fields runs.
func commandLine(fields []clients.Field) string {
	e := clients.Entry{Keys: map[string]any{}}
	for _, f := range fields {
		e.Keys[f.Key] = f.Value
	}
	program, args := e.CommandLine()
	return printable(strings.Join(append([]string{program}, args...), " "))
}

// summary returns what an entry runs, without anything that may be secret.
func summary(e *clients.Entry) string {
	if name, ok := e.StartsHoldline(); ok {
		return printable(strings.TrimSuffix("holdline mcp-stdio --server "+name, " --server "))
	}
	s := Server{}
	s.describe(e)
	return s.summary()
}

// summary returns what a server runs.
func (s *Server) summary() string {
	parts := []string{printable(s.Runs)}
	if s.Args > 0 {
		parts = append(parts, plural.Count(s.Args, "argument"))
	}
	if len(s.Env) > 0 {
		parts = append(parts, "env "+printable(strings.Join(s.Env, " ")))
	}
	if len(s.Headers) > 0 {
		parts = append(parts, "headers "+printable(strings.Join(s.Headers, " ")))
	}
	return strings.Join(parts, ", ")
}

// printable returns a text of a file without control characters, which could change
// what a terminal shows.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Print writes the plan for people: each file with its servers and its diff, then the
// servers that holdline's file gets. It shows no secret.
func (p *Plan) Print(w io.Writer) {
	for _, f := range p.Files {
		f.print(w)
	}
	if len(p.Servers) > 0 {
		title := p.Config
		switch {
		case p.own.Make:
			title += " (new)"
		case p.losesMode():
			title += fmt.Sprintf(" (mode %04o becomes %04o: what moves into it may be secret)",
				p.ownMode, p.ownMode&^othersMode)
		}
		fmt.Fprintf(w, "holdline: %s\n", title)
		for _, name := range p.Servers {
			fmt.Fprintf(w, "    + mcpServers.%s\n", printable(name))
		}
	}
}

// Unkept returns the line of the plan about [Plan.Left]; "" if there is none.
func (p *Plan) Unkept() string {
	if len(p.Left) == 0 {
		return ""
	}
	return fmt.Sprintf("Of your environment, servers that move will not have: %s. To keep one: --keep NAME",
		printable(strings.Join(p.Left, ", ")))
}

// print writes the plan for one file.
func (f *File) print(w io.Writer) {
	title := f.Title + ": " + printable(f.Path)
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
		line := fmt.Sprintf("  %-20s %s", printable(s.Name), s.state())
		if s.Project != "" {
			line += " [for " + printable(s.Project) + "]"
		}
		fmt.Fprintln(w, line)
		if s.ScopeWhy != "" {
			fmt.Fprintf(w, "  %-20s   %s: %s\n", "", servertable.Title(s.Scope), printable(s.ScopeWhy))
		}
		for _, n := range s.Notes {
			fmt.Fprintf(w, "  %-20s   note: %s\n", "", n)
		}
	}
	for _, line := range f.Diff {
		fmt.Fprintln(w, "    "+line)
	}
}

// state returns what becomes of a server, in words.
func (s *Server) state() string {
	switch {
	case s.Verdict == Ours:
		return "already connected"
	case s.Verdict == Stays:
		return "stays: " + printable(s.Why)
	case s.Why != "":
		return "moves as " + s.As + ": " + printable(s.Why)
	}
	return "moves"
}
