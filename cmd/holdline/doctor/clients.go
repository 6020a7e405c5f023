package doctor

import "strings"

// Client is one configuration file of an MCP client.
type Client struct {
	Name      string // as `holdline import --from` takes it
	Title     string
	Path      string
	Connected bool     // an entry starts holdline
	Own       []string // servers of its own that holdline could host
	Project   string   // root of the project that the file is for; "" for the user's own
	Asked     bool     // it is edited only if import is asked for it by --project
	Why       string   // it cannot be read, or is not to be edited
	Broken    bool     // it cannot be read
	Gone      []string // programs that its entries start holdline by, and that are not there
}

// clients looks for servers that agents start for themselves, and for clients
// that know nothing of holdline. Neither is an error.
func clients(o Options) []Finding {
	if o.Clients == nil {
		return nil
	}
	list, err := o.Clients()
	if err != nil {
		return nil // the configuration's own finding says it
	}
	var found []Finding
	for _, c := range list {
		f := Finding{Check: "client " + c.Title, State: OK, What: c.Path + ": all that can be shared is"}
		mend := "holdline import --from " + c.Name
		if c.Asked {
			mend += " --project"
		}
		mend += " shows the change, with --write it is made"
		switch {
		case len(c.Gone) > 0:
			f.State, f.What = Problem, c.Path+" starts "+strings.Join(c.Gone, ", ")+", which is not there"
			f.Why, f.Mend = "its agents find no server at all", "install holdline there; or holdline import --undo, then holdline import --write by the holdline that is to stay"
		case c.Broken:
			f.State, f.What = Note, c.Path+": "+c.Why
			f.Why, f.Mend = "what its agents start is not known, and they may not find it either", "correct the file"
		case (c.Why != "" || c.Project != "") && !c.Connected && len(c.Own) == 0:
			continue
		case len(c.Own) > 0:
			f.State, f.What = Note, c.Path+" starts servers of its own: "+strings.Join(c.Own, ", ")
			f.Why, f.Mend = "each of its agents runs a copy of them, and loses it with its life", mend
		case !c.Connected:
			f.State, f.What = Note, c.Path+" has no entry that starts holdline"
			f.Why, f.Mend = "its agents cannot consult, and share no server", mend
		}
		found = append(found, f)
	}
	return found
}
