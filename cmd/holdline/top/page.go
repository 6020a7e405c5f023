package top

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/glance"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/steps"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
)

// maxPageLines bounds the lines of a page; of a log that is followed the last ones are kept.
const maxPageLines = 5000

// page is a text in place of the tables: the details of a row, or a log.
type page struct {
	title   string
	section int    // with the row that it is about
	key     string // of that row; "" for a log
	state   string // of a consult when its answer was asked for
	details []line // renewed while the page is shown
	lines   []line // follow: a log, or an answer

	end    bool // the end is shown, also when lines are added
	top    int  // first line that is shown, after wrapping; corrected when the page is drawn
	server string
	after  map[string]int64 // of the log of that server: by worker, where it goes on
	logs   bool

	steps   *steps.Follower // of what a consult does; nil for other pages, and once the consult is over
	unended string          // the last line, if it is a text that goes on
}

// line is a line of a page. A line with a name is one of its details.
type line struct {
	name, text string
	style      lipgloss.Style
}

// draw returns the part of a page that fits.
func (p *page) draw(width, height int) []string {
	var all []string
	names := 0
	lines := slices.Concat(p.details, p.lines)
	for _, l := range lines {
		names = max(names, console.Width(l.name))
	}
	for _, l := range lines {
		indent := 1
		if names > 0 {
			indent = names + 3
		}
		for i, part := range strings.Split(lipgloss.Wrap(l.text, max(10, width-indent-1), ""), "\n") {
			head := strings.Repeat(" ", indent)
			if i == 0 && l.name != "" {
				head = " " + dimText.Render(pad(l.name, names, false)) + "  "
			}
			all = append(all, head+l.style.Render(fill(part, width-indent)))
		}
	}
	height--
	last := max(0, len(all)-height)
	if p.top = min(max(0, p.top), last); p.end {
		p.top = last
	}
	title := " " + p.title
	if len(all) > height {
		title += fmt.Sprintf("   lines %d–%d of %d", p.top+1, min(p.top+height, len(all)), len(all))
	}
	out := append([]string{atHeading.Render(fill(title, width))}, all[p.top:min(p.top+height, len(all))]...)
	for len(out) < height+1 {
		out = append(out, strings.Repeat(" ", width))
	}
	return out
}

// scroll moves the page by that many lines.
func (p *page) scroll(lines int) {
	p.top += lines
	p.end = false
}

// add adds a detail, unless it is empty.
func (p *page) add(name, format string, args ...any) {
	if words := harmless(fmt.Sprintf(format, args...)); words != "" {
		p.details = append(p.details, line{name: name, text: words})
	}
}

// addText adds a text of several lines under a name.
func (p *page) addText(name, words string, style lipgloss.Style) {
	for part := range strings.SplitSeq(strings.TrimRight(words, "\n"), "\n") {
		part = strings.Map(console.Printable, strings.ReplaceAll(part, "\t", "    "))
		p.lines = append(p.lines, line{name, part, style})
		name = ""
	}
	if n := len(p.lines); n > maxPageLines {
		p.lines = append(p.lines[:0], p.lines[n-maxPageLines:]...)
	}
}

// addLog adds what the processes of a server have written.
func (p *page) addLog(a *control.ServerLogsAnswer) {
	first := p.after == nil
	if first {
		p.after = map[string]int64{}
	}
	for _, l := range a.Logs {
		if l.Text != "" {
			if len(a.Logs) > 1 {
				p.addText("", fmt.Sprintf("— process %d %s", l.PID, l.Root), dimText)
			}
			p.addText("", l.Text, plainText)
		}
		p.after[l.Worker] = l.Next
	}
	if first && len(p.lines) == 0 {
		switch {
		case a.Last != nil:
			p.addText("", p.server+" does not run now. Why it ended:\n"+a.Last.Fault.Detail, badText)
		case len(a.Logs) == 0:
			p.addText("", p.server+" does not run now. It starts when an agent uses it, or with r.", dimText)
		}
	}
}

// pageOf returns the details of a row of a section.
func (m *model) pageOf(section int, r *row) *page {
	var p *page
	switch {
	case r.server != nil:
		p = m.serverPage(r.server)
	case r.consult != nil:
		p = m.consultPage(r.consult)
	case r.agent != nil:
		p = m.agentPage(r.agent)
	default:
		p = m.eventPage(r.event)
	}
	p.section, p.key = section, r.key
	return p
}

// renew renews the details that are shown. It asks for the answer of a consult that has
// changed its state.
func (m *model) renew() tea.Cmd {
	p := m.page
	if p == nil || p.key == "" {
		return nil
	}
	rows := m.everything()[p.section].rows
	i := slices.IndexFunc(rows, func(r row) bool { return r.key == p.key })
	if i < 0 { // it is gone; the last that was known stays
		return nil
	}
	fresh := m.pageOf(p.section, &rows[i])
	changed := p.state != fresh.state
	p.details, p.state = fresh.details, fresh.state
	if changed {
		return m.askAnswer(p, p.key)
	}
	return nil
}

// serverPage returns the details of a server.
func (m *model) serverPage(s *control.Server) *page {
	p := &page{title: "SERVER " + harmless(s.Name), server: s.Name}
	p.add("State", "%s, %s", s.State, counted(s.Processes, "process"))
	if s.LastFault != nil {
		when := time.UnixMilli(s.LastFaultMS).In(m.now().Location()).Format(time.TimeOnly)
		p.details = append(p.details, line{"Last fault", harmless(when + "  " + s.LastFault.Fault.Detail), badText})
	}
	for _, t := range trouble.OfServer(s) {
		style := oddText
		if t.Bad {
			style = badText
		}
		p.details = append(p.details, line{"Trouble", harmless(t.What), style})
		p.add("What helps", "%s", t.Fix)
	}
	p.add("Used by", "%s", counted(s.RefCount, "session"))
	p.add("Scope", "%s", map[string]string{
		"shared": "shared: one process for all", "project": "project: one process for each project",
		"session": "session: one process for each session",
	}[s.Scope])
	p.add("Memory", "%s", size(m.memory[s.Name]))
	if s.Load.Calls > 0 {
		p.add("Calls", "%s since the daemon has started, %s failed, half of them took at most %s",
			count(s.Load.Calls), count(s.Load.Errors), latency(s.Load.P50MS))
	}
	p.add("Now", "%d in flight, %d wait for their turn", s.InFlight, s.Queued)
	if s.Tools != nil {
		tools := count(int64(*s.Tools))
		if s.Changed > 0 {
			tools += fmt.Sprintf("; changed since they were first seen: %d", s.Changed)
		}
		p.add("Tools", "%s", tools)
	}
	p.add("Restarts", "%d lately; %s in a row", s.Restarts, counted(s.Failures, "failure"))
	for _, w := range m.last.status.Workers {
		if w.Name == s.Name && w.Kind == "server" {
			if w.Host == "" {
				p.add("Process", "%d, under worker %d, %s", w.ChildPID, w.PID, w.State)
			}
			for _, line := range glance.Elsewhere([]control.Worker{w}) {
				p.add("Process", "%s", line)
			}
		}
	}
	p.add("Commands", "holdline servers tools|logs|restart|stop %s", s.Name)
	return p
}

// agentPage returns the details of an agent.
func (m *model) agentPage(a *agent) *page {
	p := &page{title: "AGENT " + harmless(a.name())}
	p.add("Client", "%s", strings.Join(a.Clients(), ", "))
	p.add("Directory", "%s", short(a.Sessions[0].Cwd, m.home))
	p.add("Process", "%d", a.PID)
	p.add("Calls", "%s, %d in flight", count(a.Calls), a.InFlight)
	for _, s := range a.Sessions {
		p.add("Session", "%s: %s, %s, %d in flight, %s, since %s, proxy %d (%s)", s.Uses("all servers"),
			s.Identity, counted(int(s.Calls), "call"), s.InFlight, s.State, age(s.SinceMS), s.PID, s.Proxy)
	}
	return p
}

// keysPage returns what each key does.
func keysPage() *page {
	p := &page{title: "KEYS"}
	for _, k := range []key{
		{"arrows, tab", "move; between the tables"},
		{"g, G, space", "to the begin, to the end, a page down"},
		{"enter", "details"},
		{"l", "what a server writes to its log; what a consult does, live"},
		{"r, s", "restart, stop a server; s cancels a consult. They ask first"},
		{"/", "show only rows with these words; esc shows all"},
		{"m, c, e, n", "sort servers by memory, calls, errors, name"},
		{"esc", "back to the tables"},
		{"q", "quit"},
	} {
		p.add(k.name, "%s", k.does)
	}
	return p
}

// eventPage returns the details of an event.
func (m *model) eventPage(e *eventMsg) *page {
	p := &page{title: "EVENT " + string(e.Kind), server: m.serverOf(e)}
	p.add("When", "%s", time.UnixMilli(e.AtMS).In(m.now().Location()).Format(time.DateTime))
	p.add("About", "%s", cmp.Or(e.Subject, "holdline itself"))
	p.add("What", "%s", e.Text)
	return p
}

// consultPage returns the details of a consult, without its answer.
func (m *model) consultPage(c *control.Consult) *page {
	p := &page{title: "CONSULT " + c.ID, state: c.State}
	p.add("Question", "%s", c.Question)
	p.add("State", "%s %s", c.State, strings.ReplaceAll(c.Code, "_", " "))
	p.add("Doing", "%s", c.Note)
	p.add("Asked by", "%s, in %s", c.Identity, short(c.Cwd, m.home))
	p.add("Engine", "%s %s", c.Engine, c.Model)
	p.add("May", "%s, held to that by %s", cmp.Or(c.Level, "read"), cmp.Or(c.EnforcedBy, "its program"))
	p.add("Time", "%s, asked at %s", age(c.TookMS),
		time.UnixMilli(c.CreatedMS).In(m.now().Location()).Format(time.TimeOnly))
	p.add("Cost", "%s", cost(c.CostUSD))
	return p
}

// showAnswer shows the answer of a consult, or what its program has said so far.
func (p *page) showAnswer(a *control.ConsultAnswer) {
	p.lines = nil
	if a.Fault != nil {
		p.addText("Fault", a.Fault.Fault.Detail, badText)
	}
	var v struct {
		Answer string `json:"answer"`
	}
	if a.Text == "" && json.Unmarshal(a.Value, &v) == nil {
		a.Text = v.Answer
	}
	if a.Text == "" {
		a.Text = "–"
	}
	p.addText("Answer", a.Text, plainText)
}

// stepsPage returns a page of what a consult does, which is empty at first.
func (m *model) stepsPage(id string) *page {
	return &page{title: "LIVE: CONSULT " + id, end: true, steps: steps.Follow(filepath.Join(m.consultDirs, id))}
}

// addStep adds a step of a consult, or the next part of what its model says.
func (p *page) addStep(s *steps.Step, at time.Time) {
	words := s.Words
	if s.Kind != engine.KindText {
		style := dimText
		switch s.Kind {
		case engine.KindNote, engine.KindLadder, engine.KindStderr, engine.KindCut:
			style = oddText
		case engine.KindTool, engine.KindEnd:
			style = liveText
		}
		p.unended = ""
		p.addText("", at.Format(time.TimeOnly)+"  "+strings.ReplaceAll(words, "\n", " "), style)
		return
	}
	if p.unended != "" && len(p.lines) > 0 {
		p.lines, words = p.lines[:len(p.lines)-1], p.unended+words
	}
	p.addText("", words, plainText)
	p.unended = words[strings.LastIndexByte(words, '\n')+1:]
}
