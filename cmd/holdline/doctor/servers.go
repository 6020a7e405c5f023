package doctor

import (
	"fmt"
	"slices"
	"strings"

	"holdline/daemon/plural"
	"holdline/protocol/control"
)

// checkServers returns one finding for all hosted servers that are well, and one for each
// thing that is wrong with another. missing are the servers whose program does not exist, or
// whose host cannot be reached; another check has reported them.
func checkServers(all []control.Server, missing []string) []Finding {
	var found []Finding
	var well []string
	for i := range all {
		s := &all[i]
		isMissing := slices.Contains(missing, s.Name)
		wrong := checkServer(s, isMissing)
		if len(wrong) == 0 && !isMissing {
			well = append(well, s.Name)
		}
		found = append(found, wrong...)
	}
	if len(well) > 0 {
		found = append([]Finding{{Check: "servers", State: OK, What: strings.Join(well, ", ")}}, found...)
	}
	return found
}

// checkServer returns what is wrong with one server. If isMissing, its program or its host is
// missing, and failures to start are left out.
func checkServer(s *control.Server, isMissing bool) []Finding {
	var found []Finding
	add := func(state State, what, why, fix string) {
		found = append(found, Finding{Check: "server " + s.Name, State: state, What: what, Why: why, Fix: fix})
	}
	fault := "it failed"
	if s.LastFault != nil {
		fault = s.LastFault.Fault.Detail
	}
	// One of these at most: the first that applies explains the others.
	switch {
	case s.State == "stopped":
		add(Note, "it was stopped", "agents cannot use its tools", "holdline servers start "+s.Name)
	case s.State == control.NeedsLogin: // another check has reported it
	// What is missing is why it failed.
	case isMissing:
	case s.Ejected:
		add(Problem, fault, "it ended or failed to start too often, and is not started any more",
			"fix it, then: holdline servers reload "+s.Name)
	case s.State == "unreachable":
		add(Problem, s.Unreachable, "calls to it fail; it is tried again by itself, and by the next call of a tool",
			"if it should be up: holdline servers test "+s.Name)
	case s.State == "failed":
		add(Problem, fault, "it is tried again by the next call of a tool",
			"fix it, then: holdline servers restart "+s.Name)
	case s.Circuit != "closed":
		add(Problem, fmt.Sprintf("%d calls in a row have failed: %s", s.Failures, fault),
			"calls fail at once until one is let through to try", "holdline servers restart "+s.Name)
	}
	for _, note := range s.Notes {
		add(Note, note, "agents do not get all that it offers",
			"what it takes is said beside it; its settings are in: holdline servers get "+s.Name)
	}
	if s.Changed > 0 {
		what := fmt.Sprintf("%d of its tools are not what they were when they were first seen", s.Changed)
		if s.Blocked {
			what += "; agents cannot use them until they are accepted"
		}
		add(Note, what, "a server can make another thing of a tool that is trusted",
			"holdline servers tools "+s.Name+" --changes; if that is right, with --accept")
	}
	if s.NoiseLines > 0 {
		add(Note, fmt.Sprintf("it wrote %s to stdout besides messages of MCP", plural.Count(int(s.NoiseLines), "line")),
			"that is skipped; its log belongs on stderr", "look for an option of its own that says where it logs")
	}
	return found
}
