// Package trouble says which hosted servers do not work, and what else is not as it should be. It
// is the one definition of that, with one set of words: `holdline status` and the other commands
// use it, and so does the tool health_snapshot.
package trouble

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/plural"
	"holdline/daemon/telling"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Trouble is something that a user should know. Its texts are for people, and may have words of
// servers in them.
type Trouble struct {
	Server string // that it is about; "" if it is about the daemon
	What   string // a sentence without its full stop; of a server without its name
	Why    string // may be long; "" if there is no more to say
	Fix    string // a command, or another sentence; "" if nothing is to be done
	Bad    bool   // something does not work
	Login  bool   // of a server whose line of [control.Login.Words] says the same
}

// String returns t in one line.
func (t Trouble) String() string {
	text := t.What
	if t.Server != "" {
		text = t.Server + ": " + text
	}
	if t.Why != "" {
		text += "; why: " + t.Why
	}
	if t.Fix != "" {
		text += "; fix: " + t.Fix
	}
	return text
}

// All returns what is not as it should be, the daemon's first.
func All(s *control.StatusAnswer) []Trouble {
	var all []Trouble
	if d := s.Daemon; d.NotReady != "" {
		all = append(all, Trouble{What: "Holdline is not ready", Why: d.NotReady, Bad: true, Fix: "holdline logs"})
	}
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
	for _, one := range s.LeftOut {
		all = append(all, Trouble{
			Server: one.Name, What: "is left out", Why: one.Why, Bad: true, Fix: "holdline config check",
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
	for _, one := range s.Sockets {
		if one.Trouble != "" {
			all = append(all, Trouble{What: "No guest can connect to socket " + one.Name, Why: one.Trouble, Bad: true})
		}
	}
	for i := range s.Differs {
		what, fix := s.Differs[i].Words()
		all = append(all, Trouble{Server: s.Differs[i].Server, What: what, Bad: true, Fix: fix})
	}
	for i := range s.Servers {
		all = append(all, OfServer(&s.Servers[i])...)
	}
	if s.Consults.CostsLost != "" {
		all = append(all, Trouble{
			What: "What consults have cost today is lost, so budgets count as used up until midnight", Bad: true,
			Why: s.Consults.CostsLost + " was damaged", Fix: "to begin anew now, remove that file",
		})
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
	case s.State == control.NeedsLogin && s.Login != nil &&
		(s.Login.State == "needs_login" || s.Login.State == "locked"):
		what, fix := s.Login.Words(s.Name)
		add(true, what, "", fix)
		all[0].Login = true
	case s.State == control.NeedsLogin: // and its login does not say why
		add(true, "needs a login", why, "holdline servers login "+s.Name)
		all[0].Login = true
	case s.Ejected:
		add(true, "failed too often and is not started any more", why, "holdline servers reload "+s.Name)
	case s.State == "unreachable":
		add(true, "has been unreachable for "+plural.Age(since(s.UnreachableMS))+
			"; it is tried again by itself, and by the next call", strings.TrimPrefix(s.Unreachable, s.Name+" "),
			"if it should be up: holdline servers test "+s.Name)
	case s.Suspect:
		add(true, "has left a call without an answer; it is restarted if it does not answer a ping", "", "")
	case s.Unreachable != "":
		add(true, "runs on "+s.Host+", which cannot be reached; calls in flight wait, others fail",
			s.Unreachable, "holdline hosts doctor "+s.Host)
	case s.Host != "" && s.State != "ready" && s.LastFault.Reason() == fault.Unreachable:
		add(true, "does not work; the next call tries it again", why, "holdline hosts doctor "+s.Host)
	case s.State == "failed", s.Circuit != "closed" && s.Circuit != "":
		fix := "holdline servers restart " + s.Name
		if s.Host == "" && s.LastFault != nil && s.LastFault.Fault.Code == fault.SpawnFailure {
			fix = "holdline servers test " + s.Name // another start alone changes nothing
		}
		add(true, "does not work; the next call tries it again", why, fix)
	case s.State == "not answering":
		add(false, "is not answering: a ping is without an answer for "+plural.Age(since(s.SilentMS))+
			"; it may be busy with a call, or hang", "", "if it stays so: holdline servers restart "+s.Name)
	case s.State == "recovering":
		add(true, "is being restarted", why, "")
	case hadFault(s):
		add(false, "had a fault; the next call starts it again", why, "")
	}
	if s.Changed > 0 {
		what := fmt.Sprintf("has %s, other than when first seen", plural.Count(s.Changed, "changed tool"))
		if s.Blocked {
			what += "; blocked until you accept"
		}
		add(s.Blocked, what, "", fmt.Sprintf("holdline servers tools %s --changes", s.Name))
	}
	if s.PinsLost != "" {
		what := fmt.Sprintf("may have changed tools: the file %s, which says how they were when first seen, is damaged",
			s.PinsLost)
		if s.Blocked {
			what += "; blocked until you accept"
		}
		add(s.Blocked, what, "", fmt.Sprintf("look at: holdline servers tools %s; then: holdline servers tools %[1]s --accept", s.Name))
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

// since returns how many milliseconds ago a time was.
func since(unixMS int64) int64 { return max(0, time.Since(time.UnixMilli(unixMS))).Milliseconds() }

// In reports whether something of a server does not work.
func In(s *control.Server) bool {
	return slices.ContainsFunc(OfServer(s), func(t Trouble) bool { return t.Bad })
}

// hadFault reports whether a server had a fault lately and has not run since. A fault is over when
// the server runs again.
func hadFault(s *control.Server) bool {
	isRecent := time.Since(time.UnixMilli(s.LastFaultMS)) < control.Recent
	return s.LastFault != nil && !s.FaultOver && s.State == "idle" && isRecent
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
		ago = " (" + plural.Age(since(s.LastFaultMS)) + " ago)"
	}
	return words + ago
}

// Headline returns in a line whether all is well, and how many servers work.
func Headline(s *control.StatusAnswer) (text string, well bool) {
	count := map[string]int{}
	bad, faults := 0, s.Consults.RecentFailures
	for i := range s.Servers {
		one := &s.Servers[i]
		// Each server counts once, also one that serves one project and has failed in another.
		if In(one) {
			bad++
		} else {
			count[one.State]++
		}
		if hadFault(one) {
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
	case up == 0 && bad == len(s.Servers): // each of them is in trouble
		parts = append(parts, "No server works")
	case up > 0 || count["idle"] == 0:
		parts = append(parts, plural.Count(up, "server")+" up")
		part(count["idle"], "%d will start when needed")
	default:
		parts = append(parts, plural.Count(count["idle"], "server")+" will start when needed")
	}
	part(count["not answering"], "%d not answering")
	part(count["starting"], "%d starting")
	part(count["stopped"], "%d stopped")
	part(len(s.LeftOut), "%d left out")
	well = bad+len(s.LeftOut) == 0 && s.Daemon.ConfigRefused == "" && s.Daemon.Degraded == "" && s.Daemon.Refusal == ""
	switch {
	case bad > 0:
		part(bad, "%d in trouble")
	case faults > 0:
		parts = append(parts, plural.Count(faults, "recent fault"))
	case len(s.Servers) == 0, s.Daemon.NotReady != "":
	default:
		parts = append(parts, "no recent faults")
	}
	word := "Ready. "
	switch {
	case s.Daemon.NotReady != "":
		word, well = "Not ready. ", false
	case !well:
		word = "Needs attention. "
	}
	return word + strings.Join(parts, ", ") + ".", well
}
