package top

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"holdline/daemon/adapter/engine"
	"holdline/protocol"
	"holdline/protocol/control"
)

// last returns the last line of the screen.
func (s *screen) lastLine() string {
	s.t.Helper()
	lines := strings.Split(strings.TrimSuffix(s.frame(), "\n"), "\n")
	return lines[len(lines)-1]
}

// TestActionsAskFirst checks that a restart, a stop and a cancellation happen after y and after
// no other key, and that the last line says what came of them.
func TestActionsAskFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		keys     []string
		question string
		asked    string // of the daemon, after y
		done     string
	}{
		"restart": {
			[]string{"down", "r"}, "Restart context7?", "server/restart context7", "context7 is up again (1 process).",
		},
		"stop": {
			[]string{"down", "s"}, "Stop context7 until you start it again?", "server/stop context7", "is stopped",
		},
		"restart from its details": {
			[]string{"down", "enter", "r"}, "Restart context7?", "server/restart context7", "is up again",
		},
		"restart from an event": {
			[]string{"tab", "tab", "r"}, "Restart sentry?", "server/restart sentry", "sentry is up again",
		},
		"cancel": {[]string{"tab", "s"}, "Cancel this consult?", "consult/cancel c3c3c3c3c3c3", "is cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, other := range []string{"n", "esc", "enter", "q"} {
				s := newScreen(t, 80, 24).busy().press(tt.keys...).press(other)
				if len(s.do.asked) > 0 || s.confirm != nil {
					t.Errorf("%s does %q", other, s.do.asked)
				}
			}
			s := newScreen(t, 80, 24).busy().press(tt.keys...)
			if got := s.lastLine(); !strings.Contains(got, tt.question) || !strings.Contains(got, "y yes") {
				t.Errorf("the last line is %q, want %q", got, tt.question)
			}
			s.press("y")
			if !slices.Equal(s.do.asked, []string{tt.asked}) || !strings.Contains(s.lastLine(), tt.done) {
				t.Errorf("y does %q, and the last line is %q, want %q", s.do.asked, s.lastLine(), tt.done)
			}
			s.clock = s.clock.Add(noticeTime + time.Second)
			s.send(statusMsg{status: s.status(99)})
			if got := s.lastLine(); !strings.Contains(got, "quit") {
				t.Errorf("after a while the last line is %q, want the keys", got)
			}
		})
	}
}

// TestErrorsAreWords checks that a request that fails is explained in the last line.
func TestErrorsAreWords(t *testing.T) {
	s := newScreen(t, 120, 24).busy()
	s.do.err = &control.RemoteError{Message: "server github did not start: exit code 1"}
	s.press("down", "r", "y")
	if got := s.lastLine(); got != " That did not work: server github did not start: exit code 1" {
		t.Errorf("the last line is %q", got)
	}
	s.do.err = errors.New("read unix @->/run/x: connection reset by peer")
	s.press("l")
	if got := s.lastLine(); !strings.HasPrefix(got, " That did not work: The daemon is away.") || s.page != nil {
		t.Errorf("the last line is %q", got)
	}
}

// TestRefusalsAreExplained checks that only a daemon of another version is to be replaced.
func TestRefusalsAreExplained(t *testing.T) {
	for code, want := range map[string]string{
		protocol.RefusedVersion:  "holdline upgrade",
		protocol.RefusedGreeting: "holdline doctor",
		protocol.RefusedLimit:    "holdline doctor",
		protocol.RefusedStopping: "when it is back",
	} {
		what, help := explain(&protocol.Refusal{Code: code, Message: "why"}, true)
		if !strings.Contains(help, want) || strings.Contains(what, "version") != (code == protocol.RefusedVersion) {
			t.Errorf("%s: %s %s", code, what, help)
		}
	}
}

// TestKeysThatDoNothingSayWhy checks the last line after keys that are for other rows.
func TestKeysThatDoNothingSayWhy(t *testing.T) {
	for want, keys := range map[string][]string{
		"r is for servers. Move there with tab.": {"up", "r"},
		"This consult has ended already.":        {"tab", "down", "down", "s"},
		"There is nothing here yet.":             {"/", "n", "o", "n", "e", "enter", "enter"},
	} {
		s := newScreen(t, 80, 24).busy().press(keys...)
		if got := s.lastLine(); !strings.Contains(got, want) || len(s.do.asked) > 0 {
			t.Errorf("after %q the last line is %q, want %q", keys, got, want)
		}
	}
	s := newScreen(t, 80, 24).busy()
	a := s.status(70)
	a.Servers[0].State = "stopped"
	s.send(statusMsg{status: a})
	if got := s.press("down", "s").lastLine(); !strings.Contains(got, "context7 is stopped already") {
		t.Errorf("the last line is %q", got)
	}
}

// TestQuestionMarkShowsTheKeys checks that ? explains the keys, from the tables and from a page.
func TestQuestionMarkShowsTheKeys(t *testing.T) {
	for _, keys := range [][]string{{"?"}, {"enter", "?"}} {
		s := newScreen(t, 80, 24).busy().press(keys...)
		if got := s.frame(); !strings.Contains(got, "restart, stop a server") {
			t.Errorf("after %q:\n%s", keys, got)
		}
		if s.press("esc"); s.page != nil {
			t.Errorf("esc does not leave the page of keys")
		}
	}
}

// TestAgentThatHasNotSpoken checks that a client is named by its identity until it has said
// its name.
func TestAgentThatHasNotSpoken(t *testing.T) {
	s := newScreen(t, 80, 24).busy()
	a := s.status(70)
	a.Sessions[4].Client, a.Sessions[4].Identity = "", "watcher"
	s.send(statusMsg{status: a})
	if got := s.frame(); !strings.Contains(got, "● watcher ") || strings.Contains(got, "● - ") {
		t.Errorf("the frame does not name the watcher:\n%s", got)
	}
	s.press("up")
	if got := s.press("enter").frame(); !strings.Contains(got, "AGENT ") {
		t.Errorf("its page:\n%s", got)
	}
}

// TestSelectionStaysOnItsRow checks that the user points at the same server when servers that
// fail move to the top, and when others go.
func TestSelectionStaysOnItsRow(t *testing.T) {
	s := newScreen(t, 80, 24).busy().press("down", "down", "down")
	if got := s.pointed().key; got != "github" {
		t.Fatalf("the selected server is %s", got)
	}
	a := s.status(70)
	a.Servers[4].State = "failed"
	s.send(statusMsg{status: a})
	if got := s.pointed().key; got != "github" {
		t.Errorf("after another one has failed, the selected server is %s", got)
	}
	a.Servers = slices.Delete(slices.Clone(a.Servers), 0, 2)
	s.send(statusMsg{status: a})
	if got := s.pointed().key; got != "github" {
		t.Errorf("after others have gone, the selected server is %s", got)
	}
	a.Servers = a.Servers[3:]
	s.send(statusMsg{status: a})
	if s.pointed() == nil || s.selected[servers].index >= len(a.Servers) {
		t.Errorf("after it has gone, the selection is %+v", s.selected[servers])
	}
}

// TestDaemonComesBack checks that the screen goes on with the next daemon: counts that begin
// anew are no negative rates.
func TestDaemonComesBack(t *testing.T) {
	s := gone(newScreen(t, 80, 24).busy())
	if got := s.frame(); !strings.Contains(got, "The daemon is gone. (12s)") {
		t.Errorf("while the daemon is away the screen is\n%s", got)
	}
	s.clock = s.clock.Add(time.Second)
	s.send(statusMsg{status: s.status(0)})
	if got := s.frame(); strings.Contains(got, "gone") {
		t.Errorf("after the daemon is back the screen is\n%s", got)
	}
	for name, one := range s.servers {
		if slices.Min(one.rates) < 0 || one.rates[len(one.rates)-1] != 0 {
			t.Errorf("the rates of %s are %v", name, one.rates)
		}
	}
}

// TestLogGoesOn checks that the log of a server is asked for from where the last answer ended,
// and no more once the user has left it.
func TestLogGoesOn(t *testing.T) {
	s := newScreen(t, 80, 24).busy().press("down", "l")
	p := s.page
	s.send(s.askLogs(p)())
	if !slices.Equal(s.do.asked, []string{"logs context7 0", "logs context7 10"}) ||
		!strings.Contains(s.frame(), "two after 10") {
		t.Errorf("asked for %q:\n%s", s.do.asked, s.frame())
	}
	late := s.askLogs(p)()
	s.press("esc")
	if _, again := s.Update(late); again != nil || s.page != nil {
		t.Error("a log that the user has left is asked for again")
	}
}

// TestLiveConsult checks that l shows what a consult does, from its row and from its details,
// once and as it happens, without control characters, and no more once it has ended or the user
// has left it.
func TestLiveConsult(t *testing.T) {
	for _, keys := range [][]string{{"tab", "down", "l"}, {"tab", "down", "enter", "l"}} {
		s := newScreen(t, 80, 24).busy()
		s.consultDirs = t.TempDir()
		dir := filepath.Join(s.consultDirs, "b2b2b2b2b2b2")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		log, err := engine.CreateTranscript(dir, engine.Entry{Level: "read"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(log.Close)
		p := s.press(keys...).page
		var again tea.Cmd
		write := func(entries ...engine.Entry) {
			for _, e := range entries {
				if err := log.Write(e); err != nil {
					t.Fatal(err)
				}
			}
			_, again = s.Update(askSteps(p)())
		}
		write(engine.Entry{Kind: engine.KindPiece, Text: "So fa"})
		write(engine.Entry{Kind: engine.KindPiece, Text: "r so go"})
		if got := s.frame(); !strings.Contains(got, " So far so go") || again == nil {
			t.Fatalf("after %q, in pieces:\n%s", keys, got)
		}
		write(engine.Entry{Kind: engine.KindText, Text: "So far so good.\n\nAnd\x1b[2J more."},
			engine.Entry{Kind: engine.KindTool, Text: "Read a\nfile"})
		got := s.frame()
		for _, want := range []string{
			"LIVE: CONSULT b2b2b2b2b2b2", "started, level read", " So far so good.\n", " And?[2J more.\n", "  Read a file\n",
			"esc back",
		} {
			if strings.Count(got, want) != 1 {
				t.Errorf("after %q, not once %q:\n%s", keys, want, got)
			}
		}
		late := askSteps(p)()
		write(engine.Entry{Kind: engine.KindEnd, Text: "done"})
		if got := s.frame(); again != nil || !strings.Contains(got, "is over: done") {
			t.Errorf("a consult that has ended:\n%s", got)
		}
		s.press("esc")
		if _, again := s.Update(late); again != nil || s.page != nil {
			t.Error("a consult that the user has left is watched on")
		}
	}
}

// TestDetailsAreRenewed checks that details follow what they are about, and that the answer of
// a consult is asked for again when it has ended.
func TestDetailsAreRenewed(t *testing.T) {
	s := newScreen(t, 80, 24).busy().press("tab", "down", "enter")
	if got := s.frame(); !strings.Contains(got, "Doing     Read daemon/calls/decide.go") {
		t.Fatalf("the details are\n%s", got)
	}
	next := someConsults(70)
	next[2].State, next[2].Note = "done", ""
	s.send(statusMsg{status: s.status(70), consults: next})
	s.send(statusMsg{status: s.status(71), consults: next})
	if got := s.frame(); !strings.Contains(got, "State     done") || !strings.Contains(got, "taken twice") {
		t.Errorf("the details are\n%s", got)
	}
	if want := "consult/show b2b2b2b2b2b2"; !slices.Equal(s.do.asked, []string{want, want}) {
		t.Errorf("asked for %q", s.do.asked)
	}
	s.send(statusMsg{status: s.status(72)})
	if got := s.frame(); !strings.Contains(got, "State     done") {
		t.Errorf("after it was removed the details are\n%s", got)
	}
}

// TestBoundsOfTheScreen checks that what is kept stays bounded, however long top runs.
func TestBoundsOfTheScreen(t *testing.T) {
	s := newScreen(t, 80, 24).busy()
	for n := range int64(2 * maxEvents) {
		s.send(eventMsg{Event: control.Event{N: 100 + n, Subject: "x", Kind: control.Served}})
	}
	p := &page{}
	p.addText("", strings.Repeat("line\n", 2*maxPageLines), plainText)
	one := series{}
	for range 2 * keptRates {
		one.push(1)
	}
	s.press("/").typed(strings.Repeat("x", 1000))
	if len(s.events) != maxEvents || len(p.lines) != maxPageLines || len(one.rates) != keptRates ||
		len(s.filter) > maxFilter {
		t.Errorf("%d events, %d lines, %d rates, filter %q", len(s.events), len(p.lines), len(one.rates), s.filter)
	}
	s.frame()
}

// TestEverySizeIsDrawn checks that each frame has the size of its window, whatever that is, on
// each page.
func TestEverySizeIsDrawn(t *testing.T) {
	s := newScreen(t, 80, 24).busy()
	for _, keys := range [][]string{nil, {"enter"}, {"esc", "l"}, {"esc", "tab", "enter"}, {"esc", "s"}, {"n", "/"}} {
		s.press(keys...)
		for _, width := range []int{1, 49, 50, 79, 80, 149, 150, 333} {
			for _, height := range []int{1, 11, 12, 24, 61} {
				s.width, s.height = width, height
				s.frame()
			}
		}
	}
}

// TestNarrowScreenNamesTheServers checks that the smallest screen shows which server a row is
// about, also while one has a long state.
func TestNarrowScreenNamesTheServers(t *testing.T) {
	s := newScreen(t, leastWidth, 24).busy()
	for _, state := range []string{"ready", "recovering", control.NeedsLogin} {
		s.last.status.Servers[0].State = state
		got := s.frame()
		for _, one := range s.last.status.Servers {
			if name := string([]rune(one.Name)[:min(4, len([]rune(one.Name)))]); !strings.Contains(got, " "+name) {
				t.Errorf("with a server that is %s, no row is of %s:\n%s", state, one.Name, got)
			}
		}
	}
}

// TestLongFilterFits checks that a filter that is wider than the screen leaves the last line as
// wide as that, while it is typed and afterwards.
func TestLongFilterFits(t *testing.T) {
	for _, letter := range []string{"x", "日"} {
		s := newScreen(t, leastWidth, 24).busy().press("/")
		s.typed(strings.Repeat(letter, maxFilter-1) + "!")
		if got := s.frame(); !strings.Contains(got, letter+"!█") {
			t.Errorf("the end of what is typed is not shown:\n%s", got)
		}
		s.press("enter").frame()
	}
}

// TestPanelIsNotShownLive checks that l on a panel, which has no steps of its own, says where the
// steps are, and shows no empty page.
func TestPanelIsNotShownLive(t *testing.T) {
	s := newScreen(t, 120, 24).busy()
	next := someConsults(61)
	next[1].Panel = next[2].ID
	s.send(statusMsg{status: s.status(61), consults: next})
	s.consultDirs = t.TempDir()
	s.press("tab", "down", "l")
	if got := s.frame(); s.page != nil || !strings.Contains(got, "consult show -f "+next[2].ID) {
		t.Errorf("l on a panel:\n%s", got)
	}
}

// TestServersSorted checks that keys sort the servers by memory, calls, errors and name, with those in trouble first, and
// that the heading of the column says so.
func TestServersSorted(t *testing.T) {
	m := newModel(nil, time.Now)
	m.known = true
	for _, one := range []struct {
		name                  string
		memory, calls, errors int64
	}{{"a", 1, 30, 2}, {"b", 3, 10, 1}, {"c", 2, 20, 3}} {
		s := control.Server{Name: one.name, State: "ready", Circuit: "closed"}
		s.Load.Calls, s.Load.Errors = one.calls, one.errors
		m.last.status.Servers = append(m.last.status.Servers, s)
		m.memory[one.name] = one.memory
	}
	m.last.status.Servers = append(m.last.status.Servers, control.Server{Name: "z", State: "failed", Circuit: "closed"})
	for _, tt := range []struct{ key, order, title string }{
		{"", "zabc", ""}, {"m", "zbca", "MEMORY▾"}, {"c", "zacb", "CALLS▾"}, {"e", "zcab", "ERRORS▾"}, {"n", "zabc", ""},
	} {
		if tt.key != "" {
			m.press(tea.KeyPressMsg{Code: []rune(tt.key)[0], Text: tt.key})
		}
		s, order, title := m.serverRows(), "", ""
		for _, r := range s.rows {
			order += r.key
		}
		for _, c := range s.columns {
			if strings.HasSuffix(c.title, "▾") {
				title += c.title
			}
		}
		if order != tt.order || title != tt.title {
			t.Errorf("key %q: order %s, title %q; want %s, %q", tt.key, order, title, tt.order, tt.title)
		}
	}
}
