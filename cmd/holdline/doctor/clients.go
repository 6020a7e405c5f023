package doctor

import (
	"slices"
	"strings"

	"holdline/cmd/holdline/importer"
)

// checkClients looks for servers that agents start for themselves, and for clients that
// do not know holdline. Neither is an error. An entry that starts a holdline which does not
// exist is one. There is one finding for each client's file, by the first rule that applies.
func checkClients(o Options) []Finding {
	if o.Clients == nil {
		return nil
	}
	plan, err := o.Clients()
	if err != nil {
		return nil // the check of the configuration reports it
	}
	var found []Finding
	for _, c := range plan.Files {
		var own []string // servers that holdline could host
		for _, s := range c.Servers {
			if s.Verdict == importer.Moves && !slices.Contains(own, s.Name) { // a project may have one of its own
				own = append(own, s.Name)
			}
		}
		f := Finding{Check: "client " + c.Title, State: OK, What: c.Path + ": all that can be shared is"}
		fix := "holdline setup --from " + c.Client
		if c.NeedsProject {
			fix += " --project"
		}
		fix += " shows the change, and asks"
		switch gone := c.Gone(); {
		case len(gone) > 0:
			f = f.with(Problem, c.Path+" starts "+strings.Join(gone, ", ")+", which is not there",
				"its agents find no server at all", "install holdline there; or holdline import --undo, "+
					"then holdline setup by the holdline that is to stay")
		case c.Broken:
			f = f.with(Note, c.Path+": "+c.Why,
				"what its agents start is not known, and they may not find it either", "correct the file")
		case (c.Why != "" || c.Project != "") && !c.Connected() && len(own) == 0:
			continue
		case len(own) > 0:
			f = f.with(Note, c.Path+" starts servers of its own: "+strings.Join(own, ", "),
				"each of its agents runs a copy of them, which ends with the agent", fix)
		case !c.Connected():
			f = f.with(Note, c.Path+" has no entry that starts holdline",
				"its agents cannot consult, and share no server", fix)
		}
		found = append(found, f)
	}
	return found
}
