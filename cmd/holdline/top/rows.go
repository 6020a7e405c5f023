package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"holdline/cmd/holdline/glance"
	"holdline/daemon/telling"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
)

// The sections of the screen, in their order.
const (
	agents = iota
	servers
	consults
	events
	sections
)

// section is a table with what top shows of one kind.
type section struct {
	title   string
	columns []column
	rows    []row
	least   int    // rows that it has on a small screen, if it needs them
	empty   string // shown in place of rows
}

// row is a row of a section. What it is about is in one of the last fields.
type row struct {
	key   string // stays the same while the thing lives
	cells []cell

	agent   *agent
	server  *control.Server
	consult *control.Consult
	event   *eventMsg
}

// matches reports whether a cell of the row has the filter in it, which is in lower case.
func (r *row) matches(filter string) bool {
	return slices.ContainsFunc(r.cells, func(c cell) bool { return strings.Contains(strings.ToLower(c.text), filter) })
}

// agent is a client program: most have a session for each server that they use.
type agent struct {
	glance.Agent

	key string
}

// agentsOf groups sessions by the process of their client, the oldest first.
func agentsOf(all []control.Session) []agent {
	var list []agent
	for _, one := range glance.Agents(all) {
		key := one.Sessions[0].ID // it is not known which sessions belong together
		if pid := one.Sessions[0].ClientPID; pid != 0 {
			key = fmt.Sprint(pid)
		}
		list = append(list, agent{one, key})
	}
	slices.SortFunc(list, func(a, b agent) int {
		return cmp.Or(cmp.Compare(b.SinceMS, a.SinceMS), cmp.Compare(a.key, b.key))
	})
	return list
}

// name returns the identities of an agent, which its user knows; what its client calls itself is among the details.
func (a *agent) name() string { return strings.Join(a.Identities(), ", ") }

// entries returns through which entries of its configuration an agent is connected.
func (a *agent) entries() string {
	names := a.Servers()
	switch {
	case len(names) > 3:
		return counted(len(names), "entry")
	case len(names) == 1 && names[0] == "all":
		return "all servers"
	}
	return strings.Join(names, ", ")
}

// dot returns the mark of a state and its style.
func dot(state string) (string, lipgloss.Style) {
	switch state {
	case "ready", "done":
		return "●", goodText
	case "running":
		return "●", liveText
	case "starting", "recovering", "not answering":
		return "◌", oddText
	case "failed", "ejected", "unreachable", control.NeedsLogin:
		return "✗", badText
	case "stopped", "cancelled":
		return "■", dimText
	}
	return "○", dimText // idle, queued
}

// agentRows returns the section of agents.
func (m *model) agentRows() section {
	s := section{
		title: "AGENTS", least: 2, empty: "No agent is connected. Connect those of this machine: holdline setup",
		columns: []column{
			{least: 12},
			{title: "USES", least: 11, drop: 3},
			{title: "BUSY", right: true},
			{title: "CALLS", right: true},
			{title: "CALLS/S", right: true},
			{title: "SINCE", right: true, drop: 2},
			{title: "DIRECTORY", least: 12, grow: true, drop: 4},
			{title: "TREND", least: 10, grow: true, drop: 5},
		},
	}
	list := agentsOf(m.last.status.Sessions)
	for i := range list {
		a := &list[i]
		mark, style := dot("ready")
		if a.Lost == len(a.Sessions) {
			mark, style = dot("recovering")
		}
		rates := m.agents.of(a.key)
		s.rows = append(s.rows, row{key: a.key, agent: a, cells: []cell{
			text(mark+" "+a.name(), style), text(a.entries(), plainText),
			number(count(int64(a.InFlight)), a.InFlight > 0), number(count(a.Calls), a.Calls > 0),
			number(rate(rates.now()), rates.now() > 0), number(age(a.SinceMS), true),
			text(short(a.Sessions[0].Cwd, m.home), dimText), spark(rates.rates),
		}})
	}
	return s
}

// number returns a cell with a number, which is dim if it says nothing.
func number(words string, matters bool) cell {
	if matters {
		return text(words, plainText)
	}
	return text(words, dimText)
}

// serverRows returns the section of servers: first those that do not work.
func (m *model) serverRows() section {
	s := section{
		title: "SERVERS", least: 5, empty: "No server is configured. Add one: holdline servers add",
		columns: []column{
			{least: 12},
			{title: "STATE"},
			{title: "AGENTS", right: true, drop: 4},
			{title: titleMemory, right: true}, // where blame begins
			{title: titleCalls, right: true, drop: 5},
			{title: "CALLS/S", right: true, drop: 1},
			{title: "P50", right: true, drop: 2},
			{title: titleErrors, right: true},
			{title: "RESTARTS", right: true, drop: 6},
			{title: "TREND", least: 12, grow: true, drop: 3},
		},
	}
	list := slices.Clone(m.last.status.Servers)
	slices.SortStableFunc(list, func(a, b control.Server) int {
		return cmp.Or(cmp.Compare(troubleRank(&b), troubleRank(&a)), cmp.Compare(m.sortValue(&b), m.sortValue(&a)))
	})
	for i := range s.columns {
		if c := &s.columns[i]; c.title != "" && c.title == m.sortBy {
			c.title += "▾"
		}
	}
	for i := range list {
		one := &list[i]
		mark, style := dot(one.State)
		rates := m.servers.of(one.Name)
		why := text(blame(one), badText)
		why.span = why.text != ""
		s.rows = append(s.rows, row{key: one.Name, server: one, cells: []cell{
			text(mark+" "+one.Name, style), text(one.State, style), number(fmt.Sprint(one.RefCount), one.RefCount > 0),
			orElse(why, number(size(m.memory[one.Name]), m.memory[one.Name] > 0)),
			number(count(one.Load.Calls), one.Load.Calls > 0),
			number(rate(rates.now()), rates.now() > 0), number(latency(one.Load.P50MS), one.Load.Calls > 0),
			failures(one.Load.Errors), failures(int64(one.Restarts)), spark(rates.rates),
		}})
	}
	return s
}

// Titles of the columns by which servers can be sorted, the highest first. Without one they are sorted by name.
const (
	titleMemory = "MEMORY"
	titleCalls  = "CALLS"
	titleErrors = "ERRORS"
)

// sortValue returns the number by which a server is sorted.
func (m *model) sortValue(s *control.Server) int64 {
	switch m.sortBy {
	case titleMemory:
		return m.memory[s.Name]
	case titleCalls:
		return s.Load.Calls
	case titleErrors:
		return s.Load.Errors
	}
	return 0
}

// orElse returns a cell that spans the rest of the line if it has words, or else the other one.
func orElse(why, other cell) cell {
	if why.span {
		return why
	}
	return other
}

// troubleRank returns 1 for a server that does not work, and 0 for others.
func troubleRank(s *control.Server) int {
	if trouble.In(s) {
		return 1
	}
	return 0
}

// blame returns why a server does not work now, or "".
func blame(s *control.Server) string {
	switch {
	case s.Blocked:
		return "changed tools: holdline servers tools " + s.Name + " --changes"
	case s.State == "unreachable":
		return strings.TrimPrefix(s.Unreachable, s.Name+" ")
	case s.Suspect:
		return "left a call without an answer"
	case trouble.In(s) && s.LastFault != nil:
		if why := telling.Line(s.LastFault.LastWords()); why != "" {
			return "“" + why + "”"
		}
		return strings.TrimPrefix(s.LastFault.Fault.Detail, "server "+s.Name+" ") // which is in the row
	}
	return ""
}

// failures returns a cell with a number that should be 0.
func failures(n int64) cell {
	if n > 0 {
		return text(count(n), oddText)
	}
	return text("0", dimText)
}

// consultRows returns the section of consults: first those that run and wait, then the latest.
func (m *model) consultRows() section {
	s := section{
		title: "CONSULTS", least: 2,
		empty: `None yet. A second opinion: holdline consult "…"; your agents can ask, too`,
		columns: []column{
			{least: 30},
			{title: "WHO", least: 11, drop: 3},
			{title: "ENGINE", drop: 4},
			{title: "TIME", right: true},
			{title: "COST", right: true},
			{title: "DOING", least: 16, grow: true, drop: 1},
		},
	}
	list := slices.Clone(m.last.consults)
	slices.SortStableFunc(list, func(a, b control.Consult) int { return cmp.Compare(isLive(&b), isLive(&a)) })
	for i := range list {
		c := &list[i]
		mark, style := dot(c.State)
		words, doing := plainText, text(c.State, dimText)
		switch {
		case isLive(c) > 0:
			doing = text(cmp.Or(c.Note, c.State), liveText)
		case c.State == "failed":
			doing = text("failed: "+strings.ReplaceAll(c.Code, "_", " "), badText)
		default:
			words = dimText
		}
		asked := text(cmp.Or(c.Question, "consult "+c.ID), words)
		draw := func(columns int) []piece {
			return []piece{{mark + " ", style}, {fill(asked.text, columns-2), words}}
		}
		s.rows = append(s.rows, row{key: c.ID, consult: c, cells: []cell{
			{text: mark + " " + asked.text, draw: draw},
			text(c.Identity, words), text(c.Engine, words),
			number(age(c.TookMS), isLive(c) > 0), number(cost(c.CostUSD), c.CostUSD != nil), doing,
		}})
	}
	return s
}

// isLive returns 1 for a consult that runs or waits, and 0 for others.
func isLive(c *control.Consult) int {
	if c.State == "running" || c.State == "queued" {
		return 1
	}
	return 0
}

// kindStyles are the styles of kinds of events.
var kindStyles = map[control.EventKind]lipgloss.Style{
	control.Served: goodText, control.Upgraded: liveText, control.Started: goodText, control.Asked: liveText,
	control.Answered: goodText,
}

// eventRows returns the section of events, the latest first.
func (m *model) eventRows() section {
	s := section{
		title: "EVENTS", least: 3, empty: "Nothing has happened yet.",
		columns: []column{{}, {title: "KIND"}, {title: "ABOUT", least: 8}, {title: "WHAT", least: 20, grow: true}},
	}
	for i := len(m.events) - 1; i >= 0; i-- {
		e := &m.events[i]
		style, known := kindStyles[e.Kind]
		if !known {
			style = plainText
		}
		words := plainText
		if e.Bad {
			style, words = badText, badText
		}
		at := time.UnixMilli(e.AtMS).In(m.now().Location())
		s.rows = append(s.rows, row{key: fmt.Sprint(e.generation, " ", e.N), event: e, cells: []cell{
			text(at.Format(time.TimeOnly), dimText), text(string(e.Kind), style),
			text(cmp.Or(e.Subject, "holdline"), plainText),
			text(strings.TrimPrefix(e.Text, "server "+e.Subject+" "), words),
		}})
	}
	return s
}
