package top

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"holdline/cmd/holdline/console"
	"holdline/daemon/plural"
)

// Sizes at which the screen changes its layout, in columns and rows of the terminal.
const (
	leastWidth, leastHeight = 50, 12
	twoColumns              = 150
	roomyRows               = 7 // of each section, from which on there is a free line below it
)

// leastSaved is how much memory sharing must save to be worth a word, in bytes.
const leastSaved = 1_000_000

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.draw(), "\n"))
	v.AltScreen = true
	return v
}

// draw returns the lines of the screen: one of the height, each of the width.
func (m *model) draw() []string {
	if m.stale {
		m.reselect()
	}
	if m.width < leastWidth || m.height < leastHeight {
		return m.place([]string{
			"This window is too small.",
			fmt.Sprintf("holdline top needs %d columns and %d lines.", leastWidth, leastHeight),
		}, m.height)
	}
	lines := []string{m.header()}
	away := m.absent != nil && m.now().Sub(m.absentSince) >= absentTime
	if away && m.known {
		what, help := explain(m.absent, true)
		since := age(m.now().Sub(m.absentSince).Milliseconds())
		lines = append(lines, alarm.Render(fill(fmt.Sprintf(" %s (%s) %s", what, since, help), m.width)))
	}
	body := m.height - len(lines) - 1
	switch {
	case !m.known && m.absent != nil:
		what, help := explain(m.absent, false)
		lines = append(lines, m.place([]string{what, "", help}, body)...)
	case !m.known:
		lines = append(lines, m.place([]string{"Connecting to the daemon…"}, body)...)
	case m.page != nil:
		lines = append(lines, m.page.draw(m.width, body)...)
	default:
		lines = append(lines, m.tables(body)...)
	}
	if m.known && away { // what the tables say is over
		for i := 2; i < len(lines); i++ {
			lines[i] = dimText.Render(ansi.Strip(lines[i]))
		}
	}
	return append(lines, m.footer())
}

// fill returns text with exactly that many columns.
func fill(text string, columns int) string {
	return pad(console.Shorten(text, columns), columns, false)
}

// place returns lines in the middle of an area of the width of the screen.
func (m *model) place(lines []string, height int) []string {
	above := max(0, height-len(lines)) / 2
	area := make([]string, max(0, height))
	for i := range area {
		words := ""
		if n := i - above; n >= 0 && n < len(lines) {
			words = console.Shorten(lines[n], max(1, m.width))
		}
		area[i] = fill(strings.Repeat(" ", (m.width-console.Width(words))/2)+words, m.width)
	}
	return area
}

// header returns the first line: what there is at a glance, and how much is going on.
func (m *model) header() string {
	line := badge.Render(" HOLDLINE ")
	var right []piece
	if m.known {
		bars := min(max(5, (m.width-70)/2), 40)
		right = append(spark(m.total.rates).draw(bars), piece{" " + rate(m.total.now()) + " calls/s ", boldText})
	}
	width := 0
	for _, p := range right {
		width += console.Width(p.text)
	}
	free := m.width - lipgloss.Width(line) - width - 1
	var left strings.Builder
	for i, p := range m.summary() {
		between := "  "
		if i == 0 {
			between = " "
		}
		need := len(between) + console.Width(p.text)
		if need > free {
			break
		}
		left.WriteString(between + p.style.Render(p.text))
		free -= need
	}
	return line + left.String() + strings.Repeat(" ", max(0, free+1)) + render(right, false)
}

// summary returns the figures of the first line, the most important first.
func (m *model) summary() []piece {
	if !m.known {
		return nil
	}
	s := &m.last.status
	well, usable := 0, 0
	for i := range s.Servers {
		if one := &s.Servers[i]; one.State != "stopped" {
			usable++
			well += 1 - troubleRank(one)
		}
	}
	servers := piece{fmt.Sprintf("%d/%d servers ok", well, usable), goodText}
	switch {
	case usable == 0:
		servers = piece{"no server", dimText}
	case well < usable:
		servers.style = badText
	}
	live, spent := s.Consults.Running+s.Consults.Queued, 0.0
	for _, one := range s.Consults.Today {
		spent += one.CostUSD
	}
	pieces := []piece{{counted(len(agentsOf(s.Sessions)), "agent"), plainText}, servers}
	if live > 0 {
		pieces = append(pieces, piece{counted(live, "consult"), liveText})
	}
	if spent > 0 {
		pieces = append(pieces, piece{plural.Dollars(spent) + " today", plainText})
	}
	if m.saved >= leastSaved {
		pieces = append(pieces, piece{size(m.saved) + " saved", goodText})
	}
	if memory := m.allMemory(); memory > 0 {
		pieces = append(pieces, piece{size(memory) + " memory", plainText})
	}
	return append(pieces, piece{"up " + age(s.Daemon.UptimeMS), dimText}, piece{s.Daemon.Version, dimText})
}

// tables returns the sections, in one column or, on a wide screen, in two.
func (m *model) tables(height int) []string {
	all := m.all()
	if m.width < twoColumns {
		return m.stack(all, 0, m.width, height)
	}
	left := m.width / 2
	a := m.stack(all[:consults], 0, left, height)
	b := m.stack(all[consults:], consults, m.width-left-1, height)
	for i := range a {
		a[i] += " " + b[i]
	}
	return a
}

// stack returns sections below each other. first is the number of the first of them.
func (m *model) stack(all []section, first, width, height int) []string {
	space := 0
	if height >= roomyRows*len(all)-2 {
		space = 1
	}
	rows := share(all, height-len(all)-space*(len(all)-1))
	var lines []string
	for i := range all {
		if i > 0 && space > 0 {
			lines = append(lines, strings.Repeat(" ", width))
		}
		lines = append(lines, m.section(&all[i], first+i, width, rows[i])...)
	}
	for len(lines) < height {
		lines = append(lines, strings.Repeat(" ", width))
	}
	return lines[:height]
}

// share divides lines among sections: first what each needs on a small screen, then what it
// would like, and the rest to the last one.
func share(all []section, lines int) []int {
	given := make([]int, len(all))
	for _, want := range []func(s *section) int{
		func(*section) int { return 1 },
		func(s *section) int { return min(s.least, max(1, len(s.rows))) },
		func(s *section) int { return max(1, len(s.rows)) },
	} {
		for more := true; more && lines > 0; {
			more = false
			for i := range all {
				if given[i] < want(&all[i]) && lines > 0 {
					given[i]++
					lines--
					more = true
				}
			}
		}
	}
	given[len(given)-1] += max(0, lines)
	return given
}

// section returns the heading of a section, and that many lines with its rows. If there are
// more rows, those around the selected one are shown, and the heading says how many.
func (m *model) section(s *section, n, width, lines int) []string {
	selected := m.selected[n].index
	from := 0
	if len(s.rows) > lines {
		from = min(max(0, selected-lines/2), len(s.rows)-lines)
	}
	shown := s.rows[from:min(from+lines, len(s.rows))]
	title := s.title
	switch {
	case len(shown) < len(s.rows):
		title += fmt.Sprintf(" %d/%d", len(shown), len(s.rows))
	case len(s.rows) > 0:
		title += fmt.Sprintf(" %d", len(s.rows))
	}
	style, mark := heading, " "
	if n == m.focus {
		style, mark = atHeading, "▸"
	}
	columns := append([]column(nil), s.columns...)
	columns[0].title = title
	widths := fit(columns, s.rows, width-2)
	out := []string{style.Render(fill(mark+headline(columns, widths, title), width))}
	if len(s.rows) == 0 {
		words := s.empty
		if m.filter != "" {
			words = "Nothing here has “" + m.filter + "” in it."
		}
		out = append(out, dimText.Render(fill(" "+words, width)))
	}
	for i := range shown {
		at := n == m.focus && from+i == selected
		edge := " "
		if at {
			edge = keyText.Background(selection).Render("▸")
		}
		line := edge + drawRow(columns, widths, &shown[i], at)
		free := max(0, width-lipgloss.Width(line))
		out = append(out, line+render([]piece{{strings.Repeat(" ", free), plainText}}, at))
	}
	for len(out) < lines+1 {
		out = append(out, strings.Repeat(" ", width))
	}
	return out
}

// key is a key and what it does, as the last line shows it.
type key struct{ name, does string }

// footer returns the last line: a question, what has just happened, or the keys.
func (m *model) footer() string {
	switch {
	case m.confirm != nil:
		return question.Render(fill(" "+m.confirm.question+"   y yes   n no", m.width))
	case m.filtering:
		typed := m.filter
		for console.Width(typed) > m.width-console.Width(" /█") { // its end is what the user types
			_, size := utf8.DecodeRuneInString(typed)
			typed = typed[size:]
		}
		keys, help := keyText.Render(" /")+typed+"█", dimText.Render("  enter keep  esc show all ")
		if lipgloss.Width(keys)+lipgloss.Width(help) > m.width {
			help = ""
		}
		return keys + strings.Repeat(" ", max(0, m.width-lipgloss.Width(keys)-lipgloss.Width(help))) + help
	case m.notice != "" && m.noticeBad:
		return badText.Bold(true).Render(fill(" "+m.notice, m.width))
	case m.notice != "":
		return liveText.Render(fill(" "+m.notice, m.width))
	}
	keys := []key{
		{"↑↓", "move"},
		{"tab", "next"},
		{"enter", "details"},
		{"l", "logs"},
		{"r", "restart"},
		{"s", "stop"},
		{"/", "filter"},
		{"q", "quit"},
	}
	if m.page != nil {
		keys = []key{
			{"↑↓", "scroll"}, {"space", "page down"}, {"g G", "begin, end"}, {"esc", "back"}, {"q", "quit"},
		}
		if m.page.server != "" && !m.page.logs {
			keys = slices.Insert(keys, 3, key{"l", "logs"}, key{"r", "restart"}, key{"s", "stop"})
		} else if m.page.section == consults && m.page.key != "" {
			keys = slices.Insert(keys, 3, key{"l", "live"})
		}
	}
	words := ""
	if m.filter != "" {
		words = console.Shorten("filter: "+m.filter+" ", m.width)
	}
	for len(keys) > 0 && widthOf(keys)+console.Width(words) > m.width { // the first are the best known
		keys = keys[1:]
	}
	var line strings.Builder
	for _, k := range keys {
		line.WriteString(" " + keyText.Render(k.name) + " " + dimText.Render(k.does) + " ")
	}
	free := m.width - widthOf(keys) - console.Width(words)
	return line.String() + strings.Repeat(" ", max(0, free)) + oddText.Render(words)
}

// widthOf returns how many columns of the terminal the keys take.
func widthOf(keys []key) int {
	sum := 0
	for _, k := range keys {
		sum += console.Width(k.name) + console.Width(k.does) + 3
	}
	return sum
}
