package doctor

import (
	"path/filepath"
	"time"

	"holdline/protocol/control"
)

// checkConsultFiles returns a finding for each file of a consult that could not be written,
// for a damaged file of costs, and for each directory of a consult that the daemon cannot read. Only an answer that
// is nowhere but in the daemon's memory, and lost costs, are problems.
func checkConsultFiles(c *control.Consults) []Finding {
	var found []Finding
	for _, u := range c.Unwritten {
		f := Finding{Check: "file of a consult"}
		what := u.Path + " could not be written whole at " + time.UnixMilli(u.UnixMS).Format(time.TimeOnly)
		if u.InMemory {
			f = f.with(Problem, what, "the answer is only in the daemon's memory, and is lost if the daemon is killed",
				"make room on the disk of "+filepath.Dir(u.Path)+": the daemon then writes the answer by itself")
		} else {
			f = f.with(Note, what, "the consult has its answer all the same, but what it did may not be shown in full",
				"make room on the disk of "+filepath.Dir(u.Path)+", if there is none; "+
					"the file itself is not written again")
		}
		found = append(found, f)
	}
	if c.CostsLost != "" {
		found = append(found, Finding{Check: "costs of consults"}.with(Problem, c.CostsLost+" was damaged",
			"what consults have cost today is not known, so budgets count as used up until midnight",
			"to begin anew now, remove that file"))
	}
	for _, why := range c.Unread {
		found = append(found, Finding{Check: "directory of a consult"}.with(Note, why,
			"the daemon leaves that consult alone and does not serve it; all others are served",
			"remove the directory, if the consult is not needed any more"))
	}
	return found
}
