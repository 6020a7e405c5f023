package importer

import (
	"context"
	"slices"
	"time"

	"holdline/cmd/holdline/clients"
)

// Connect adds an entry for a server of holdline's file to each client that has entries for single servers, as
// setup writes them, and none for this one. It returns the titles of the clients that have got one. The edits are on
// record as those of an import are, so that [Undo] reverts them; now becomes the name of the record.
//
// A client with an entry for all servers needs none. One with another server of that name is in [Done.Left], and
// so is a file that cannot be edited.
func Connect(ctx context.Context, o Options, server string, now time.Time) (Done, []string, error) {
	p := &Plan{o: &o, Config: o.Config, own: &File{Path: o.Config, client: &clients.Holdline}}
	var left []Left
	for _, s := range clients.Files(o.Places, nil) {
		if s.Missing || s.Twin != "" || s.Project != "" {
			continue
		}
		f := &File{Client: s.Client.Name, Title: s.Client.Title, Path: s.Path, client: s.Client}
		doc := f.readDocument()
		if doc == nil {
			continue // doctor says what is wrong with it
		}
		connected, taken := false, false
		for _, e := range doc.Entries() {
			if e.Project != "" {
				continue
			}
			starts, ok := e.StartsHoldline()
			connected = connected || ok
			taken = taken || e.Name() == server
			if ok && (starts == "" || starts == server) {
				connected = false
				break
			}
		}
		switch {
		case !connected:
			continue
		case taken:
			left = append(left, Left{Path: f.Path, Key: server, Why: "the client has a server of that name of its own"})
			continue
		}
		fields := p.withEnvironment(f, f.client.OwnFields(p.command(f), "--server", server))
		f.steps = []step{{path: append(slices.Clone(doc.Home()), server), fields: fields}}
		if err := f.edit(doc); err != nil {
			left = append(left, Left{Path: f.Path, Why: err.Error()})
			continue
		}
		p.Files = append(p.Files, f)
	}
	d, err := p.Write(ctx, now)
	d.Left = append(left, d.Left...)
	var titles []string
	for _, f := range p.Files {
		if slices.Contains(d.Files, f.Path) && !slices.Contains(titles, f.Title) {
			titles = append(titles, f.Title)
		}
	}
	return d, titles, err
}
