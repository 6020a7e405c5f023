package top

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"holdline/protocol/control"
)

// press does what a key is for, and returns what is to be done by others.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	m.notice = ""
	if m.stale {
		m.reselect()
	}
	switch {
	case m.confirm != nil:
		asked := m.confirm
		m.confirm = nil
		if name != "y" && name != "Y" {
			return nil
		}
		m.say(asked.doing, nil)
		return asked.do
	case m.filtering:
		m.pressFiltering(name, msg.Text)
		return nil
	case name == "q":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Suspend
	case name == "?":
		m.page = keysPage()
		return nil
	case m.page != nil:
		return m.pressPage(name)
	}
	return m.pressTables(name)
}

// pressFiltering edits the filter.
func (m *model) pressFiltering(name, text string) {
	switch name {
	case "enter", "down", "up", "tab":
		m.filtering = false
	case "esc":
		m.filtering, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.filter = ""
	default:
		m.typed(text)
		return
	}
	m.reselect()
}

// pressPage scrolls a page, or leaves it.
func (m *model) pressPage(name string) tea.Cmd {
	p := m.page
	switch name {
	case "esc", "left", "backspace":
		m.page = nil
	case "up", "k":
		p.scroll(-1)
	case "down", "j":
		p.scroll(1)
	case "pgup", "b":
		p.scroll(-pageLines)
	case "pgdown", "space", "f":
		p.scroll(pageLines)
	case "home", "g":
		p.scroll(-maxPageLines * maxPageLines)
	case "end", "G":
		p.end = true
	case "l", "r", "s":
		if p.server != "" && (name != "l" || !p.logs) {
			return m.pressServer(name, p.server)
		}
		if p.section == consults && p.key != "" && name == "l" {
			return m.showLive(p.key)
		}
	}
	return nil
}

// showLive shows what a consult has done and does. A panel does nothing itself.
func (m *model) showLive(id string) tea.Cmd {
	if slices.ContainsFunc(m.last.consults, func(c control.Consult) bool { return c.Panel == id }) {
		m.say("This is a panel. Press l on one of its members, or: holdline consult show -f "+id, nil)
		return nil
	}
	m.page = m.stepsPage(id)
	return askSteps(m.page)
}

// pressTables moves in the tables, or does something with the row that the user points at.
func (m *model) pressTables(name string) tea.Cmd {
	switch name {
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-pageLines)
	case "pgdown", "space":
		m.move(pageLines)
	case "home", "g":
		m.move(-maxEvents - 1)
	case "end", "G":
		m.move(maxEvents + 1)
	case "tab", "right":
		m.focus = (m.focus + 1) % sections
	case "shift+tab", "left":
		m.focus = (m.focus + sections - 1) % sections
	case "/":
		m.filtering = true
	case "n", "m", "c", "e":
		m.sortBy = map[string]string{"m": titleMemory, "c": titleCalls, "e": titleErrors}[name]
		m.reselect()
	case "esc":
		m.filter = ""
		m.reselect()
	case "enter", "l", "r", "s":
		return m.pressRow(name)
	}
	return nil
}

// pressRow does something with the row that the user points at.
func (m *model) pressRow(name string) tea.Cmd {
	r := m.pointed()
	switch {
	case r == nil:
		m.say("There is nothing here yet. Move with tab and the arrow keys.", nil)
	case r.server != nil && name != "enter":
		return m.pressServer(name, r.server.Name)
	case r.consult != nil && name == "s":
		m.cancel(r.consult)
	case r.consult != nil && name == "l":
		return m.showLive(r.consult.ID)
	case r.consult != nil && name != "r":
		m.page = m.pageOf(m.focus, r)
		return m.askAnswer(m.page, r.consult.ID)
	case name == "enter":
		m.page = m.pageOf(m.focus, r)
	case r.event != nil && m.serverOf(r.event) != "":
		return m.pressServer(name, r.event.Subject)
	default:
		m.say(fmt.Sprintf("%s is for servers. Move there with tab.", name), nil)
	}
	return nil
}

// pressServer shows the log of a server, or asks whether to restart or to stop it.
func (m *model) pressServer(key, name string) tea.Cmd {
	var s control.Server
	for i := range m.last.status.Servers {
		if m.last.status.Servers[i].Name == name {
			s = m.last.status.Servers[i]
		}
	}
	also := ""
	if s.InFlight > 0 {
		also = fmt.Sprintf(" %s in flight end with it.", counted(s.InFlight, "call"))
	}
	switch {
	case key == "l":
		m.page = &page{title: "LOG OF " + harmless(name), server: name, end: true, logs: true}
		return m.askLogs(m.page)
	case key == "r":
		m.confirm = m.doServer(control.ServerRestart, name, "Restart "+harmless(name)+"?"+also,
			"Restarting "+name+"…", "is up again")
	case s.State == "stopped":
		m.say(name+" is stopped already. To start it again press r.", nil)
	default:
		m.confirm = m.doServer(control.ServerStop, name, "Stop "+harmless(name)+" until you start it again?"+also,
			"Stopping "+name+"…", "is stopped")
	}
	return nil
}

// cancel asks whether to cancel a consult.
func (m *model) cancel(c *control.Consult) {
	if isLive(c) == 0 {
		m.say("This consult has ended already.", nil)
		return
	}
	do, id := m.do, c.ID
	m.confirm = &confirm{
		"Cancel this consult? What it has said so far is kept.", "Cancelling…", func() tea.Msg {
			_, err := do.consult(control.ConsultCancel, id)
			return doneMsg{"Consult " + id + " is cancelled.", err}
		},
	}
}
