package doctor

import (
	"fmt"
	"slices"
	"strings"

	"holdline/protocol/control"
)

// servers says how the hosted servers of a daemon are: one finding for all that
// are well, and one for each thing that is wrong with another. That the program of
// a server is missing has been said already.
func servers(all []control.Server, missing []string) []Finding {
	var found []Finding
	var well []string
	for i := range all {
		s := &all[i]
		gone := slices.Contains(missing, s.Name)
		wrong := server(s, gone)
		if len(wrong) == 0 && !gone {
			well = append(well, s.Name)
		}
		found = append(found, wrong...)
	}
	if len(well) > 0 {
		found = append([]Finding{{Check: "servers", State: OK, What: strings.Join(well, ", ")}}, found...)
	}
	return found
}

// server is what is wrong with one; that it cannot be started is known of one that
// is gone.
func server(s *control.Server, gone bool) []Finding {
	var found []Finding
	say := func(state State, what, why, mend string) {
		found = append(found, Finding{Check: "server " + s.Name, State: state, What: what, Why: why, Mend: mend})
	}
	fault := "it failed"
	if s.LastFault != nil {
		fault = s.LastFault.Fault.Detail
	}
	switch {
	case s.State == "stopped":
		say(Note, "it was stopped", "agents cannot use its tools", "holdline servers start "+s.Name)
	case gone:
	case s.Ejected:
		say(Problem, fault, "it ended or failed to start too often, and is not started any more", "mend it, then: holdline servers reload "+s.Name)
	case s.State == "failed":
		say(Problem, fault, "it is tried again by the next call of a tool", "mend it, then: holdline servers restart "+s.Name)
	case s.Circuit != "closed":
		say(Problem, fmt.Sprintf("%d calls in a row have failed: %s", s.Failures, fault), "calls fail at once until one is let through to try", "holdline servers restart "+s.Name)
	}
	for _, note := range s.Notes {
		say(Note, note, "agents do not get all that it offers", "what it takes is said beside it; its settings are in: holdline servers get "+s.Name)
	}
	if s.Changed > 0 {
		what := fmt.Sprintf("%d of its tools are not what they were when they were first seen", s.Changed)
		if s.Blocked {
			what += "; agents cannot use them until they are accepted"
		}
		say(Note, what, "a server can make another thing of a tool that is trusted",
			"holdline servers tools "+s.Name+" --changes; if that is right, with --accept")
	}
	if s.NoiseLines > 0 {
		say(Note, fmt.Sprintf("it wrote %d lines to stdout that are no messages of MCP", s.NoiseLines), "they are skipped; its log belongs on stderr", "look for an option of its own that says where it logs")
	}
	return found
}
