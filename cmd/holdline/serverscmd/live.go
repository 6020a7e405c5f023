package serverscmd

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/glance"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// liveServers asks the running daemon for the status of its servers, by name. known is false if no
// daemon runs. It is also false if the daemon reads another file than that at path, or if the user
// has stopped it, which are printed to stderr.
func (s *serversCommand) liveServers(
	cmd *cobra.Command, path string,
) (all map[string]control.Server, known bool, err error) {
	status, err := attach.Ask[control.StatusAnswer](cmd, s.proc, control.Status, nil)
	if errors.Is(err, socket.ErrNoDaemon) {
		if mark, stopped := errors.AsType[*socket.StoppedError](err); stopped {
			console.Line(cmd.ErrOrStderr(), 2, "%v. To start it: holdline start", mark)
		}
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

// PrintStates prints a table of hosted servers.
func PrintStates(w io.Writer, servers []control.Server) {
	t := console.NewTable(w, "SERVER", "STATE", "SESSIONS", "BUSY", "CALLS", "ERRORS", "P50", "MEMORY", "TOOLS",
		"SCOPE", "RESTARTS")
	t.Optional("RESTARTS", "SCOPE", "BUSY", "P50", "ERRORS")
	for i := range servers {
		s := &servers[i]
		p50 := console.Right("")
		if s.Load.Calls > 0 {
			p50 = Milliseconds(s.Load.P50MS)
		}
		t.Row(s.Name, Paint(s.State), s.RefCount, inFlight(s), s.Load.Calls, s.Load.Errors, p50,
			Memory(s.MemoryBytes), toolCount(s), s.Scope, s.Restarts)
	}
	t.Flush()
	var confined Confined
	for i := range servers {
		confined.Add(servers[i].Name, "confined", servers[i].Confine, servers[i].HeldBy)
	}
	confined.addLimits(servers)
	confined.Print(w)
}

// Confined are servers by what holds them.
type Confined struct{ rows []confinedRow }

// confinedRow are servers that the same holds to the same.
type confinedRow struct {
	kind, level, heldBy string
	servers             []string
}

// Add adds a server, unless nothing is to hold it: then heldBy is "". kind says to what it is
// held, and level how far.
func (c *Confined) Add(server, kind, level, heldBy string) {
	if heldBy == "" {
		return
	}
	for i := range c.rows {
		if r := &c.rows[i]; r.kind == kind && r.level == level && r.heldBy == heldBy {
			r.servers = append(r.servers, server)
			return
		}
	}
	c.rows = append(c.rows, confinedRow{kind, level, heldBy, []string{server}})
}

// addLimits adds the servers with limits of which processes run.
func (c *Confined) addLimits(servers []control.Server) {
	for i := range servers {
		c.Add(servers[i].Name, "limits", servers[i].Limits, servers[i].LimitsHeldBy)
	}
}

// Print prints a line for those that the same holds.
func (c *Confined) Print(w io.Writer) {
	for _, r := range c.rows {
		console.Line(w, 2, "%s (%s): %s (%s)", r.kind, r.level, strings.Join(r.servers, ", "), r.heldBy)
	}
}

// Paint returns a state of a server, a worker or a session in its colour.
func Paint(state string) console.Painted {
	style := console.Plain
	switch state {
	case "ready", "attached", "open":
		style = console.Good
	case "starting", "recovering", "not answering", "stopping", "detached":
		style = console.Odd
	case "failed", "ejected", "unreachable", control.NeedsLogin:
		style = console.Bad
	case "idle", "stopped", "disabled":
		style = console.Dim
	}
	return style.Paint(state)
}

// Memory returns a size as a cell, which is empty if it is not known.
func Memory(bytes int64) console.Right {
	if bytes == 0 {
		return ""
	}
	return console.Right(glance.Bytes(bytes))
}

// Milliseconds returns a time as a cell.
func Milliseconds(ms float64) console.Right {
	if ms >= 1000 {
		return console.Right(fmt.Sprintf("%.1f s", ms/1000))
	}
	return console.Right(fmt.Sprintf("%.0f ms", ms))
}

// inFlight returns the number of calls in flight, with the number of queued ones behind a plus
// sign.
func inFlight(s *control.Server) console.Right {
	if s.Queued > 0 {
		return console.Right(fmt.Sprintf("%d+%d", s.InFlight, s.Queued))
	}
	return console.Right(fmt.Sprint(s.InFlight))
}

// toolCount returns how many tools a server has; "-" if it has not listed them, such as one that no agent has used yet.
func toolCount(s *control.Server) console.Right {
	if s.Tools == nil {
		return "-"
	}
	return console.Right(fmt.Sprint(*s.Tools))
}

// printTroubles prints what is wrong with servers and what fixes it.
func printTroubles(w io.Writer, servers []control.Server) {
	for i := range servers {
		for _, t := range trouble.OfServer(&servers[i]) {
			if !t.Login {
				PrintTrouble(w, t)
			}
		}
	}
}

// PrintTrouble prints what is wrong, why, and what fixes it.
func PrintTrouble(w io.Writer, t trouble.Trouble) {
	style := console.Odd
	if t.Bad {
		style = console.Bad
	}
	if t.Server == "" {
		console.Line(w, 2, "%v", style.Paint(t.What))
	} else {
		console.Line(w, 2, "%v: %s", style.Paint(t.Server), t.What)
	}
	if t.Why != "" {
		console.Line(w, 7, "  why: %s", t.Why)
	}
	if t.Fix != "" {
		console.Line(w, 7, "  fix: %s", t.Fix)
	}
}
