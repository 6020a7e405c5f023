// Package planview shows people what an import would do: a summary, a line for each server,
// and the details. It shows the progress of servers that are tried, too. What it prints fits
// the terminal; package console sees to that.
package planview

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/importer"
	"holdline/daemon/plural"
	"holdline/daemon/servertable"
)

// row is one line of the plan: what becomes of a server, or of a file.
type row struct {
	verdict console.Painted
	name    string
	text    string
	scope   string // which agents will share a process of it; "" for what does not move
}

// Widths to which names and texts are padded. A longer one shifts its line.
const (
	maxName = 24
	maxText = 32
)

// Print writes the plan: the summary, and a line for each server or file that changes, or that
// does not and why. With verbose the plan for each file follows.
func Print(w io.Writer, plan *importer.Plan, verbose bool) {
	console.Line(w, 4, "%s", console.Bold.Paint(plan.Summary))
	rows := slices.Concat(moving(plan), staying(plan), dangling(plan), files(plan))
	width := 0
	for _, r := range rows {
		width = max(width, min(maxName, console.Width(r.name)))
	}
	widest := 0
	for _, r := range rows {
		if w := console.Width(r.text); r.scope != "" && w <= maxText {
			widest = max(widest, w)
		}
	}
	for _, r := range rows {
		switch w := console.Width(r.text); {
		case r.scope == "":
		case w > maxText: // in no column: it must not read as part of a command
			r.text += "; " + r.scope
		default:
			r.text += strings.Repeat(" ", widest-w) + "  " + r.scope
		}
		console.Line(w, 11+width, "  %-5s  %-*s  %s", r.verdict, width, r.name, r.text)
	}
	var shown []string
	servers := map[string][]string{} // by what is noted of them
	entries(plan, func(_ *importer.File, s *importer.Server) {
		for _, note := range s.Notes {
			if s.Verdict == importer.Moves &&
				(strings.HasPrefix(note, "keeps variable") || strings.HasPrefix(note, importer.LacksNote)) {
				shown = appendNew(shown, note)
				servers[note] = appendNew(servers[note], s.As)
			}
		}
	})
	for _, note := range shown {
		verb, rest, _ := strings.Cut(note, " ")
		if len(servers[note]) > 1 {
			verb = strings.TrimSuffix(verb, "s")
		}
		console.Line(w, 4, "%s %s %s", strings.Join(servers[note], ", "), verb, rest)
	}
	if line := plan.Unkept(); line != "" {
		console.Line(w, 4, "%s", line)
	}
	printLate(w, plan)
	if !verbose {
		return
	}
	fmt.Fprintln(w)
	var text bytes.Buffer
	plan.Print(&text)
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, "\n")
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)
		console.Line(w, indent+4, "%s%s", strings.Repeat(" ", indent), content)
	}
}

// downloaders are programs that fetch the server that they start.
var downloaders = []string{
	"npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "deno", "uvx", "uv", "pipx", "docker", "podman",
}

// printLate prints what may keep servers from answering in time, if programs start them that
// download them first.
func printLate(w io.Writer, plan *importer.Plan) {
	var by []string
	entries(plan, func(_ *importer.File, s *importer.Server) {
		if s.Late && slices.Contains(downloaders, s.Runs) {
			by = appendNew(by, s.Runs)
		}
	})
	if len(by) > 0 {
		console.Line(w, 4, "No answer in time by way of %s: the server may still be downloading, or its registry "+
			"cannot be reached. Run holdline setup again, or run the command of one of them by hand to see what "+
			"it says.", strings.Join(by, ", "))
	}
}

// entries calls f for each entry of all files, in their order.
func entries(plan *importer.Plan, f func(*importer.File, *importer.Server)) {
	for _, file := range plan.Files {
		for _, s := range file.Servers {
			f(file, s)
		}
	}
}

// appendNew appends a text that the list has not.
func appendNew(list []string, text string) []string {
	if text == "" || slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// moving returns a row for each server that moves, with the clients whose entries it stands
// for.
func moving(plan *importer.Plan) []row {
	var rows []row
	at := map[string]int{}
	titles := map[string][]string{}
	notes := map[string][]string{}
	entries(plan, func(f *importer.File, s *importer.Server) {
		if s.Verdict != importer.Moves {
			return
		}
		if _, known := at[s.As]; !known {
			at[s.As] = len(rows)
			rows = append(rows, row{
				verdict: console.Good.Paint("moves"), name: s.As, scope: servertable.Title(s.Scope),
			})
			if s.Tools != nil {
				notes[s.As] = append(notes[s.As], plural.Count(len(s.Tools), "tool"))
			}
			if s.Login {
				notes[s.As] = append(notes[s.As], "log in once: holdline servers login "+s.As)
			}
			if s.Untried {
				notes[s.As] = append(notes[s.As], importer.NotStarted)
			}
		}
		titles[s.As] = appendNew(titles[s.As], f.Title)
		switch {
		case len(s.Differs) > 0:
			notes[s.As] = appendNew(notes[s.As], "not as "+s.Name+": "+strings.Join(s.Differs, ", "))
		case s.Why != "":
			notes[s.As] = appendNew(notes[s.As], "there "+s.Name)
		}
	})
	for name, i := range at {
		rows[i].text = strings.Join(append([]string{strings.Join(titles[name], ", ")}, notes[name]...), "; ")
	}
	return rows
}

// staying returns a row for each server that stays. Servers of a file that is not edited are
// in the row of the file.
func staying(plan *importer.Plan) []row {
	var rows []row
	type key struct{ name, why string }
	at := map[key]int{}
	titles := map[key][]string{}
	entries(plan, func(f *importer.File, s *importer.Server) {
		if s.Verdict != importer.Stays || f.Why != "" {
			return
		}
		k := key{s.Name, s.Why}
		if _, known := at[k]; !known {
			at[k] = len(rows)
			verdict := console.Odd.Paint("stays")
			if s.Login {
				verdict = console.Odd.Paint("login")
			}
			rows = append(rows, row{verdict: verdict, name: s.Name})
		}
		titles[k] = appendNew(titles[k], f.Title)
	})
	for k, i := range at {
		rows[i].text = strings.Join(titles[k], ", ") + ": " + k.why
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.verdict.Text, b.verdict.Text) })
	return rows
}

// dangling returns a row for each server that entries of clients start, and that holdline does not have any more.
// They are removed where the client's file is edited.
func dangling(plan *importer.Plan) []row {
	var rows []row
	at := map[string]int{}
	titles := map[string][]string{}
	for _, f := range plan.Files {
		for _, name := range f.Dangling() {
			key := f.Why + "\x00" + name
			if _, known := at[key]; !known {
				at[key] = len(rows)
				r := row{verdict: console.Odd.Paint("drops"), name: name, text: "Holdline has no such server any more"}
				if f.Why != "" {
					r.verdict, r.text = console.Odd.Paint("stays"), r.text+"; "+f.Path+" is not edited: "+f.Why
				}
				rows = append(rows, r)
			}
			titles[key] = appendNew(titles[key], f.Title)
		}
	}
	for key, i := range at {
		rows[i].text = strings.Join(titles[key], ", ") + ": " + rows[i].text
	}
	return rows
}

// files returns a row for the entries of holdline itself that clients get, and one for each
// file that is not edited.
func files(plan *importer.Plan) []row {
	var own []string
	var rows []row
	for _, f := range plan.Files {
		if f.Consult != "" {
			own = appendNew(own, f.Title)
		}
		switch {
		case f.Broken:
			rows = append(rows, row{verdict: console.Bad.Paint("error"), name: f.Client, text: f.Path + ": " + f.Why})
		case f.Why != "" && len(f.Servers) > 0:
			var names []string
			for _, s := range f.Servers {
				names = appendNew(names, s.Name)
			}
			why := f.Title + ": " + f.Path + " is not edited: " + f.Why
			rows = append(rows, row{verdict: console.Odd.Paint("stays"), name: strings.Join(names, ", "), text: why})
		}
	}
	if len(own) > 0 {
		text := strings.Join(own, ", ") + "; consult and Holdline's other own tools"
		rows = slices.Insert(rows, 0, row{verdict: console.Good.Paint("adds"), name: "holdline", text: text})
	}
	return rows
}

// Tries returns a display on w of how servers are tried, and a function for
// [importer.Options.Trying] that feeds it. Close it when no server is tried any more.
func Tries(w io.Writer) (live *Live, show func(importer.TryEvent)) {
	live = NewLive(w, "Starting servers")
	return live, func(e importer.TryEvent) {
		switch {
		case e.Trial == nil:
			live.Begin(e.Name, e.Of)
		case e.Trial.Err != nil:
			live.End(e.Name, e.Trial.Err.Error())
		case e.Trial.Tools == nil:
			live.End(e.Name, "starts")
		default:
			live.End(e.Name, "starts, "+plural.Count(len(e.Trial.Tools), "tool"))
		}
	}
}
