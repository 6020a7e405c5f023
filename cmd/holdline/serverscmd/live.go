package serverscmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// liveServers asks the running daemon for the status of its servers, by name. known is false if no
// daemon runs. It is also false, with a warning, if the daemon reads another file than that at
// path.
func (s *serversCommand) liveServers(
	cmd *cobra.Command, path string,
) (all map[string]control.Server, known bool, err error) {
	status, err := attach.Ask[control.StatusAnswer](cmd, s.proc, control.Status, nil)
	if errors.Is(err, socket.ErrNoDaemon) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	// Servers of the same name may be different ones in the other file, so their status would
	// mislead.
	if !cmdenv.SameFile(status.Daemon.Config, path) {
		console.Warn(cmd, "the running daemon reads another file: %s", status.Daemon.Config)
		return nil, false, nil
	}
	all = map[string]control.Server{}
	for _, one := range status.Servers {
		all[one.Name] = one
	}
	return all, true, nil
}

// PrintStates prints a table of hosted servers, and below it what is wrong with them.
func PrintStates(w io.Writer, servers []control.Server) {
	t := console.NewTable(w,
		"SERVER", "STATE", "SCOPE", "SESSIONS", "IN FLIGHT", "RESTARTS", "CIRCUIT", "CACHED", "TOOLS")
	for i := range servers {
		s := &servers[i]
		t.Row(s.Name, s.State, s.Scope, s.RefCount, inFlight(s), s.Restarts, s.Circuit, s.CacheCount, toolCount(s))
	}
	t.Flush()
	printTroubles(w, servers)
}

// inFlight returns the number of calls in flight, with the number of queued ones behind a plus
// sign.
func inFlight(s *control.Server) string {
	if s.Queued > 0 {
		return fmt.Sprintf("%d+%d", s.InFlight, s.Queued)
	}
	return fmt.Sprint(s.InFlight)
}

// toolCount returns how many tools a server has, and how many of them have changed; "?" if it
// never listed them.
func toolCount(s *control.Server) string {
	if s.Tools == nil {
		return "?"
	}
	if s.Changed > 0 {
		return fmt.Sprintf("%d, %d changed", *s.Tools, s.Changed)
	}
	return fmt.Sprint(*s.Tools)
}

// printTroubles prints what is wrong with servers and what fixes it, a line for each.
func printTroubles(w io.Writer, servers []control.Server) {
	for i := range servers {
		for _, words := range troubles(&servers[i]) {
			fmt.Fprintf(w, "%s: %s\n", servers[i].Name, strings.Map(console.Printable, words))
		}
	}
}

// troubles returns what is wrong with a server, and what fixes it, a sentence for each. The
// sentences have no subject: [printTroubles] puts the name of the server before each.
func troubles(s *control.Server) []string {
	var out []string
	if f := s.LastFault; f != nil {
		words := fmt.Sprintf("%s: %s", f.Fault.Code, f.Fault.Detail)
		if f.Cause != nil && len(f.Cause.StderrTail) > 0 {
			// What the server wrote last is often the reason. The detail may end with
			// these words already.
			if last := f.Cause.StderrTail[len(f.Cause.StderrTail)-1]; !strings.HasSuffix(words, last) {
				words += fmt.Sprintf("; its last words: %s", last)
			}
		}
		// The fault may be old, and the server well again.
		if s.LastFaultMS > 0 {
			words += fmt.Sprintf(" (%v ago)", max(0, time.Since(time.UnixMilli(s.LastFaultMS))).Round(time.Second))
		}
		out = append(out, words)
	}
	// One of these at most: what the user did comes before what the daemon does.
	switch {
	case s.State == "stopped":
		out = append(out, "was stopped; to have it back: holdline servers start "+s.Name)
	case s.Ejected:
		out = append(out, "ended or failed to start too often; once it is fixed: holdline servers reload "+s.Name)
	case s.State == "failed" || s.Circuit != "closed":
		out = append(out, "is tried again by a later call; to try now: holdline servers restart "+s.Name)
	}
	if s.Changed > 0 {
		blocked := ""
		if s.Blocked {
			blocked = ", and are blocked"
		}
		out = append(out, fmt.Sprintf("%d of its tools are not what they were when they were first seen%s: "+
			"holdline servers tools %s --changes", s.Changed, blocked, s.Name))
	}
	if s.NoiseLines > 0 {
		out = append(out, fmt.Sprintf("wrote %d lines to stdout that are no messages of MCP; they were skipped",
			s.NoiseLines))
	}
	return append(out, s.Notes...)
}
