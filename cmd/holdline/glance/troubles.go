package glance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/cmd/holdline/console"
	"holdline/daemon/plural"
	"holdline/daemon/telling"
	"holdline/protocol/control"
)

// Trouble is something that a user should know. Its texts are for people, and may have words of
// servers in them.
type Trouble struct {
	Server string // that it is about; "" if it is about the daemon
	What   string // a sentence without its full stop; of a server without its name
	Why    string // may be long; "" if there is no more to say
	Fix    string // a command, or another sentence; "" if nothing is to be done
	Bad    bool   // something does not work
}

// Troubles returns what is not as it should be, the daemon's first.
func Troubles(s *control.StatusAnswer) []Trouble {
	var all []Trouble
	if d := s.Daemon; d.ConfigRefused != "" {
		inForce := "Holdline goes on with the configuration from before"
		if d.ConfigCopy != "" {
			inForce = "Holdline goes on with the copy of its last good state, " + d.ConfigCopy
		}
		all = append(all, Trouble{
			What: "The configuration file is refused; " + inForce, Why: d.ConfigRefused, Bad: true,
			Fix: "correct " + d.Config + "; Holdline reads it by itself",
		})
	}
	if d := s.Daemon; d.Refusal != "" {
		all = append(all, Trouble{
			What: "The program that was installed last is not used", Why: d.Refusal, Bad: true,
			Fix: "install it again, then: holdline upgrade",
		})
	}
	if d := s.Daemon; d.Degraded != "" {
		what := "Part of Holdline does not work"
		all = append(all, Trouble{What: what, Why: d.Degraded, Bad: true, Fix: "holdline logs"})
	}
	for i := range s.Servers {
		all = append(all, OfServer(&s.Servers[i])...)
	}
	if n := s.Consults.RecentFailures; n > 0 {
		all = append(all, Trouble{
			What: fmt.Sprintf("%s failed within the last %d minutes",
				plural.Count(n, "consult"), int(control.Recent.Minutes())),
			Why: s.Consults.LastFailure, Fix: "holdline doctor",
		})
	}
	return all
}

// OfServer returns what is wrong with a server: what it is now, then what has changed in its
// tools.
func OfServer(s *control.Server) []Trouble {
	var all []Trouble
	add := func(bad bool, what, why, fix string) {
		all = append(all, Trouble{Server: s.Name, What: what, Why: why, Fix: fix, Bad: bad})
	}
	why := lastFault(s)
	switch {
	case s.State == "stopped":
		add(false, "was stopped by a command", why, "holdline servers start "+s.Name)
	case s.Ejected:
		add(true, "failed too often and is not started any more", why, "holdline servers reload "+s.Name)
	case s.State == "failed", s.Circuit != "closed" && s.Circuit != "":
		add(true, "does not work; the next call tries it again", why, "holdline servers restart "+s.Name)
	case s.Suspect:
		add(true, "has left a call without an answer; it is restarted if it does not answer a ping", "", "")
	case s.State == "recovering":
		add(true, "is being restarted", why, "")
	case why != "":
		add(false, "had a fault and works again", why, "")
	}
	if s.Changed > 0 {
		what := fmt.Sprintf("has %s, other than when first seen", plural.Count(s.Changed, "changed tool"))
		if s.Blocked {
			what += "; blocked until you accept"
		}
		add(s.Blocked, what, "", fmt.Sprintf("holdline servers tools %s --changes", s.Name))
	}
	if s.NoiseLines > 0 {
		add(false, fmt.Sprintf("wrote %s to stdout besides messages of MCP; that was skipped",
			plural.Count(int(s.NoiseLines), "line")), "", "")
	}
	for _, note := range s.Notes {
		add(false, note, "", "")
	}
	return all
}

// InTrouble reports whether something of a server does not work.
func InTrouble(s *control.Server) bool {
	return slices.ContainsFunc(OfServer(s), func(t Trouble) bool { return t.Bad })
}

// lastFault returns why a server failed last and when; "" if it has not. What the server wrote
// last is often the reason.
func lastFault(s *control.Server) string {
	f := s.LastFault
	if f == nil {
		return ""
	}
	words := strings.TrimPrefix(strings.TrimPrefix(f.Fault.Detail, "server "), s.Name+" ")
	if f.Cause != nil {
		if last := telling.Line(f.Cause.StderrTail); !strings.Contains(words, last) {
			words += `, "` + last + `"`
		}
	}
	ago := ""
	if s.LastFaultMS > 0 {
		ago = " (" + console.Age(max(0, time.Since(time.UnixMilli(s.LastFaultMS))).Milliseconds()) + " ago)"
	}
	return words + ago
}

// Headline returns in a line whether all is well, and how many servers work.
func Headline(s *control.StatusAnswer) (text string, well bool) {
	count := map[string]int{}
	bad, faults := 0, s.Consults.RecentFailures
	for i := range s.Servers {
		one := &s.Servers[i]
		if InTrouble(one) {
			bad++
		}
		count[one.State]++
		if one.LastFault != nil && time.Since(time.UnixMilli(one.LastFaultMS)) < control.Recent {
			faults++
		}
	}
	var parts []string
	part := func(n int, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	switch up := count["ready"]; {
	case len(s.Servers) == 0:
		parts = append(parts, "No server is configured")
	case up > 0 || count["idle"] == 0:
		parts = append(parts, plural.Count(up, "server")+" up")
		part(count["idle"], "%d will start when needed")
	default:
		parts = append(parts, plural.Count(count["idle"], "server")+" will start when needed")
	}
	part(count["starting"], "%d starting")
	part(count["stopped"], "%d stopped")
	well = bad == 0 && s.Daemon.ConfigRefused == "" && s.Daemon.Degraded == "" && s.Daemon.Refusal == ""
	switch {
	case bad > 0:
		part(bad, "%d in trouble")
	case faults > 0:
		parts = append(parts, plural.Count(faults, "recent fault"))
	case len(s.Servers) == 0:
	default:
		parts = append(parts, "no recent faults")
	}
	word := "Ready. "
	if !well {
		word = "Needs attention. "
	}
	return word + strings.Join(parts, ", ") + ".", well
}

// Statusline returns the status for a prompt: "3 agents · 7/7 ok · 1 consult · $0.42". Servers
// that a user has stopped do not count. Consults and costs are left out if there are none.
func Statusline(s *control.StatusAnswer) string {
	all, ok := 0, 0
	for i := range s.Servers {
		one := &s.Servers[i]
		if one.State == "stopped" {
			continue
		}
		all++
		if !InTrouble(one) {
			ok++
		}
	}
	parts := []string{plural.Count(len(Agents(s.Sessions)), "agent"), fmt.Sprintf("%d/%d ok", ok, all)}
	if n := s.Consults.Running + s.Consults.Queued; n > 0 {
		parts = append(parts, plural.Count(n, "consult"))
	}
	cost := 0.0
	for _, spent := range s.Consults.Today {
		cost += spent.CostUSD
	}
	if cost >= 0.005 {
		parts = append(parts, fmt.Sprintf("$%.2f", cost))
	}
	return strings.Join(parts, " · ")
}
