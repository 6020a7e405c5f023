package doctor

import (
	"slices"
	"strings"

	"holdline/cmd/holdline/importer"
)

// checkClients looks for servers that agents start for themselves, and for clients that
// do not know holdline. Neither is an error. An entry that starts a holdline which does not
// exist is one. There is one finding for each client's file, by the first rule that applies.
//
// No server is started for that. So a server that setup cannot move may be among those that
// it is to be asked for; it is not if its program is missing, or if it is reached by its
// address: such a server may want a login, and no agent runs a copy of it.
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
		own, far, lost := ownServers(c, o.path)
		f := Finding{Check: "client " + c.Title, State: OK, What: c.Path + ": all that can be shared is"}
		if len(far) > 0 {
			f.What += "; by their address, without a copy for each agent: " + strings.Join(far, ", ")
		}
		fix := "holdline setup --from " + c.Client
		if c.NeedsProject {
			fix += " --project"
		}
		repair := fix + " removes the entries, and asks first"
		connect := fix + " connects it, and asks first"
		fix += " moves those that start, and asks first"
		switch gone := c.Gone(); {
		case len(gone) > 0:
			f = f.with(Problem, c.Path+" starts "+strings.Join(gone, ", ")+", which is not there",
				"its agents find no server at all", "install holdline there; or holdline import --undo, "+
					"then holdline setup by the holdline that is to stay")
		case len(c.Dangling()) > 0:
			f = f.with(Problem, c.Path+" starts servers that Holdline does not have: "+strings.Join(c.Dangling(), ", "),
				"its agents find no tools there", repair)
		case c.Broken:
			f = f.with(Note, c.Path+": "+c.Why,
				"what its agents start is not known, and they may not find it either", "correct the file")
		case (c.Why != "" || c.Project != "") && !c.Connected() && len(own) == 0:
			continue
		case len(own) > 0:
			f = f.with(Note, "servers of its own: "+strings.Join(own, ", ")+", in "+c.Path,
				"each of its agents runs a copy of them, which ends with the agent",
				fix+"; correct the entry of one that does not start in that file, or remove it")
		case !c.Connected():
			f = f.with(Note, c.Path+" has no entry that starts holdline",
				"its agents cannot consult, and share no server", connect)
		case len(lost) > 0:
			f = f.with(Note, c.Path+" has servers whose program is missing: "+strings.Join(lost, ", "),
				"they start for no agent, so Holdline cannot host them either",
				"remove their entries; or install their programs, then: holdline setup --from "+c.Client)
		}
		found = append(found, f)
	}
	return found
}

// ownServers returns the names of the servers in a client's file that an import without a trial
// would move: those of which agents run copies, those by their address, and those whose program
// is neither there nor on path.
func ownServers(c *importer.File, path string) (own, far, lost []string) {
	for _, s := range c.Servers {
		list := &own
		switch {
		case s.Verdict != importer.Moves:
			continue
		case s.ByAddress():
			list = &far
		case !s.HasProgram(path):
			list = &lost
		}
		if !slices.Contains(*list, s.Name) { // a project may have one of its own
			*list = append(*list, s.Name)
		}
	}
	return own, far, lost
}
