package trouble

import (
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// ready returns the status of a server that works.
func ready(name string) control.Server {
	return control.Server{Name: name, State: "ready", Circuit: "closed"}
}

// TestHeadline checks the first line and the advice for each thing that can be wrong, and that
// only what does not work counts as trouble.
func TestHeadline(t *testing.T) {
	died := fault.New(fault.ProcessFailure, fault.Server, "x", "server one ended: exit code 7")
	for what, c := range map[string]struct {
		change      func(s *control.StatusAnswer, one *control.Server)
		line        string
		says, fixes string // of the first trouble
	}{
		"all well": {
			func(*control.StatusAnswer, *control.Server) {}, "Ready. 3 servers up, no recent faults.", "", "",
		},
		"one waits for its first call": {
			func(_ *control.StatusAnswer, one *control.Server) { one.State = "idle" },
			"Ready. 2 servers up, 1 will start when needed, no recent faults.", "", "",
		},
		"one works for one project, and has failed in another": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.Active, one.Processes = "failed", died, true, 1
			},
			"Needs attention. 2 servers up, 1 in trouble.", "does not work; the next call tries it again",
			"holdline servers restart one",
		},
		"the only one has failed": {
			func(s *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault = "failed", died
				s.Servers = s.Servers[:1]
			},
			"Needs attention. No server works, 1 in trouble.", "does not work; the next call tries it again",
			"holdline servers restart one",
		},
		"none is configured": {
			func(s *control.StatusAnswer, _ *control.Server) { s.Servers = nil },
			"Ready. No server is configured.", "", "",
		},
		"the host of one is down": {
			func(_ *control.StatusAnswer, one *control.Server) { one.Host, one.Unreachable = "box", "no route" },
			"Needs attention. 2 servers up, 1 in trouble.",
			"runs on box, which cannot be reached; calls in flight wait, others fail",
			"holdline hosts doctor box",
		},
		"one cannot be started, since its host is down": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.Host, one.State, one.LastFault = "box", "failed", fault.New(fault.TransportFailure, fault.Host, "x", "no route")
				one.LastFault.Cause = &fault.Cause{Reason: fault.Unreachable}
			},
			"Needs attention. 2 servers up, 1 in trouble.", "does not work; the next call tries it again",
			"holdline hosts doctor box",
		},
		"a remote one is down": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.Unreachable, one.Circuit = "unreachable", "one cannot be reached: no route", "open"
				one.UnreachableMS = time.Now().Add(-5 * time.Minute).UnixMilli()
			},
			"Needs attention. 2 servers up, 1 in trouble.",
			"has been unreachable for 5m; it is tried again by itself, and by the next call",
			"if it should be up: holdline servers test one",
		},
		"one is silent during a call": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.Active, one.State, one.SilentMS = true, "not answering", time.Now().Add(-5*time.Minute).UnixMilli()
			},
			"Ready. 2 servers up, 1 not answering, no recent faults.",
			"is not answering: a ping is without an answer for 5m; it may be busy with a call, or hang",
			"if it stays so: holdline servers restart one",
		},
		"one has died and is back": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.LastFault, one.LastFaultMS = died, time.Now().UnixMilli()
			},
			"Ready. 3 servers up, no recent faults.", "", "",
		},
		"one has died, has run since, and waits for its next call": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.LastFaultMS = "idle", died, time.Now().UnixMilli()
				one.FaultOver = true
			},
			"Ready. 2 servers up, 1 will start when needed, no recent faults.", "", "",
		},
		"one has died and has not run since": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.LastFaultMS = "idle", died, time.Now().UnixMilli()
			},
			"Ready. 2 servers up, 1 will start when needed, 1 recent fault.",
			"had a fault; the next call starts it again", "",
		},
		"one has died long ago and has not run since": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault = "idle", died
				one.LastFaultMS = time.Now().Add(-control.Recent).UnixMilli()
			},
			"Ready. 2 servers up, 1 will start when needed, no recent faults.", "", "",
		},
		"requests fail": {
			func(s *control.StatusAnswer, _ *control.Server) { s.Daemon.NotReady = "the disk is full" },
			"Not ready. 3 servers up.", "Holdline is not ready", "holdline logs",
		},
		"consults have failed": {
			func(s *control.StatusAnswer, _ *control.Server) {
				s.Consults.RecentFailures, s.Consults.LastFailure = 2, "not logged in"
			},
			"Ready. 3 servers up, 2 recent faults.", "2 consults failed within the last 15 minutes", "holdline doctor",
		},
		"a consult has failed, and none is configured": {
			func(s *control.StatusAnswer, _ *control.Server) { s.Servers, s.Consults.RecentFailures = nil, 1 },
			"Ready. No server is configured, 1 recent fault.", "1 consult failed within the last 15 minutes",
			"holdline doctor",
		},
		"one was stopped": {
			func(_ *control.StatusAnswer, one *control.Server) { one.State = "stopped" },
			"Ready. 2 servers up, 1 stopped, no recent faults.", "was stopped by a command", "holdline servers start one",
		},
		"one is ejected": {
			func(_ *control.StatusAnswer, one *control.Server) { one.State, one.Ejected = "ejected", true },
			"Needs attention. 2 servers up, 1 in trouble.", "failed too often and is not started any more",
			"holdline servers reload one",
		},
		"one is ejected and stopped": {
			func(_ *control.StatusAnswer, one *control.Server) { one.State, one.Ejected = "stopped", true },
			"Ready. 2 servers up, 1 stopped, no recent faults.", "was stopped by a command", "holdline servers start one",
		},
		"one fails": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.Circuit = "failed", died, "open"
			},
			"Needs attention. 2 servers up, 1 in trouble.", "does not work; the next call tries it again",
			"holdline servers restart one",
		},
		"one cannot be started": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault = "failed", fault.New(fault.SpawnFailure, fault.Server, "", "there is no such program")
			},
			"Needs attention. 2 servers up, 1 in trouble.", "does not work; the next call tries it again",
			"holdline servers test one",
		},
		"one needs a login": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.Login = control.NeedsLogin, died, &control.Login{State: "needs_login", Why: "it ran out"}
			},
			"Needs attention. 2 servers up, 1 in trouble.", "needs a login (it ran out)", "holdline servers login one",
		},
		"the login of one is locked": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.Login = control.NeedsLogin, died, &control.Login{State: "locked", Why: "is sealed"}
			},
			"Needs attention. 2 servers up, 1 in trouble.", "its login is sealed", "holdline doctor",
		},
		"one refuses a login": {
			func(_ *control.StatusAnswer, one *control.Server) {
				one.State, one.LastFault, one.Login = control.NeedsLogin, died, &control.Login{State: "logged_in"}
			},
			"Needs attention. 2 servers up, 1 in trouble.", "needs a login", "holdline servers login one",
		},
		"changed tools are blocked": {
			func(_ *control.StatusAnswer, one *control.Server) { one.Changed, one.Blocked = 2, true },
			"Needs attention. 2 servers up, 1 in trouble.",
			"has 2 changed tools, other than when first seen; blocked until you accept",
			"holdline servers tools one --changes",
		},
		"a mistake in the configuration": {
			func(s *control.StatusAnswer, _ *control.Server) {
				s.Daemon.ConfigRefused, s.Daemon.Config = "no such key", "/c.json"
			},
			"Needs attention. 3 servers up, no recent faults.",
			"The configuration file is refused; Holdline goes on with the configuration from before",
			"correct /c.json; Holdline reads it by itself",
		},
	} {
		s := &control.StatusAnswer{Servers: []control.Server{ready("one"), ready("two"), ready("own")}}
		c.change(s, &s.Servers[0])
		line, well := Headline(s)
		if line != c.line || well != strings.HasPrefix(line, "Ready") {
			t.Errorf("%s: %q, %v, want %q", what, line, well, c.line)
		}
		var first Trouble
		if all := All(s); len(all) > 0 {
			first = all[0]
		}
		if first.What != c.says || first.Fix != c.fixes {
			t.Errorf("%s: %+v, want %q, %q", what, first, c.says, c.fixes)
		}
		if first.Why != "" && strings.Contains(first.Why, "server one") {
			t.Errorf("%s: the reason repeats the name: %q", what, first.Why)
		}
	}
}
