package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/cmd/holdline/ttytest"
	"holdline/daemon/telemetry"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// busyStatus returns the status of a daemon with three agents, one of which has two sessions,
// and four servers.
func busyStatus() control.StatusAnswer {
	session := func(id, client, server string, pid int) control.Session {
		return control.Session{
			ID: id, Identity: strings.Fields(client)[0], Client: client, Era: "legacy",
			Cwd: "/home/user/projects/" + id, PID: 4000 + pid, ClientPID: pid, State: "attached",
			Calls: 12, SinceMS: 3_700_000, Server: server,
			Proxy: "0.1.0", MemoryBytes: 3 << 20,
		}
	}
	tools := 14
	server := func(name, scope string, processes, calls int) control.Server {
		return control.Server{
			Name: name, Scope: scope, State: "ready", Active: true, RefCount: 3, Processes: processes,
			Circuit: "closed", Tools: &tools, Load: control.Load{Calls: int64(calls), P50MS: 12.4}, Transport: "stdio",
			Sessions: []string{"shop", "blog", "wiki"}, OSProcesses: 3 * processes,
			MemoryBytes: int64(processes) * 120e6, PrivateBytes: int64(processes) * 90e6,
		}
	}
	s := control.StatusAnswer{
		Daemon: control.Daemon{
			PID: 812, Version: "0.1.0", Epoch: 4, UptimeMS: 7_400_000, Socket: "/run/user/1000/holdline/daemon.sock",
			StartedBy: "systemd", Rollout: "stable", Config: "/home/user/.config/holdline/config.json",
			MemoryBytes: 21 << 20,
		},
		Sessions: []control.Session{
			session("shop", "claude-code 2.1.5", "", 71), session("blog", "codex-mcp-client 0.45.0", "github", 72),
			session("blog2", "codex-mcp-client 0.45.0", "files", 72), session("wiki", "cursor-vscode 1.0.0", "", 73),
		},
		Servers: []control.Server{
			server("files", "project", 2, 310), server("github", "shared", 1, 77), server("postgres", "shared", 1, 4),
			server("sequential-thinking-of-the-team", "shared", 1, 0),
		},
		Cache:   control.Cache{Hits: 3, Misses: 9, Entries: 5, Bytes: 4 << 20},
		Runtime: control.Runtime{Goroutines: 61, HeapBytes: 5 << 20, FDs: 40},
	}
	for i, w := range []string{"files", "files", "github", "postgres", "sequential-thinking-of-the-team"} {
		s.Workers = append(s.Workers, control.Worker{
			ID: fmt.Sprintf("s%.12s-0%d", w, i), Kind: "server", Name: w, PID: 900 + i, ChildPID: 950 + i,
			Generation: 7, State: "ready", Attached: true, OSProcesses: 3,
			MemoryBytes: 120e6, PrivateBytes: 90e6, WorkerBytes: 3e6,
		})
	}
	return s
}

// troubledStatus is [busyStatus] with all kinds of trouble, and with consults.
func troubledStatus() control.StatusAnswer {
	s := busyStatus()
	s.Daemon.ConfigRefused = s.Daemon.Config + ":3:9: mcpServers.files.comand: holdline has no such key"
	s.Servers[0].State, s.Servers[0].Ejected, s.Servers[0].Active = "ejected", true, false
	s.Servers[0].LastFault = fault.New(fault.SpawnFailure, fault.Server, "initialize",
		"server files did not come up: exit code 1: %s", strings.Repeat("npm error 404 Not Found ", 12))
	s.Servers[0].LastFaultMS = time.Now().Add(-3 * time.Minute).UnixMilli()
	s.Servers[1].State = "stopped"
	s.Servers[2].Changed, s.Servers[2].Blocked = 2, true
	s.Sessions[3].State = "detached"
	cost := control.Spending{Identity: "claude-code", CostUSD: 0.42, Consults: 3, MaxUSD: 5}
	s.Consults = control.Consults{Running: 1, Queued: 2, Kept: 7, Today: []control.Spending{cost}}
	return s
}

// TestFrames checks what commands show on a terminal of 80 columns, and that elsewhere they show
// no colour.
func TestFrames(t *testing.T) {
	busy, troubled := busyStatus(), troubledStatus()
	code := fault.Timeout
	sums := telemetry.Totals{RequestCount: 391, TransportFaultCount: 2}
	sums.P50, sums.P95 = 12.2, 1830
	counts := &telemetry.Snapshot{Telemetry: telemetry.Body{
		UptimeMS: 7_400_000, RestartCount: 1, Totals: sums, Methods: []telemetry.Method{
			{
				Method: "tools/call:github__search", Server: "github", Tool: "search_the_code_of_all_repositories",
				Totals: sums,
			},
			{Method: "tools/call:consult", Tool: "consult", LastError: &code},
			{Method: "tools/list", Totals: sums},
		},
	}, Cache: telemetry.CacheCounts{Hits: 3, Misses: 9}}
	found := []doctor.Finding{
		{Check: "configuration", State: doctor.OK, What: "/home/user/.config/holdline/config.json"},
		{Check: "PATH of hosted servers", State: doctor.OK, What: strings.Repeat("/home/user/.local/bin:", 6) + "/bin"},
		{
			Check: "claude", State: doctor.Problem, What: "Holdline's daemon cannot find claude",
			Why: "consults cannot run",
			Fix: "holdline install --path, which records where the programs of your shell are",
		},
		{Check: "versions", State: doctor.Note, What: "older proxies", Why: "they live on", Fix: "restart agents"},
	}
	for name, show := range map[string]func(io.Writer){
		"status":            func(w io.Writer) { printStatus(w, &busy, "/home/user", false) },
		"status-verbose":    func(w io.Writer) { printStatus(w, &busy, "/home/user", true) },
		"status-trouble":    func(w io.Writer) { printStatus(w, &troubled, "/home/user", false) },
		"status-nothing":    func(w io.Writer) { printStatus(w, &control.StatusAnswer{}, "/home/user", false) },
		"sessions":          func(w io.Writer) { printSessions(w, busy.Sessions, "/home/user", false) },
		"sessions-verbose":  func(w io.Writer) { printSessions(w, busy.Sessions, "/home/user", true) },
		"telemetry":         func(w io.Writer) { printTelemetry(w, counts, false) },
		"telemetry-verbose": func(w io.Writer) { printTelemetry(w, counts, true) },
		"doctor":            func(w io.Writer) { printFindings(w, found, false) },
		"doctor-verbose":    func(w io.Writer) { printFindings(w, found, true) },
	} {
		t.Run(name, func(t *testing.T) {
			frame := ttytest.OnScreen(t, func(tty *os.File) {
				out := console.NewOutput(tty)
				size := map[string]string{"COLUMNS": fmt.Sprint(ttytest.Columns)}
				if err := out.Configure("never", func(name string) string { return size[name] }); err != nil {
					t.Error(err)
				}
				show(out)
			})
			ttytest.CompareFrame(t, "frames/"+name, frame, console.Width)
			var piped bytes.Buffer
			if show(console.NewOutput(&piped)); bytes.ContainsRune(piped.Bytes(), '\x1b') {
				t.Errorf("in a pipe: %q", piped.Bytes())
			}
		})
	}
}
