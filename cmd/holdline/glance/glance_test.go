package glance

import (
	"strings"
	"testing"

	"holdline/daemon/trouble"
	"holdline/protocol/control"
)

// shared returns a status in which two agents, one of them with a session for each server,
// share three servers: "one" and "two" run once, "own" runs once for each agent.
func shared() *control.StatusAnswer {
	server := func(name string, processes int, sessions ...string) control.Server {
		return control.Server{
			Name: name, State: "ready", Circuit: "closed", Processes: processes, OSProcesses: 2 * processes,
			Sessions: sessions, Transport: "stdio", MemoryBytes: int64(processes) * 100e6,
			PrivateBytes: int64(processes) * 80e6,
		}
	}
	session := func(id string, client int) control.Session {
		return control.Session{ID: id, ClientPID: client, PID: client + 1, State: "attached", MemoryBytes: 2e6}
	}
	s := &control.StatusAnswer{
		Daemon:   control.Daemon{MemoryBytes: 20e6},
		Sessions: []control.Session{session("1", 10), session("2", 20), session("3", 20), session("4", 20)},
		Servers: []control.Server{
			server("one", 1, "1", "2"), server("two", 1, "1", "3"), server("own", 2, "1", "4"),
		},
	}
	for range 4 {
		s.Workers = append(s.Workers, control.Worker{Kind: "server", OSProcesses: 2, WorkerBytes: 3e6})
	}
	return s
}

// TestEstimate checks what sharing saves, and that nothing is claimed that is not saved or not
// known.
func TestEstimate(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *control.StatusAnswer)
		want   Saving
		says   string
	}{
		// Of one and two a process each is saved: 160 MB. Holdline takes 20 + 4·2 + 4·3 MB.
		"two agents": {
			func(*control.StatusAnswer) {},
			Saving{Agents: 2, Servers: 3, Processes: 17, Without: 12, Bytes: 120e6},
			"2 agents, 3 servers: 120 MB saved",
		},
		"large servers": {
			func(s *control.StatusAnswer) {
				for i := range 2 {
					s.Servers[i].OSProcesses = 20
				}
				s.Workers[0].OSProcesses, s.Workers[1].OSProcesses = 20, 20
			},
			Saving{Agents: 2, Servers: 3, Processes: 53, Without: 84, Bytes: 120e6},
			"2 agents, 3 servers: 53 processes instead of 84, 120 MB saved",
		},
		"large servers whose memory is shared in any case": {
			func(s *control.StatusAnswer) {
				for i := range 2 {
					s.Servers[i].OSProcesses, s.Servers[i].PrivateBytes = 20, 1e6
				}
				s.Workers[0].OSProcesses, s.Workers[1].OSProcesses = 20, 20
			},
			Saving{Agents: 2, Servers: 3, Processes: 53, Without: 84, Bytes: -38e6},
			"2 agents, 3 servers: 53 processes instead of 84",
		},
		// Of each of two agents a launcher of two processes and 60 MB is spared.
		"servers without their launchers": {
			func(s *control.StatusAnswer) {
				for i := range 2 {
					s.Servers[i].SparedProcesses, s.Servers[i].SparedBytes = 2*s.Servers[i].Processes, 60e6*int64(s.Servers[i].Processes)
				}
			},
			Saving{Agents: 2, Servers: 3, Processes: 17, Without: 20, Bytes: 360e6},
			"2 agents, 3 servers: 17 processes instead of 20, 360 MB saved",
		},
		"an agent whose proxy is gone": {
			func(s *control.StatusAnswer) { s.Sessions[0].State = "detached" },
			Saving{Agents: 1, Servers: 3, Processes: 16, Without: 6, Bytes: -118e6},
			"",
		},
		"servers elsewhere": {
			func(s *control.StatusAnswer) {
				s.Servers[0].Transport, s.Servers[1].Transport = "http", "sse"
			},
			Saving{Agents: 2, Servers: 3, Processes: 17, Without: 4, Bytes: -240e6},
			"",
		},
		"nothing runs": {
			func(s *control.StatusAnswer) { s.Servers, s.Workers = nil, nil },
			Saving{Processes: 5, Bytes: -28e6},
			"",
		},
	} {
		s := shared()
		c.change(s)
		got, ok := Estimate(s)
		if got != c.want || got.String() != c.says || ok != (s.Servers != nil) {
			t.Errorf("%s: %+v, %v, %q, want %+v, %q", what, got, ok, got, c.want, c.says)
		}
	}
	s := shared()
	for i := range s.Servers {
		s.Servers[i].OSProcesses, s.Servers[i].PrivateBytes = 0, 0
	}
	if v, ok := Estimate(s); ok {
		t.Errorf("without measured memory: %+v", v)
	}
}

// TestStatusline checks what a prompt shows.
func TestStatusline(t *testing.T) {
	s := shared()
	if got := Statusline(s); got != "2 agents · 3/3 ok" {
		t.Error(got)
	}
	s.Servers[0].State, s.Servers[1].State = "stopped", "failed"
	s.Consults = control.Consults{Running: 1, Today: []control.Spending{{CostUSD: 0.4}, {CostUSD: 0.021}}}
	s.Sessions = s.Sessions[:1]
	if got := Statusline(s); got != "1 agent · 1/2 ok · 1 consult · $0.42" {
		t.Error(got)
	}
}

// TestInTrouble checks that a prompt and the first line of the status agree on which servers work.
func TestInTrouble(t *testing.T) {
	for _, c := range []struct {
		name   string
		server control.Server
		want   bool
	}{
		{"ready", control.Server{State: "ready", Circuit: "closed"}, false},
		{"idle", control.Server{State: "idle"}, false},
		{"tools changed", control.Server{State: "ready", Changed: 1}, false},
		{"tools blocked", control.Server{State: "ready", Changed: 1, Blocked: true}, true},
		{"failed", control.Server{State: "failed"}, true},
		{"ejected", control.Server{State: "ejected", Ejected: true}, true},
		{"recovering", control.Server{State: "recovering"}, true},
		{"a call is let through to try", control.Server{State: "ready", Circuit: "half-open"}, true},
		{"down", control.Server{State: "unreachable", Unreachable: "cannot be reached"}, true},
		{"silent during a call", control.Server{State: "not answering", SilentMS: 1}, false},
		{"hangs", control.Server{State: "ready", Suspect: true}, true},
	} {
		s := control.StatusAnswer{Servers: []control.Server{c.server}}
		line, prompt := map[bool]string{true: "1 in trouble", false: "no recent faults"}[c.want], "1/1 ok"
		if c.want {
			prompt = "0/1 ok"
		}
		if text, well := trouble.Headline(&s); well == c.want || !strings.Contains(text, line) ||
			!strings.Contains(Statusline(&s), prompt) {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, text, Statusline(&s), line, prompt)
		}
	}
}
