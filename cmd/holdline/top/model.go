package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/glance"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/steps"
	"holdline/protocol/control"
)

// Bounds and times of the screen.
const (
	maxEvents   = 500
	noticeTime  = 6 * time.Second
	logsEvery   = time.Second
	absentTime  = 300 * time.Millisecond // an upgrade takes less, and is no reason for alarm
	pageLines   = 10                     // that a key for a page moves
	maxFilter   = 40                     // characters
	maxConsults = 100
)

// doer does what the user wants. A [feed] is one.
type doer interface {
	server(method, name string) (processes int, err error)
	logs(name string, after map[string]int64) (control.ServerLogsAnswer, error)
	consult(method, id string) (control.ConsultAnswer, error)
}

// Messages with what came of a command.
type (
	// doneMsg says how something went that the user has wanted.
	doneMsg struct {
		text string
		err  error
	}
	// logsMsg has what a server has written, for the page that asked.
	logsMsg struct {
		page *page
		logs control.ServerLogsAnswer
		err  error
	}
	// answerMsg has the answer of a consult, for the page that asked.
	answerMsg struct {
		page   *page
		answer control.ConsultAnswer
		err    error
	}
	// stepsMsg has what a consult has done since the last one, for the page that asked.
	stepsMsg struct {
		page  *page
		steps []steps.Step
		err   error
	}
)

// selected is the row of a section that the user points at.
type selected struct {
	key   string
	index int // where it is, or was when it went
}

// confirm is a question whose answer y does something.
type confirm struct {
	question, doing string
	do              tea.Cmd
}

// model is the state of the screen. Only the goroutine of bubbletea uses it.
type model struct {
	do            doer
	now           func() time.Time
	home          string
	consultDirs   string // directory of the directories of consults
	width, height int

	known       bool // a status has come
	last        statusMsg
	memory      map[string]int64 // bytes, by server
	ownMemory   int64            // of the daemon, workers and proxies
	saved       int64            // bytes, since agents share servers
	absent      error            // why there is no daemon; nil if there is one
	absentSince time.Time
	events      []eventMsg // the latest last
	servers     allSeries  // calls, by server
	agents      allSeries  // calls, by agent
	total       series     // calls of all servers

	focus     int // section that the keys are for
	selected  [sections]selected
	stale     bool // rows have changed since they were selected
	filter    string
	filtering bool // the user types the filter
	page      *page
	sortBy    string // title of the column by which servers are sorted; "" for their names
	confirm   *confirm
	notice    string
	noticeBad bool
	noticeAt  time.Time
}

// newModel returns the state before anything is known.
func newModel(do doer, now func() time.Time) *model {
	return &model{
		do: do, now: now, width: 80, height: 24, focus: servers, memory: map[string]int64{}, servers: allSeries{},
		agents: allSeries{},
	}
}

// Init does nothing: the feeds begin by themselves.
func (m *model) Init() tea.Cmd { return nil }

// Update changes the state by a message, and returns what is to be done.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if m.notice != "" && m.now().Sub(m.noticeAt) > noticeTime {
		m.notice = ""
	}
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.press(msg)
	case tea.PasteMsg:
		if m.filtering {
			m.typed(msg.Content)
		}
	case statusMsg:
		m.learn(msg)
		return m, m.renew()
	case absentMsg:
		if m.absent == nil {
			m.absentSince = m.now()
		}
		m.absent = msg.err
	case eventMsg:
		if len(m.events) == maxEvents {
			m.events = append(m.events[:0], m.events[1:]...)
		}
		m.events, m.stale = append(m.events, msg), true
	case doneMsg:
		m.say(msg.text, msg.err)
	case logsMsg:
		return m, m.showLogs(msg)
	case stepsMsg:
		return m, m.showSteps(msg)
	case answerMsg:
		if msg.err == nil {
			msg.page.showAnswer(&msg.answer)
		} else {
			m.say("", msg.err)
		}
	}
	return m, nil
}

// learn takes over what the daemon has said.
func (m *model) learn(msg statusMsg) {
	at := m.now()
	if len(msg.consults) > maxConsults {
		msg.consults = msg.consults[:maxConsults]
	}
	m.known, m.absent, m.last = true, nil, msg
	s := &msg.status
	sum := 0.0
	for i := range s.Servers {
		one := &s.Servers[i]
		m.servers.add(one.Name, one.Load.Calls, at)
		if rates := m.servers[one.Name].rates; len(rates) > 0 {
			sum += rates[len(rates)-1]
		}
	}
	m.servers.forget(at)
	m.total.push(sum)
	for _, a := range agentsOf(s.Sessions) {
		m.agents.add(a.key, a.Calls, at)
	}
	m.agents.forget(at)
	if msg.memory {
		m.learnMemory(s)
	}
	m.stale = true
}

// learnMemory takes over how much memory processes take.
func (m *model) learnMemory(s *control.StatusAnswer) {
	before := m.memory
	m.memory = map[string]int64{}
	m.ownMemory, m.saved = s.Daemon.MemoryBytes, 0
	if v, measured := glance.Estimate(s); measured {
		m.saved = v.Bytes
	}
	for i := range s.Servers {
		one := &s.Servers[i]
		m.memory[one.Name] = one.MemoryBytes
		if one.MemoryBytes == 0 && one.Processes > 0 { // it could not be measured in time
			m.memory[one.Name] = before[one.Name]
		}
	}
	for _, w := range s.Workers {
		m.ownMemory += w.WorkerBytes
	}
	for _, one := range s.Sessions {
		m.ownMemory += one.MemoryBytes
	}
}

// allMemory returns how much memory Holdline and the servers take.
func (m *model) allMemory() int64 {
	sum := m.ownMemory
	for _, bytes := range m.memory {
		sum += bytes
	}
	return sum
}

// say shows in the last line what has happened, or why it has not.
func (m *model) say(text string, err error) {
	m.notice, m.noticeBad, m.noticeAt = harmless(text), false, m.now()
	if err != nil {
		m.notice, m.noticeBad = harmless("That did not work: "+plain(err)), true
	}
}

// everything returns the sections with all rows.
func (m *model) everything() []section {
	return []section{m.agentRows(), m.serverRows(), m.consultRows(), m.eventRows()}
}

// all returns the sections, with the rows that the filter lets through.
func (m *model) all() []section {
	all := m.everything()
	if m.filter == "" {
		return all
	}
	filter := strings.ToLower(m.filter)
	for i := range all {
		all[i].rows = slices.DeleteFunc(all[i].rows, func(r row) bool { return !r.matches(filter) })
	}
	return all
}

// reselect finds the selected rows again after the rows have changed. A row that is gone
// leaves the selection where it was. The first event stays selected when newer ones come.
func (m *model) reselect() {
	m.stale = false
	for n, s := range m.all() {
		at := &m.selected[n]
		i := slices.IndexFunc(s.rows, func(r row) bool { return r.key == at.key })
		if i < 0 || n == events && at.index == 0 {
			i = min(at.index, len(s.rows)-1)
		}
		m.selectRow(n, s.rows, i)
	}
}

// selectRow selects the row with that index in section n.
func (m *model) selectRow(n int, rows []row, i int) {
	i = min(max(0, i), max(0, len(rows)-1))
	m.selected[n] = selected{index: i}
	if len(rows) > 0 {
		m.selected[n].key = rows[i].key
	}
}

// pointed returns the row that the user points at, or nil.
func (m *model) pointed() *row {
	if m.stale {
		m.reselect()
	}
	rows := m.all()[m.focus].rows
	if i := m.selected[m.focus].index; i < len(rows) {
		return &rows[i]
	}
	return nil
}

// move moves the selection by that many rows, over the ends of a section into the next one.
func (m *model) move(by int) {
	all := m.all()
	to := m.selected[m.focus].index + by
	switch {
	case to < 0 && by == -1 && m.focus > 0:
		m.focus--
		to = len(all[m.focus].rows) - 1
	case to >= len(all[m.focus].rows) && by == 1 && m.focus < sections-1:
		m.focus++
		to = 0
	}
	m.selectRow(m.focus, all[m.focus].rows, to)
}

// typed adds characters to the filter.
func (m *model) typed(text string) {
	text = strings.Map(console.Printable, text)
	if utf8.RuneCountInString(m.filter+text) <= maxFilter {
		m.filter += text
	}
	m.reselect()
}

// serverOf returns the server that an event is about, or "".
func (m *model) serverOf(e *eventMsg) string {
	if slices.ContainsFunc(m.last.status.Servers, func(s control.Server) bool { return s.Name == e.Subject }) {
		return e.Subject
	}
	return ""
}

// showLogs shows what a server has written, and asks again after a while if the page is still
// shown.
func (m *model) showLogs(msg logsMsg) tea.Cmd {
	if msg.page != m.page {
		return nil
	}
	if msg.err != nil {
		if len(msg.page.lines) == 0 {
			m.page = nil
		}
		m.say("", msg.err)
	} else {
		msg.page.addLog(&msg.logs)
	}
	if m.page == nil {
		return nil
	}
	again := m.askLogs(msg.page)
	return tea.Tick(logsEvery, func(time.Time) tea.Msg { return again() })
}

// askLogs returns a command that asks for the log of a page.
func (m *model) askLogs(p *page) tea.Cmd {
	name, after, do := p.server, maps.Clone(p.after), m.do
	return func() tea.Msg {
		logs, err := do.logs(name, after)
		return logsMsg{p, logs, err}
	}
}

// askAnswer returns a command that asks for the answer of a consult.
func (m *model) askAnswer(p *page, id string) tea.Cmd {
	do := m.do
	return func() tea.Msg {
		a, err := do.consult(control.ConsultShow, id)
		return answerMsg{p, a, err}
	}
}

// askSteps returns a command that reads what a consult has done since the last one.
func askSteps(p *page) tea.Cmd {
	return func() tea.Msg {
		msg := stepsMsg{page: p}
		for {
			lines, err := p.steps.Next()
			if err != nil || len(lines) == 0 {
				msg.err = err
				return msg
			}
			for _, line := range lines {
				if s, shown := p.steps.Parse(line); shown {
					msg.steps = append(msg.steps, s)
				}
			}
			msg.steps = msg.steps[max(0, len(msg.steps)-maxPageLines):] // a page has no more
		}
	}
}

// showSteps shows what a consult has done, and looks again after a while if the page is still
// shown and the consult goes on. The files say that, so no daemon is needed.
func (m *model) showSteps(msg stepsMsg) tea.Cmd {
	if msg.page != m.page {
		return nil
	}
	if msg.err != nil {
		msg.page.addText("", msg.err.Error(), badText)
		return nil
	}
	for i := range msg.steps {
		s := &msg.steps[i]
		msg.page.addStep(s, s.At.In(m.now().Location()))
		if s.Kind == engine.KindEnd {
			return nil
		}
	}
	again := askSteps(msg.page)
	return tea.Tick(steps.Poll, func(time.Time) tea.Msg { return again() })
}

// doServer returns a question whose answer y makes a request about a server.
func (m *model) doServer(method, name, question, doing, done string) *confirm {
	do := m.do
	return &confirm{question, doing, func() tea.Msg {
		n, err := do.server(method, name)
		return doneMsg{fmt.Sprintf("%s %s (%s).", name, done, counted(n, "process")), err}
	}}
}
