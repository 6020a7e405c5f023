package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// A client is that of a session. It collects the holders whose subscriptions it is notified of.
type client struct {
	tool.Client

	level   string
	updated []string
	away    bool              // notifications are dropped
	told    map[string]string // what its proxy keeps
}

func (c *client) Caller() tool.Caller       { return tool.Caller{} }
func (c *client) Level() string             { return c.level }
func (c *client) Told(server string) string { return c.told[server] }
func (c *client) Tell(server, what string)  { c.told = map[string]string{server: what} }

func (c *client) Updated(holder string, _ json.RawMessage) bool {
	if !c.away {
		c.updated = append(c.updated, holder)
	}
	return !c.away
}

// took returns the holders since the last call, in order.
func (c *client) took() []string {
	all := c.updated
	c.updated = nil
	slices.Sort(all)
	return all
}

// all are the sessions that use a process.
type all map[string]bool

func (a all) of() Instance { return users{uses: a.Uses} }

// users is an instance of which only its sessions matter.
type users struct {
	Instance

	uses func(session string, c tool.Client) bool
}

func (i users) Uses(session string, c tool.Client) bool { return i.uses(session, c) }

// watched returns a process with those sessions.
func watched(t *testing.T, inst Instance, clients map[string]tool.Client) *Process {
	t.Helper()
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	h.Clients = clients
	return h.NewProcess(inst, t.TempDir(), "s", process.Owner{})
}

func (a all) Uses(session string, _ tool.Client) bool { return a[session] }

// counting counts how often it is asked.
type counting struct{ n *int }

func (c counting) Uses(string, tool.Client) bool { *c.n++; return true }

// TestLevelOfMany checks that the level of many sessions is found without a look at each that wants
// no messages: it is looked for again whenever a session comes.
func TestLevelOfMany(t *testing.T) {
	clients, asked := map[string]tool.Client{}, 0
	for i := range 1000 {
		clients[strconv.Itoa(i)] = &client{}
	}
	clients["one"] = &client{level: "info"}
	a := watched(t, users{uses: counting{&asked}.Uses}, clients)
	if got := a.levelLocked(); got != "info" || asked != 1 {
		t.Errorf("level %q, and %d sessions were looked at, want info and 1", got, asked)
	}
}

// TestAudience checks that only sessions that use the process are asked what they want, and
// only they are notified: once for each holder, of a resource and of what is below it.
func TestAudience(t *testing.T) {
	in, out := &client{level: "warning"}, &client{level: "debug"}
	clients := map[string]tool.Client{"in": in, "out": out, "other": &client{}}
	a := watched(t, all{"in": true, "other": true}.of(), clients)
	if got := slices.Sorted(maps.Keys(maps.Collect(a.usersLocked()))); !slices.Equal(got, []string{"in", "other"}) {
		t.Errorf("sessions %v use the process", got)
	}
	if got := a.levelLocked(); got != "warning" {
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
		if _, _, err := a.hub.SubscribeLocked(x.session, x.holder, x.uri, x.server, nil); err != nil {
			t.Fatal(err)
		}
	}
	uris := slices.Sorted(maps.Keys(a.urisLocked()))
	if !slices.Equal(uris, []string{"file:///a", "file:///a/b", "file:///ab"}) {
		t.Errorf("resources %v are wanted", uris)
	}
	if a.updatedLocked("file:///a/b", nil); !slices.Equal(in.took(), []string{"", "1"}) || out.took() != nil {
		t.Error("not each holder is notified once of a change below its resource")
	}
	a.State, a.standing.subs["file:///a"] = stage.Serving, &watch{}
	agree := func() []string {
		a.agreedLocked("file:///a", a.standing.subs["file:///a"])
		a.tellAllLocked()
		return in.took()
	}
	if agree() != nil {
		t.Error("a subscription that was not in force before is notified")
	}
	for _, s := range a.hub.subscriptions["in"] {
		s.held = true
	}
	if !slices.Equal(agree(), []string{"", "1"}) {
		t.Error("what may have changed while no process watched is not notified")
	}
}

// TestSubscriptions checks the life of a subscription: it is made once, held over processes, and
// ended by its holder or with its session.
func TestSubscriptions(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	count := func(session, server string) int {
		n := 0
		for _, s := range h.subscriptions[session] {
			if s.server == server {
				n++
			}
		}
		return n
	}
	end := func(session, holder, uri string) {
		h.UnsubscribeLocked(session, func(s *Subscription) bool { return s.Holder == holder && (uri == "" || s.URI == uri) })
	}
	s, fresh, err := h.SubscribeLocked("a", "", "file:///x", "s", nil)
	if err != nil || !fresh || s.held {
		t.Error("a first subscription is not new, or held before it is in force")
	}
	if again, fresh, _ := h.SubscribeLocked("a", "", "file:///x", "s", nil); again != s || fresh {
		t.Error("the same subscription is made twice")
	}
	other, _, _ := h.SubscribeLocked("a", "1", "file:///x", "s", nil)
	h.SubscribeLocked("a", "1", "file:///y", "s", nil)
	if count("a", "s") != 3 || count("a", "other") != 0 || count("b", "s") != 0 || len(h.subscriptions["b"]) > 0 {
		t.Error("sessions or servers share a subscription")
	}
	end("a", "1", "file:///x")
	h.SubscribeLocked("a", "1", "file:///x", "s", nil)
	h.UnsubscribeLocked("a", func(s *Subscription) bool { return s == other }) // already ended
	if count("a", "s") != 3 {
		t.Error("a subscription is ended that was made after the other")
	}
	if end("a", "1", ""); count("a", "s") != 1 {
		t.Error("a holder keeps subscriptions")
	}
	for i := range 256 {
		_, _, err = h.SubscribeLocked("a", "", fmt.Sprint("file:///", i), "s", nil)
	}
	if err == nil {
		t.Error("there is no bound")
	}
	if h.ForgetLocked("a"); len(h.subscriptions["a"]) > 0 {
		t.Error("a session that is over keeps subscriptions")
	}
}

// TestSubscribedWhileUnsubscribed checks that a session that subscribes while the request is
// written that ends the subscription of an earlier daemon is subscribed by one request: the
// answer to the other request does not end it.
func TestSubscribedWhileUnsubscribed(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	u := watched(t, all{"a": true}.of(), map[string]tool.Client{"a": &client{}})
	u.State, u.standing.about = stage.Serving, json.RawMessage(`{"capabilities":{"resources":{"subscribe":true}}}`)
	u.restoreStandingLocked([]calls.Record{{Kind: calls.KindSubscribe, Name: "u", Write: 1}}, 1, 1)
	var asked []string
	var takes []func(jsonrpc.Message)
	u.ask = func(_ context.Context, _ calls.Record, method string, _ json.RawMessage, own inquiry, made func(int64),
	) (int64, error) {
		if method == mcp.Unsubscribe {
			_, _, _ = u.hub.SubscribeLocked("a", "", "u", "s", nil)
			_, _ = u.AwaitWatch(gone, "u", false) // it only has to be asked for
		}
		asked, takes = append(asked, method), append(takes, own.take)
		made(int64(1 + len(asked)))
		return int64(1 + len(asked)), nil
	}
	reconcile := func() {
		for {
			ask, _ := u.nextWish()
			if ask == nil {
				return
			}
			_ = ask(t.Context())
		}
	}
	reconcile()
	takes[0](jsonrpc.Message{})
	reconcile()
	takes[1](jsonrpc.Message{})
	reconcile()
	u.standing.subs["u"].settled = true // as the reader does
	if want := []string{mcp.Unsubscribe, mcp.Subscribe}; !slices.Equal(asked, want) {
		t.Errorf("it was asked %q, want %q", asked, want)
	}
	if _, err := u.AwaitWatch(gone, "u", false); err != nil {
		t.Errorf("the session is not subscribed: %v", err)
	}
}
