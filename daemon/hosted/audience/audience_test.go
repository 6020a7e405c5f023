package audience_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"testing"

	"holdline/daemon/hosted/audience"
	"holdline/daemon/hosted/subscription"
	"holdline/daemon/tool"
)

// A client is that of a session. It collects the holders whose subscriptions it is notified of.
type client struct {
	tool.Client

	level   string
	updated []string
}

func (c *client) Caller() tool.Caller                      { return tool.Caller{} }
func (c *client) Level() string                            { return c.level }
func (c *client) Updated(holder string, _ json.RawMessage) { c.updated = append(c.updated, holder) }

// took returns the holders since the last call, in order.
func (c *client) took() []string {
	all := c.updated
	c.updated = nil
	slices.Sort(all)
	return all
}

// all are the sessions that use a process.
type all map[string]bool

func (a all) Uses(session string, _ tool.Client) bool { return a[session] }

// counting counts how often it is asked.
type counting struct{ n *int }

func (c counting) Uses(string, tool.Client) bool { *c.n++; return true }

// TestLevelOfMany checks that the level of many sessions is found without a look at each that wants
// no messages: it is looked for again whenever a session comes.
func TestLevelOfMany(t *testing.T) {
	table := subscription.New(nil)
	clients, asked := map[string]tool.Client{}, 0
	for i := range 1000 {
		clients[strconv.Itoa(i)] = &client{}
	}
	clients["one"] = &client{level: "info"}
	a := audience.New("s", counting{&asked}, clients, &table)
	if got := a.Level(); got != "info" || asked != 1 {
		t.Errorf("level %q, and %d sessions were looked at, want info and 1", got, asked)
	}
}

// TestAudience checks that only sessions that use the process are asked what they want, and
// only they are notified: once for each holder, of a resource and of what is below it.
func TestAudience(t *testing.T) {
	table := subscription.New(nil)
	in, out := &client{level: "warning"}, &client{level: "debug"}
	clients := map[string]tool.Client{"in": in, "out": out, "other": &client{}}
	a := audience.New("s", all{"in": true, "other": true}, clients, &table)
	if got := slices.Sorted(maps.Keys(maps.Collect(a.All()))); !slices.Equal(got, []string{"in", "other"}) {
		t.Errorf("sessions %v use the process", got)
	}
	if got := a.Level(); got != "warning" {
		t.Errorf("level %q, want that of the session that uses the process", got)
	}
	for _, x := range []struct{ session, holder, uri, server string }{
		{"in", "", "file:///a", "s"},
		{"in", "", "file:///a/b", "s"},
		{"in", "1", "file:///a", "s"},
		{"in", "2", "file:///ab", "s"},
		{"in", "3", "file:///a/b", "other"},
		{"out", "", "file:///a/b", "s"},
	} {
		if _, _, err := table.Add(x.session, x.holder, x.uri, x.server, nil); err != nil {
			t.Fatal(err)
		}
	}
	uris := slices.Sorted(maps.Keys(a.URIs()))
	if !slices.Equal(uris, []string{"file:///a", "file:///a/b", "file:///ab"}) {
		t.Errorf("resources %v are wanted", uris)
	}
	if a.Updated("file:///a/b", nil); !slices.Equal(in.took(), []string{"", "1"}) || out.took() != nil {
		t.Error("not each holder is notified once of a change below its resource")
	}
	if a.Agreed("file:///a"); in.took() != nil {
		t.Error("a subscription that was not in force before is notified")
	}
	if a.Agreed("file:///a"); !slices.Equal(in.took(), []string{"", "1"}) {
		t.Error("what may have changed while no process watched is not notified")
	}
}
