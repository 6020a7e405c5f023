package top

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// fakeDoer answers what the model asks for, and notes it.
type fakeDoer struct {
	asked []string
	err   error
}

func (f *fakeDoer) server(method, name string) (int, error) {
	f.asked = append(f.asked, method+" "+name)
	return 1, f.err
}

func (f *fakeDoer) logs(name string, after map[string]int64) (control.ServerLogsAnswer, error) {
	f.asked = append(f.asked, fmt.Sprint("logs ", name, " ", after["w"]))
	return control.ServerLogsAnswer{Logs: []control.ServerLog{{
		Worker: "w", Text: fmt.Sprintf("line one\nline \x1b[2Jtwo after %d\n", after["w"]), Next: after["w"] + 10,
	}}}, f.err
}

func (f *fakeDoer) consult(method, id string) (control.ConsultAnswer, error) {
	f.asked = append(f.asked, method+" "+id)
	return control.ConsultAnswer{Text: "The lock is taken twice.\n\n\tsee client.go:42"}, f.err
}

// screen is a model with a clock and a doer of the test.
type screen struct {
	*model

	t     *testing.T
	do    *fakeDoer
	clock time.Time
}

// newScreen returns a screen of that size, to which no daemon has spoken.
func newScreen(t *testing.T, width, height int) *screen {
	t.Helper()
	s := &screen{t: t, do: &fakeDoer{}, clock: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}
	s.model = newModel(s.do, func() time.Time { return s.clock })
	s.home = "/home/ada"
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

// busy lets a daemon speak for a minute.
func (s *screen) busy() *screen {
	for n := range 61 {
		s.clock = s.clock.Add(time.Second)
		s.send(statusMsg{status: s.status(n), consults: someConsults(n), memory: n == 60})
	}
	for n, e := range someEvents() {
		e.N, e.AtMS = int64(n+1), s.clock.Add(time.Duration(n-20)*time.Second).UnixMilli()
		s.send(eventMsg{Event: e, generation: 3})
	}
	return s
}

// send gives the model a message, and what comes of it. It does not wait for timers.
func (s *screen) send(msg tea.Msg) {
	_, cmd := s.Update(msg)
	if cmd == nil {
		return
	}
	switch msg.(type) {
	case logsMsg, stepsMsg: // what goes on is asked for again after a while
		return
	}
	if next := cmd(); next != nil {
		if _, quit := next.(tea.QuitMsg); !quit {
			s.send(next)
		}
	}
}

// press presses keys, one after the other.
func (s *screen) press(keys ...string) *screen {
	for _, key := range keys {
		k := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
		switch key {
		case "enter":
			k = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			k = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "tab":
			k = tea.KeyPressMsg{Code: tea.KeyTab}
		case "up":
			k = tea.KeyPressMsg{Code: tea.KeyUp}
		case "down":
			k = tea.KeyPressMsg{Code: tea.KeyDown}
		case "end":
			k = tea.KeyPressMsg{Code: tea.KeyEnd}
		}
		s.send(k)
	}
	return s
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;:]*m")

// frame returns the screen without colours, and checks that it has the size of the window and
// no control characters but those of colours.
func (s *screen) frame() string {
	s.t.Helper()
	v := s.View()
	if !v.AltScreen {
		s.t.Error("the view is not on the alternate screen")
	}
	lines := strings.Split(v.Content, "\n")
	if len(lines) != s.height {
		s.t.Errorf("the frame has %d lines, want %d", len(lines), s.height)
	}
	for i, line := range lines {
		if w := lipgloss.Width(line); w != s.width {
			s.t.Errorf("line %d has %d columns, want %d: %q", i+1, w, s.width, line)
		}
		plain := escapes.ReplaceAllString(line, "")
		if strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x202e }) {
			s.t.Errorf("line %d has control characters: %q", i+1, plain)
		}
		lines[i] = strings.TrimRight(plain, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// status returns what a daemon says after n seconds.
func (s *screen) status(n int) control.StatusAnswer {
	seconds := int64(n)
	a := control.StatusAnswer{
		Daemon: control.Daemon{
			PID: 100, Version: "0.2.0", Epoch: 3, UptimeMS: 11_580_000 + seconds*1000, MemoryBytes: 9_400_000,
		},
		Consults: control.Consults{Running: 1, Queued: 1, Kept: 3, Today: []control.Spending{{CostUSD: 0.42}}},
		Workers: []control.Worker{
			{Name: "github", Kind: "server", PID: 200, ChildPID: 201, State: "ready", WorkerBytes: 2_100_000},
		},
	}
	for i, one := range []struct {
		client, server, cwd string
		pid                 int
	}{
		{"claude-code 2.1.4", "github", "/home/ada/src/holdline", 11},
		{"claude-code 2.1.4", "postgres", "/home/ada/src/holdline", 11},
		{"claude-code 2.1.4", "filesystem", "/home/ada/src/holdline", 11},
		{"claude-code 2.1.4", "holdline", "/home/ada/src/holdline", 11},
		{"codex 0.99", "", "/home/ada/src/a-project-with-a-very-long-name/and/more", 12},
		{"gemini-cli\x1b[2J", "", "/srv/日本語", 13},
	} {
		a.Sessions = append(a.Sessions, control.Session{
			ID: fmt.Sprint("s", i), Identity: strings.Fields(one.client)[0], Client: one.client, Server: one.server,
			Cwd: one.cwd, PID: 1000 + i, ClientPID: one.pid, State: "attached", InFlight: i % 2, Proxy: "0.2.0",
			Calls: int64(i+1) * (100 + seconds), SinceMS: 8_000_000 - int64(i)*900_000, MemoryBytes: 2_500_000,
		})
	}
	wave := []int64{0, 1, 3, 6, 9, 7, 4, 2, 1, 0, 0, 2}
	for i, name := range []string{
		"context7", "filesystem", "github", "a-server-with-a-very-long-name-indeed", "postgres", "sentry", "検索",
	} {
		calls := int64(0)
		for t := range n {
			calls += wave[(t+3*i)%len(wave)] * int64(i%3)
		}
		one := control.Server{
			Name: name, Scope: "shared", State: "ready", Circuit: "closed", Active: true, Processes: 1,
			Transport: "stdio", OSProcesses: 2, PrivateBytes: 60e6 * int64(i+1), Sessions: []string{"s0", "s4", "s5"},
			RefCount: 3 + i%3, MemoryBytes: 84e6 * int64(i+1),
			Load: control.Load{Calls: calls, Errors: int64(i % 2), P50MS: float64(i*i) * 3.7},
		}
		switch i {
		case 3:
			one.State, one.Processes, one.MemoryBytes, one.Load = "idle", 0, 0, control.Load{}
		case 5:
			one.State, one.Processes, one.Restarts, one.MemoryBytes = "recovering", 0, 4, 0
			one.LastFault = fault.New(fault.SpawnFailure, fault.Server, "server:sentry",
				"server sentry did not come up: exit code 3, “SENTRY_TOKEN is not set”")
			one.LastFaultMS = s.clock.Add(-9 * time.Second).UnixMilli()
		}
		a.Servers = append(a.Servers, one)
	}
	return a
}

// someConsults returns the consults that a daemon lists after n seconds.
func someConsults(n int) []control.Consult {
	cents := func(usd float64) *float64 { return &usd }
	took := int64(n) * 1000
	return []control.Consult{
		{
			ID: "c3c3c3c3c3c3", State: "queued", Identity: "codex", Engine: "codex", Question: "Is this schema normal?",
			TookMS: took, Note: "queued, position 1 of 1", Cwd: "/home/ada/src/holdline",
			CreatedMS: 1_772_625_612_000,
		},
		{
			ID: "a1a1a1a1a1a1", State: "done", Identity: "claude-code", Engine: "codex",
			Question: "Name three weak tests.", TookMS: 48_000, CostUSD: cents(0.118),
		},
		{
			ID: "b2b2b2b2b2b2", State: "running", Identity: "claude-code", Engine: "claude", CostUSD: cents(0.304),
			Question: "Is the retry in client.go safe if the daemon dies between write and ack? See its tests.",
			TookMS:   72_000 + took, Note: "Read daemon/calls/decide.go", Cwd: "/home/ada/src/holdline", Level: "read",
			EnforcedBy: "landlock", Model: "opus",
		},
		{
			ID: "d4d4d4d4d4d4", State: "failed", Identity: "gemini", Engine: "claude", Question: "Why?", TookMS: 1200,
			Code: "deadline_exceeded",
		},
	}
}

// someEvents returns what has happened, in order.
func someEvents() []control.Event {
	return []control.Event{
		{Kind: control.Started, Text: "Holdline 0.2.0 has started"},
		{Kind: control.Served, Subject: "github", Text: "started"},
		{Kind: control.Served, Subject: "検索", Text: "started in /srv/日本語"},
		{Kind: control.Configured, Text: "the configuration was read: /home/ada/.config/holdline/config.json"},
		{Kind: control.Asked, Subject: "b2b2b2b2b2b2", Text: "claude-code asks claude: Is the retry safe?"},
		{Kind: control.Crashed, Subject: "sentry", Text: "server sentry did not come up; next start in 1s", Bad: true},
		{Kind: control.Refused, Text: "a consult of codex was refused: $5.00 of $5.00 are spent today", Bad: true},
		{Kind: control.Upgraded, Text: "upgraded from 0.1.9 to 0.2.0; nothing was lost"},
		{Kind: control.Crashed, Subject: "sentry", Text: "exit code 3 \u202e\x1b[2J", Bad: true},
	}
}

// TestFrames compares screens with those in testdata, which `UPDATE=1 go test` writes. They are
// without colours.
func TestFrames(t *testing.T) {
	for name, s := range map[string]*screen{
		"80x24":        newScreen(t, 80, 24).busy(),
		"120x40":       newScreen(t, 120, 40).busy(),
		"200x50":       newScreen(t, 200, 50).busy(),
		"60x15":        newScreen(t, 60, 15).busy(),
		"server":       newScreen(t, 80, 24).busy().press("enter"),
		"consult":      newScreen(t, 80, 24).busy().press("tab", "enter"),
		"agent":        newScreen(t, 80, 24).busy().press("up", "enter"),
		"event":        newScreen(t, 80, 24).busy().press("tab", "tab", "enter"),
		"log":          newScreen(t, 80, 24).busy().press("down", "l"),
		"filter":       newScreen(t, 80, 24).busy().press("/", "s", "e", "n", "t"),
		"restart":      newScreen(t, 80, 24).busy().press("down", "down", "down", "r"),
		"gone":         gone(newScreen(t, 80, 24).busy()),
		"not-running":  gone(newScreen(t, 80, 24)),
		"first-moment": newScreen(t, 80, 24),
		"quiet":        quiet(newScreen(t, 80, 24)),
		"too-small":    newScreen(t, 40, 10).busy(),
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			got, path := s.frame(), filepath.Join("testdata", name+".txt")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || got != string(want) {
				t.Errorf("%v: the frame is not that of %s:\n%s", err, path, got)
			}
		})
	}
}

// gone lets the daemon of a screen end, 12 seconds before.
func gone(s *screen) *screen {
	s.send(absentMsg{fmt.Errorf("%w listens at /run/x", socket.ErrNoDaemon)})
	s.clock = s.clock.Add(12 * time.Second)
	s.send(absentMsg{errors.New("other words")})
	s.send(absentMsg{fmt.Errorf("%w listens at /run/x", socket.ErrNoDaemon)})
	return s
}

// quiet lets a daemon speak that has nothing to do.
func quiet(s *screen) *screen {
	s.send(statusMsg{status: control.StatusAnswer{Daemon: control.Daemon{Version: "0.2.0", UptimeMS: 3000}}})
	return s
}
