package doctor

import (
	"fmt"
	"strings"

	"holdline/daemon/sandbox"
	"holdline/protocol/control"
)

// levels says which mechanisms the machine has, and what each level of a
// consult is held by. A daemon that is older than levels says nothing of them.
func levels(c control.CheckAnswer) []Finding {
	found := []Finding{landlock()}
	for _, l := range c.Levels {
		f := Finding{Check: "consult level " + l.Name, State: OK, What: "held by " + l.EnforcedBy}
		if len(l.Notes) > 0 {
			f.What += " (" + strings.Join(l.Notes, "; ") + ")"
		}
		if l.Lacks != "" {
			what, mend, _ := strings.Cut(l.Lacks, "; ")
			f.State, f.What, f.Mend = Note, "refused: "+what, mend
			f.Why = "a level that cannot be enforced is never run weaker; other levels work"
		}
		found = append(found, f)
	}
	return found
}

func landlock() Finding {
	f := Finding{Check: "landlock", State: OK}
	version := sandbox.Landlock()
	f.What = fmt.Sprintf("ABI %d", version)
	switch gaps := sandbox.Gaps(version); {
	case version == 0:
		f.State, f.What = Note, "this machine has none"
		f.Why = "what keeps a consult from writing is then that it is offered no tool that could, and not the kernel, too"
		f.Mend = "Linux 5.13 or newer, with landlock in the list of security modules (lsm= on the kernel's command line)"
	case gaps != "":
		f.State, f.Why, f.Mend = Note, gaps, "Linux 6.2 or newer"
	}
	return f
}
