package doctor

import "strings"

// Client is one configuration file of an MCP client.
type Client struct {
	Name         string // as `holdline import --from` takes it
	Title        string
	Path         string
	Connected    bool     // an entry starts holdline
	Own          []string // servers of its own that holdline could host
	Project      string   // root of the project that the file is for; "" for the user's own
	NeedsProject bool     // import edits it only with --project
	Why          string   // why it cannot be read, or is not to be edited
	Broken       bool     // it cannot be read
	Gone         []string // programs by which its entries start holdline, and that do not exist
}

// checkClients looks for servers that agents start for themselves, and for clients that
// do not know holdline. Neither is an error.
func checkClients(o Options) []Finding {
	if o.Clients == nil {
		return nil
	}
	list, err := o.Clients()
	if err != nil {
		return nil // the finding about the configuration says it
	}
	var found []Finding
	for _, c := range list {
		f := Finding{Check: "client " + c.Title, State: OK, What: c.Path + ": all that can be shared is"}
		fix := "holdline import --from " + c.Name
		if c.NeedsProject {
			fix += " --project"
		}
		fix += " shows the change, with --write it is made"
		switch {
		case len(c.Gone) > 0:
			f = f.with(Problem, c.Path+" starts "+strings.Join(c.Gone, ", ")+", which is not there",
				"its agents find no server at all", "install holdline there; or holdline import --undo, "+
					"then holdline import --write by the holdline that is to stay")
		case c.Broken:
			f = f.with(Note, c.Path+": "+c.Why,
				"what its agents start is not known, and they may not find it either", "correct the file")
		case (c.Why != "" || c.Project != "") && !c.Connected && len(c.Own) == 0:
			continue
		case len(c.Own) > 0:
			f = f.with(Note, c.Path+" starts servers of its own: "+strings.Join(c.Own, ", "),
				"each of its agents runs a copy of them, which ends with the agent", fix)
		case !c.Connected:
			f = f.with(Note, c.Path+" has no entry that starts holdline",
				"its agents cannot consult, and share no server", fix)
		}
		found = append(found, f)
	}
	return found
}
