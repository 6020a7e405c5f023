package doctor

import (
	"fmt"
	"strings"

	"holdline/daemon/sandbox"
	"holdline/protocol/control"
)

// checkLevels says what enforces each level of a consult.
func checkLevels(c control.CheckAnswer) []Finding {
	found := []Finding{checkLandlock()}
	for _, l := range c.Levels {
		f := Finding{Check: "consult level " + l.Name, State: OK, What: "held by " + l.EnforcedBy}
		if len(l.Notes) > 0 {
			f.What += " (" + strings.Join(l.Notes, "; ") + ")"
		}
		if l.Lacks != "" {
			what, fix, _ := strings.Cut(l.Lacks, "; ")
			f = f.with(Note, "refused: "+what, "a level that cannot be enforced is never run weaker; other levels work", fix)
		}
		found = append(found, f)
	}
	return found
}

// checkLandlock says which version of Landlock the kernel has, and what that one lacks.
func checkLandlock() Finding {
	version := sandbox.Landlock()
	f := Finding{Check: "landlock", State: OK, What: fmt.Sprintf("ABI %d", version)}
	switch gaps := sandbox.Gaps(version); {
	case version == 0:
		return f.with(Note, "this machine has none",
			"only the lack of a tool that writes keeps a consult from writing, and not the kernel, too",
			"Linux 5.13 or newer, with landlock in the list of security modules (lsm= on the kernel's command line)")
	case gaps != "":
		return f.with(Note, f.What, gaps, "Linux 6.2 or newer")
	}
	return f
}
