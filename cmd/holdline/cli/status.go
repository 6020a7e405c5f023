package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/glance"
	"holdline/cmd/holdline/serverscmd"
	"holdline/daemon/plural"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
)

// newStatusCommand returns the command status. With --watch it asks again every second, and
// clears the screen before it prints. With --watch and --json it prints one object after the
// other.
func newStatusCommand(proc *cmdenv.Process) *cobra.Command {
	var watch, verbose bool
	cmd := console.WithJSON(&cobra.Command{
		Use:     "status",
		Aliases: []string{"ps"},
		Short:   "Show agents, servers and consults at a glance, and what is wrong",
		Long: `Show the daemon, its sessions, servers, workers and consults at a glance.

The first lines say whether all is well, and what to do if it is not. With -v there are
also the numbers of the daemon itself and a table of workers.

Sessions of one client process are one row: most clients have one for each server
that they use. "holdline sessions" lists them one by one.

The line about savings compares what runs now with an estimate of what would run if each
connected agent had started the local servers that it uses, with as many processes as
run on average now, and with their launchers (such as npx), which Holdline leaves out.
Of the servers only the private memory counts, since the pages of programs would be
shared in any case. The memory of the daemon, the proxies and the workers is subtracted.
Memory is the proportional set size (PSS), on macOS the resident set size. Consults are
left out. If nothing is saved, there is no such line.

With --json, one object with the keys daemon (pid, version, epoch, uptime_ms,
socket, started_by, rollout, refusal, config, config_refused, config_copy, not_ready, degraded,
memory_bytes), sessions (id, identity, client, era, project, cwd, pid, state, in_flight,
calls, since_ms, proxy: its version, client_pid: the process that started the proxy,
server: the one that it is for, view, socket: of a guest, memory_bytes: of the proxy), workers (id, kind, name, pid,
child_pid, generation, state, attached, os_processes: its child and what that has started,
memory_bytes and private_bytes: of those, worker_memory_bytes; of one on another machine
host, rtt_us and, if that does not answer, unreachable: why),
servers (name, scope, state, active, lazy, ref_count, processes, restart_count,
consecutive_failures, circuit, ejected, suspect, not_answering_unix_ms, in_flight, queued, cache_entries, tools,
changed_tools, changed_blocked, noise_lines, notes, last_fault, last_fault_unix_ms,
last_fault_over, load: calls, errors, p50_ms; transport, host: where it runs if not here,
unreachable: as of a worker, or why a remote server is, unreachable_unix_ms: since when, pins_lost: a damaged file of pins, confine, held_by: what holds a confined
server, limits, limits_held_by: what holds those, login: of a remote server, with state, account, issuer,
resource, scopes, wanted_scopes, expires_unix_ms, renews, why, since_unix_ms,
next_try_unix_ms; sessions: ids, os_processes, memory_bytes, private_bytes, spared_processes and
spared_bytes: of launchers that are left out), consults
(running, queued, kept, recent_failures and last_failure: of the last 15 minutes,
unwritten: files that could not be written, path, unix_ms, in_memory: the daemon has the
only copy; unread: why directories could not be read, costs_lost: a damaged file of costs,
today: a list of identity, cost_usd, consults, max_usd, max_consults;
window: kind, status, used, reset_unix_ms, text), cache (of servers' answers: hits,
misses, entries, bytes), sockets (of guests: name, path, identity, disabled, trouble,
hosts: machines to which connect forwards it), left_out (servers that are not served for
what is wrong with their entries: name, why), differs (variables of which an agent has another
value than its server was started with: server, variable, project, session) and runtime (goroutines, heap_bytes, allocs,
alloc_bytes, fds).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			params := control.StatusParams{Memory: true}
			for {
				s, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, params)
				switch {
				case watch && cmd.Context().Err() != nil:
					return nil //nolint:nilerr // an interrupt is the end that is expected
				case err != nil:
					return err
				}
				// Home and clear: each status takes the place of the one before.
				if watch && !console.IsJSON(cmd) {
					console.WriteControl(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
				}
				if err := console.Print(cmd, s, func(out io.Writer) {
					printStatus(out, &s, proc.Getenv("HOME"), verbose)
				}); err != nil || !watch {
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
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show the daemon's own numbers and the workers, too")
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every second")
	return cmd
}

// longestFault bounds the reason that the status gives for a trouble, in columns. `holdline servers` says all.
const longestFault = 200

// printStatus prints a status for people: first whether all is well, then tables of agents and
// servers, then consults. Lines about what is as usual, such as no consults today, are left
// out. home is the user's home directory.
func printStatus(w io.Writer, s *control.StatusAnswer, home string, verbose bool) {
	printVerdict(w, s)
	if verbose {
		fmt.Fprintln(w)
		printDaemon(w, s)
	}
	fmt.Fprintln(w)
	if len(s.Sessions) == 0 {
		console.Line(w, 0, "No agent is connected.")
	} else {
		printAgents(w, s.Sessions, home)
	}
	if len(s.Servers) > 0 {
		fmt.Fprintln(w)
		serverscmd.PrintStates(w, s.Servers)
	}
	if begun := countedSince(s); !begun.IsZero() {
		console.Line(w, 2, "CALLS and P50 count from %s, when this daemon replaced another one.", begun.Format("15:04"))
	}
	for _, line := range glance.Elsewhere(s.Workers) {
		console.Line(w, 2, "%s", line)
	}
	printSockets(w, s)
	printConsults(w, &s.Consults)
	if verbose && len(s.Workers) > 0 {
		fmt.Fprintln(w)
		t := console.NewTable(w, "WORKER", "KIND", "NAME", "PID", "CHILD", "PROCESSES", "MEMORY", "GEN", "STATE")
		t.Optional("GEN", "KIND", "PROCESSES")
		for _, k := range s.Workers {
			if k.Host != "" { // its processes are not those of this machine
				t.Row(k.ID, k.Kind, k.Name+" on "+k.Host, "", "", "", "", k.Generation, serverscmd.Paint(k.State))
				continue
			}
			t.Row(k.ID, k.Kind, k.Name, pidOf(k.PID), pidOf(k.ChildPID), 1+k.OSProcesses,
				serverscmd.Memory(k.MemoryBytes+k.WorkerBytes), k.Generation, serverscmd.Paint(k.State))
		}
		t.Flush()
	}
}

// countedSince returns when the daemon began to count, if it has sessions that are older than that: their calls to an
// earlier daemon are not counted any more. Else it returns the zero time.
func countedSince(s *control.StatusAnswer) time.Time {
	const slack = 5000 // ms, for sessions that have waited for the daemon
	if !slices.ContainsFunc(s.Sessions, func(one control.Session) bool { return one.SinceMS > s.Daemon.UptimeMS+slack }) {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(s.Daemon.UptimeMS) * time.Millisecond)
}

// printVerdict prints whether all is well, what sharing saves, and what to do about what is not
// well.
func printVerdict(w io.Writer, s *control.StatusAnswer) {
	printHeadline(w, s)
	for _, t := range trouble.All(s) {
		t.Why = console.Shorten(t.Why, longestFault)
		serverscmd.PrintTrouble(w, t)
	}
}

// printHeadline prints whether all is well, and what sharing saves, if it does.
func printHeadline(w io.Writer, s *control.StatusAnswer) {
	text, well := trouble.Headline(s)
	style := console.Good
	if !well {
		style = console.Bad
	}
	word, rest, _ := strings.Cut(text, ". ")
	console.Line(w, 0, "%v %v", style.Paint(word+"."), rest)
	if saved, measured := glance.Estimate(s); measured && saved.String() != "" {
		console.Line(w, 0, "%v", console.Bold.Paint(saved))
	}
}

// printDaemon prints what is inside the daemon.
func printDaemon(w io.Writer, s *control.StatusAnswer) {
	d := s.Daemon
	console.Line(w, 9, "daemon   %s, pid %d, up %s, generation %d, started by %s, program %s",
		d.Version, d.PID, plural.Age(d.UptimeMS), d.Epoch, d.StartedBy, d.Rollout)
	console.Line(w, 9, "socket   %s", d.Socket)
	console.Line(w, 9, "config   %s", d.Config)
	if c := s.Cache; c.Hits+c.Misses > 0 {
		console.Line(w, 9, "cache    %d hits, %d misses, %d answers in %.1f MiB",
			c.Hits, c.Misses, c.Entries, float64(c.Bytes)/(1<<20))
	}
	console.Line(w, 9, "runtime  %d goroutines, %.1f MiB heap, %d descriptors, %s of memory",
		s.Runtime.Goroutines, float64(s.Runtime.HeapBytes)/(1<<20), s.Runtime.FDs, glance.Bytes(d.MemoryBytes))
}

// printSockets prints one row for each socket of the configuration.
func printSockets(w io.Writer, s *control.StatusAnswer) {
	if len(s.Sockets) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := console.NewTable(w, "SOCKET", "IDENTITY", "STATE", "GUESTS", "FORWARDED TO")
	for _, one := range s.Sockets {
		t.Row(one.Name, one.Identity, serverscmd.Paint(one.State()), s.Guests(one.Name), strings.Join(one.Hosts, " "))
	}
	t.Flush()
}

// printConsults prints how many consults there are, and what each identity has spent on
// consults today, with its budget if it has one, and what is left of a subscription.
func printConsults(w io.Writer, c *control.Consults) {
	if c.Running+c.Queued+c.Kept+len(c.Today) == 0 {
		return
	}
	fmt.Fprintln(w)
	console.Line(w, 10, "Consults: %d running, %d queued, %d kept", c.Running, c.Queued, c.Kept)
	for _, s := range c.Today {
		text := fmt.Sprintf("%s asked for %d today", s.Identity, s.Consults)
		if s.MaxConsults > 0 {
			text += fmt.Sprintf(" of %d", s.MaxConsults)
		}
		if s.CostUSD > 0 || s.MaxUSD > 0 {
			text += ", " + plural.Dollars(s.CostUSD)
		}
		if s.MaxUSD > 0 {
			text += " of " + plural.Dollars(s.MaxUSD)
		}
		console.Line(w, 10, "          %s", text)
	}
	if c.Window != nil && c.Window.Text != "" {
		console.Line(w, 10, "          %s", c.Window.Text)
	}
}

// printAgents prints one row for all sessions of a client process, since most clients have a
// session for each server that they use.
func printAgents(w io.Writer, sessions []control.Session, home string) {
	t := console.NewTable(w, "AGENT", "CLIENT", "PID", "SESSIONS", "SERVERS", "BUSY", "CALLS", "AGE", "CWD")
	t.Optional("PID", "SESSIONS", "BUSY", "AGE", "CLIENT")
	for _, a := range glance.Agents(sessions) {
		// A session whose proxy is gone waits for it to come back.
		var count any = len(a.Sessions)
		if a.Lost > 0 {
			count = console.Odd.Paint(fmt.Sprintf("%d (%d lost)", len(a.Sessions), a.Lost))
		}
		t.Row(console.JoinSome(a.Identities(), maxEach), console.JoinSome(a.Clients(), maxEach), pidOf(a.PID), count,
			console.JoinSome(a.Servers(), maxEach), a.InFlight, a.Calls, plural.Age(a.SinceMS),
			console.Tilde(a.Sessions[0].Cwd, home))
	}
	t.Flush()
}

// maxEach bounds the names in one cell, so that a row of the table of agents fits into a line
// of a terminal.
const maxEach = 2
