package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/serverscmd"
	"holdline/protocol/control"
)

// newStatusCommand returns the command status. With --watch it asks again every second, and
// clears the screen before it prints. With --watch and --json it prints one object after the
// other.
func newStatusCommand(proc *cmdenv.Process) *cobra.Command {
	var watch bool
	cmd := console.WithJSON(&cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its sessions, servers, workers and consults at a glance",
		Long: `Show the daemon, its sessions, servers, workers and consults at a glance.

Sessions of one client process are one row: most clients have one for each server
that they use. "holdline sessions" lists them one by one.

With --json, one object with the keys daemon (pid, version, epoch, uptime_ms,
socket, started_by, rollout, refusal, config, config_refused, config_copy, degraded,
memory_bytes), sessions (id, identity, client, era, project, cwd, pid, state, in_flight,
calls, since_ms, proxy: its version, client_pid: the process that started the proxy,
server: the one that it is for, memory_bytes: of the proxy), workers (id, kind, name, pid,
child_pid, generation, state, attached, os_processes: its child and what that has started,
memory_bytes and private_bytes: of those, worker_memory_bytes),
servers (name, scope, state, active, lazy, ref_count, processes, restart_count,
consecutive_failures, circuit, ejected, suspect, in_flight, queued, cache_entries, tools,
changed_tools, changed_blocked, noise_lines, notes, last_fault, last_fault_unix_ms, load: calls,
errors, p50_ms; sessions: ids, os_processes, memory_bytes, private_bytes), consults (running,
queued, kept, today: a list of identity, cost_usd, consults, max_usd, max_consults;
window: kind, status, used, reset_unix_ms, text), cache (of servers' answers: hits,
misses, entries, bytes) and runtime (goroutines, heap_bytes, allocs, alloc_bytes, fds).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			params := control.StatusParams{Memory: true}
			for {
				s, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, params)
				if err != nil {
					return err
				}
				// Home and clear: each status takes the place of the one before.
				if watch && !console.IsJSON(cmd) {
					console.WriteControl(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
				}
				if err := console.Print(cmd, s, func(out io.Writer) { printStatus(out, s) }); err != nil || !watch {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		},
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every second")
	return cmd
}

// newSessionsCommand returns the command sessions, which prints the sessions of the status one
// by one.
func newSessionsCommand(proc *cmdenv.Process) *cobra.Command {
	return console.WithJSON(&cobra.Command{
		Use:   "sessions",
		Short: "List the agents that are connected",
		Long: `List the agents that are connected.

With --json, a list of objects as under "sessions" in status --json.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
			if err != nil {
				return err
			}
			return console.Print(cmd, s.Sessions, func(out io.Writer) { printSessions(out, s.Sessions) })
		},
	})
}

// newTelemetryCommand returns the command telemetry. The text for people is that of the tool
// telemetry_snapshot, and comes from the daemon.
func newTelemetryCommand(proc *cmdenv.Process) *cobra.Command {
	return console.WithJSON(&cobra.Command{
		Use:   "telemetry",
		Short: "Show what was called, how often, how fast and with which faults",
		Long: `Show what was called, how often, how fast and with which faults.

With --json, the full telemetry_snapshot: telemetry (uptime_ms, state, totals,
methods, …) and host_rollouts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := attach.Ask[control.TelemetryAnswer](cmd, proc, control.Telemetry, nil)
			if err != nil {
				return err
			}
			return console.Print(cmd, answer.Value, func(out io.Writer) { fmt.Fprintln(out, answer.Text) })
		},
	})
}

// inForce returns, for people, which configuration is in force while the file is refused. A
// daemon that reads a bad file at its start uses the copy of the last good one.
func inForce(d control.Daemon) string {
	if d.ConfigCopy != "" {
		return "the copy of its last good state is in force (" + d.ConfigCopy + ")"
	}
	return "the one before stays in force"
}

// printStatus prints a status for people: first lines about the daemon, then tables of agents,
// servers and workers. Lines about what is as usual, such as no consults today, are left out.
//
// Words of clients and servers stand in tables, which make them harmless for a terminal, or
// go through [console.Printable].
func printStatus(w io.Writer, s control.StatusAnswer) {
	d := s.Daemon
	fmt.Fprintf(w, "holdline %s  pid %d  up %s  generation %d  started by %s  %s\n",
		d.Version, d.PID, console.Age(d.UptimeMS), d.Epoch, d.StartedBy, d.Rollout)
	fmt.Fprintf(w, "socket   %s\n", d.Socket)
	// What is not as it should be follows, if anything.
	if d.ConfigRefused != "" {
		fmt.Fprintf(w, "config   refused, %s: %s\n", inForce(d), d.ConfigRefused)
		fmt.Fprintf(w, "         to fix it: correct %s; the daemon reads it by itself\n", d.Config)
	}
	if d.Refusal != "" {
		fmt.Fprintf(w, "rollout  rejected: %s\n", d.Refusal)
	}
	if d.Degraded != "" {
		fmt.Fprintf(w, "degraded %s\n", d.Degraded)
	}
	fmt.Fprintf(w, "consults %d running, %d queued, %d kept\n", s.Consults.Running, s.Consults.Queued, s.Consults.Kept)
	printMoney(w, s.Consults)
	if c := s.Cache; c.Hits+c.Misses > 0 {
		fmt.Fprintf(w, "cache    %d hits, %d misses, %d answers in %.1f MiB\n",
			c.Hits, c.Misses, c.Entries, float64(c.Bytes)/(1<<20))
	}
	fmt.Fprintf(w, "runtime  %d goroutines, %.1f MiB heap, %d descriptors\n",
		s.Runtime.Goroutines, float64(s.Runtime.HeapBytes)/(1<<20), s.Runtime.FDs)
	if len(s.Sessions) == 0 {
		fmt.Fprintln(w, "\nno agent is connected")
	} else {
		fmt.Fprintln(w)
		printAgents(w, s.Sessions)
	}
	if len(s.Servers) > 0 {
		fmt.Fprintln(w)
		serverscmd.PrintStates(w, s.Servers)
	}
	if len(s.Workers) > 0 {
		fmt.Fprintln(w)
		t := console.NewTable(w, "WORKER", "KIND", "NAME", "PID", "CHILD", "GEN", "STATE")
		for _, k := range s.Workers {
			t.Row(k.ID, k.Kind, k.Name, k.PID, k.ChildPID, k.Generation, k.State)
		}
		t.Flush()
	}
}

// printMoney prints what each identity has spent on consults today, with its budget if it has
// one, and what is left of a subscription.
func printMoney(w io.Writer, c control.Consults) {
	for _, s := range c.Today {
		text := fmt.Sprintf("%s asked for %d today", s.Identity, s.Consults)
		if s.MaxConsults > 0 {
			text += fmt.Sprintf(" of %d", s.MaxConsults)
		}
		if s.CostUSD > 0 || s.MaxUSD > 0 {
			text += fmt.Sprintf(", $%.2f", s.CostUSD)
		}
		if s.MaxUSD > 0 {
			text += fmt.Sprintf(" of $%.2f", s.MaxUSD)
		}
		fmt.Fprintf(w, "         %s\n", strings.Map(console.Printable, text))
	}
	if c.Window != nil && c.Window.Text != "" {
		fmt.Fprintf(w, "         %s\n", strings.Map(console.Printable, c.Window.Text))
	}
}

// printAgents prints one row for all sessions of a client process, since most clients have a
// session for each server that they use. A session whose client process is not known has a row
// of its own.
func printAgents(w io.Writer, sessions []control.Session) {
	// agent identifies a row: by the pid of the client, or, if that is not known, by the
	// position of the only session.
	type agent struct{ pid, alone int }
	var order []agent // in the order of their first sessions
	members := map[agent][]control.Session{}
	for i, s := range sessions {
		key := agent{pid: s.ClientPID}
		if s.ClientPID == 0 {
			key.alone = i + 1
		}
		if members[key] == nil {
			order = append(order, key)
		}
		members[key] = append(members[key], s)
	}
	t := console.NewTable(w, "AGENT", "CLIENT", "PID", "SESSIONS", "SERVERS", "IN FLIGHT", "CALLS", "AGE", "CWD")
	for _, key := range order {
		var identities, programs, servers []string
		attached, inFlight, calls, since := 0, 0, int64(0), int64(0)
		// Add up the sessions of the row. Its age is that of the oldest session.
		for _, s := range members[key] {
			identities, programs = append(identities, cmp.Or(s.Identity, "-")), append(programs, cmp.Or(s.Client, "-"))
			servers = append(servers, cmp.Or(s.Server, "all"))
			inFlight, calls, since = inFlight+s.InFlight, calls+s.Calls, max(since, s.SinceMS)
			if s.State == "attached" {
				attached++
			}
		}
		// A session whose proxy is gone waits for it to come back.
		count := strconv.Itoa(len(members[key]))
		if attached < len(members[key]) {
			count = fmt.Sprintf("%d (%d lost)", len(members[key]), len(members[key])-attached)
		}
		first := members[key][0]
		t.Row(each(identities), each(programs), cmp.Or(key.pid, first.PID), count, each(servers),
			inFlight, calls, console.Age(since), first.Cwd)
	}
	t.Flush()
}

// maxEach bounds the names in one cell, so that a row of the table of agents fits into a line
// of a terminal.
const maxEach = 2

// each returns the distinct words, sorted and joined by [joinSome]. It sorts the slice of the
// caller.
func each(words []string) string {
	slices.Sort(words)
	return joinSome(slices.Compact(words), maxEach)
}

// joinSome returns the names, joined with commas. It names at most that many of them and counts
// the others.
func joinSome(names []string, most int) string {
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// printSessions prints one row for each session, in the order of the status.
func printSessions(w io.Writer, sessions []control.Session) {
	if len(sessions) == 0 {
		fmt.Fprintln(w, "no agent is connected")
		return
	}
	t := console.NewTable(w, "SESSION", "IDENTITY", "CLIENT", "ERA", "PID", "STATE", "IN FLIGHT", "CALLS", "AGE", "CWD")
	for _, s := range sessions {
		t.Row(s.ID, s.Identity, s.Client, s.Era, s.PID, s.State, s.InFlight, s.Calls, console.Age(s.SinceMS), s.Cwd)
	}
	t.Flush()
}
