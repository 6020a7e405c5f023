package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// A fakeServer is a server without processes. It offers its lists once it was asked for,
// and has then been ready for long.
type fakeServer struct {
	entry          entry.Server
	lists          listing.Lists
	about          string
	offers         listing.Offers
	start          time.Duration // until it is ready
	failure        error         // of each start
	asked          int           // how often it was started
	unprepared     bool          // its start waits for the environment
	begun          time.Time     // of the first start
	rests, trouble *fault.Record
}

// newServer returns a server that lists tools when it is asked.
func newServer(name string, tools ...string) *fakeServer {
	s := &fakeServer{entry: entry.Server{Name: name, Scope: entry.Shared, MaxConcurrent: 1}, about: `{}`}
	s.list(listing.Tools, tools...)
	return s
}

// list adds names to what the server lists when it is asked.
func (s *fakeServer) list(k listing.Kind, names ...string) {
	for _, name := range names {
		s.lists[k] = append(s.lists[k], json.RawMessage(`{"`+k.MCP().Key+`":"`+name+`"}`))
	}
}

// take makes the lists what the server offers. Calls of an offer fail with its own name.
func (s *fakeServer) take() {
	s.offers.Load(&listing.Memory{Lists: s.lists, About: json.RawMessage(s.about)}, &listing.Source{
		Server: s.entry.Name,
		Handle: func(_ context.Context, o *listing.Offer, _ *tool.RemoteCall) (tool.RemoteResult, error) {
			return tool.RemoteResult{}, errors.New("called " + o.Own)
		},
		Warn: func(kind string, err error) { panic(kind + ": " + err.Error()) },
	}, true)
}

func (s *fakeServer) Entry() *entry.Server { return &s.entry }

func (s *fakeServer) View(*tool.Caller) listing.ServerView {
	return s.offers.View(s.entry.Name, "", s.entry.BlockChanged)
}

func (s *fakeServer) Scope(*tool.Caller) string { return "" }

func (s *fakeServer) Guards(*tool.Caller) (dispatch.Guards, error) {
	return dispatch.NewGuards(&s.entry), nil
}

func (s *fakeServer) NotLoggedIn(*upstream.Process, *fault.Record) {}

func (s *fakeServer) Ready(ctx context.Context, _ dispatch.Limit, _ tool.Caller) (*upstream.Process, error) {
	s.asked++
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	select {
	case <-time.After(s.start):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.failure == nil {
		s.take()
	}
	return nil, s.failure
}

func (s *fakeServer) Start(*tool.Caller) Start {
	return Start{Begun: s.begun, Unprepared: s.unprepared}
}

func (s *fakeServer) Rests(_ *tool.Caller, start bool) *fault.Record {
	if start {
		return nil
	}
	return s.rests
}

func (s *fakeServer) Trouble(*tool.Caller) *fault.Record { return s.trouble }

// rules forbid each identity the servers and the names of things that it has in the map.
type rules map[string][]string

func (r rules) May(who tool.Who, server string, names ...string) bool {
	return r.Reaches(who, server) &&
		!slices.ContainsFunc(names, func(name string) bool { return slices.Contains(r[who.Identity], name) })
}

func (r rules) Check(tool.Who, string, ...string) error { return nil }

func (r rules) CheckURI(tool.Who, string, string) error { return nil }

func (r rules) Reaches(who tool.Who, server string) bool {
	return !slices.Contains(r[who.Identity], server)
}

func (rules) CheckShown(tool.Who, string, string) error { return nil }

func (rules) Renamed(tool.Who, string, string) string { return "" }

func (rules) Original(_ tool.Who, name string) string { return name }

func (rules) Searches(tool.Who) bool { return false }

func (rules) Version() any { return nil }

// newCatalog returns a catalog of servers. A session for one server sees no other.
func newCatalog(r tool.Rules, servers ...*fakeServer) *Catalog {
	hub := upstream.New(upstream.Options{Log: slog.New(slog.DiscardHandler)})
	view := func(_ context.Context, c *tool.Caller) *listing.View {
		var seen []listing.ServerView
		for _, s := range servers {
			if c.Only == "" || c.Only == s.entry.Name {
				seen = append(seen, s.View(c))
			}
		}
		return listing.NewView(c, r, seen)
	}
	return New(Servers{
		Find: func(name string) (Server, error) {
			for _, s := range servers {
				if s.entry.Name == name {
					return s, nil
				}
			}
			return nil, fault.New(fault.InvalidInput, fault.Host, "test", "no server %s", name)
		},
		View:  view,
		Named: func(ctx context.Context, c *tool.Caller, _ string) *listing.View { return view(ctx, c) },
	}, dispatch.New(hub, nil), r, hub.Log)
}

// code returns the code of the fault in err, or "".
func code(err error) fault.Code {
	if f, ok := errors.AsType[*fault.Record](err); ok {
		return f.Fault.Code
	}
	return ""
}

// callOf calls a tool and returns its error in words.
func callOf(t *testing.T, r *tool.Remote) string {
	t.Helper()
	if r == nil {
		return "not found"
	}
	_, err := r.Handle(t.Context(), tool.RemoteCall{})
	if err == nil {
		t.Fatalf("the call of %s has an answer", r.Name)
	}
	return err.Error()
}

// TestListWaitsForServers checks that a list starts the servers that have never listed, all
// at the same time, waits for the slow ones no longer than it may, and leaves out those that
// fail. A server that has listed is not started.
func TestListWaitsForServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, quick, quick2 := newServer("known", "a"), newServer("quick", "b"), newServer("quick2", "b")
		slow, broken := newServer("slow", "c"), newServer("broken", "d")
		known.take()
		quick.start, quick2.start, slow.start = 3*time.Second, 3*time.Second, time.Hour
		broken.failure = errors.New("no")
		d := newCatalog(nil, known, quick, quick2, slow, broken)
		begin := time.Now()
		list, ok := d.List(t.Context(), tool.Caller{}, mcp.ToolsList)
		if took := time.Since(begin); !ok || list.Member != "tools" || took != listWait {
			t.Errorf("the list is %q, %v, after %v; want %v", list.Member, ok, took, listWait)
		}
		var names []string
		for _, l := range list.Entries {
			names = append(names, l.Name)
		}
		if want := []string{"known__a", "quick2__b", "quick__b"}; !slices.Equal(names, want) {
			t.Errorf("listed %q, want %q", names, want)
		}
		if known.asked != 0 || quick.asked != 1 || slow.asked != 1 || broken.asked != 1 {
			t.Errorf("started %d, %d, %d and %d times", known.asked, quick.asked, slow.asked, broken.asked)
		}
		if _, ok := d.List(t.Context(), tool.Caller{}, "things/list"); ok {
			t.Error("an unknown method lists something")
		}
	})
}

// TestFindAsksServers checks which servers are started to find a tool by the name that
// sessions see: those alone that have never listed and whose tool it may be. If the server
// does not start, the call of the tool says why.
func TestFindAsksServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name, only string
			want       string // error of the call
			a, b       int    // how often the servers are started
		}{
			{name: "known__t", want: "called t"},
			{name: "a__t", want: "called t", a: 1},
			{name: "a__missing", want: "not found", a: 1},
			{name: "b__t", want: "it is broken", b: 1},
			{name: "c__t", want: "not found"},
			{name: "t", only: "a", want: "called t", a: 1},
		} {
			known, a, b := newServer("known", "t"), newServer("a", "t"), newServer("b", "t")
			known.take()
			b.failure = fault.New(fault.SpawnFailure, fault.Server, "test", "it is broken")
			d := newCatalog(nil, known, a, b)
			c := tool.Caller{Only: tc.only}
			if r := d.Known(c, tc.name); (r != nil) != (tc.name == "known__t") || a.asked+b.asked > 0 {
				t.Errorf("%s: known %v; started %d and %d times", tc.name, r != nil, a.asked, b.asked)
			}
			if got := callOf(t, d.Find(t.Context(), c, tc.name)); !strings.Contains(got, tc.want) {
				t.Errorf("%s: the call says %q, want %q", tc.name, got, tc.want)
			}
			if a.asked != tc.a || b.asked != tc.b {
				t.Errorf("%s: started %d and %d times, want %d and %d", tc.name, a.asked, b.asked, tc.a, tc.b)
			}
		}
	})
}

// TestRoute checks where requests other than calls of tools go: by the name of a prompt, by
// the URI of a resource, which may be of a template, or by what a completion completes.
func TestRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ method, params, want string }{
			{mcp.PromptsGet, `{"name":"a__p"}`, "called p"},
			{mcp.PromptsGet, `{"name":"a__q"}`, "not found"},
			{mcp.ResourcesRead, `{"uri":"mem://r"}`, "called mem://r"},
			{mcp.ResourcesRead, `{"uri":"mem://made/1"}`, "no server a"}, // by the server that has the name then
			{mcp.ResourcesRead, `{"uri":"other://r"}`, "not found"},
			{mcp.Complete, `{"ref":{"name":"a__p"}}`, "no server a"},
			{mcp.Complete, `{"ref":{"uri":"mem://r"}}`, "no server a"},
		} {
			a := newServer("a")
			a.list(listing.Prompts, "p")
			a.list(listing.Resources, "mem://r")
			a.list(listing.Templates, "mem://made/{n}")
			d := newCatalog(nil, a)
			r, ok := d.Route(t.Context(), tool.Caller{}, tc.method, json.RawMessage(tc.params))
			if !ok || a.asked != 1 {
				t.Errorf("%s %s: known %v, the server was started %d times", tc.method, tc.params, ok, a.asked)
			}
			a.entry.Name = "gone" // no server has the offer's name any more
			if got := callOf(t, r); !strings.Contains(got, tc.want) {
				t.Errorf("%s %s: %q, want %q", tc.method, tc.params, got, tc.want)
			}
		}
		d := newCatalog(nil)
		if to, ok := d.Route(t.Context(), tool.Caller{}, mcp.Complete, json.RawMessage(`{"ref":{}}`)); !ok || to != nil {
			t.Errorf("a completion of nothing goes to %+v, %v", to, ok)
		}
		if _, ok := d.Route(t.Context(), tool.Caller{}, mcp.ToolsCall, nil); ok {
			t.Error("calls of tools are routed, too")
		}
	})
}

// TestResourceOfBrokenServer checks that a resource that no server lists may be that of a
// server that does not start, and that reading it says why.
func TestResourceOfBrokenServer(t *testing.T) {
	b := newServer("b")
	b.failure = fault.New(fault.SpawnFailure, fault.Server, "test", "it is broken")
	o := newCatalog(nil, b).Resource(t.Context(), tool.Caller{}, "mem://r")
	if o == nil {
		t.Fatal("not found")
	}
	if got := callOf(t, &o.Remote); !strings.Contains(got, "it is broken") {
		t.Errorf("reading says %q", got)
	}
}

// TestAbout checks what a session for one server learns about it in its handshake, which
// does not wait for a server that is starting.
func TestAbout(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server func(s *fakeServer)
		caller tool.Caller
		want   string // in the instructions
		fails  string // code of the error, or its words
		took   time.Duration
	}{
		{name: "known", server: (*fakeServer).take, want: "do this"},
		{name: "started at once", server: func(*fakeServer) {}, want: "do this"},
		{
			name: "starting", server: func(s *fakeServer) { s.start = time.Minute },
			want: "was still starting", took: aboutWait,
		},
		{
			name: "starting again",
			server: func(s *fakeServer) {
				s.start, s.trouble = time.Minute, fault.New(fault.SpawnFailure, fault.Server, "test", "it has failed")
			},
			fails: "it has failed", took: aboutWait,
		},
		{
			name: "broken", server: func(s *fakeServer) { s.failure = errors.New("it is broken") },
			fails: "it is broken",
		},
		{
			name: "denied", server: (*fakeServer).take, caller: tool.Caller{Identity: "guest"},
			fails: string(fault.Denied),
		},
		{name: "missing", server: (*fakeServer).take, caller: tool.Caller{Only: "none"}, fails: "no server none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer("s", "t")
				s.about = `{"serverInfo":{"name":"s","version":"1"},"instructions":"do this"}`
				tc.server(s)
				if tc.caller.Only == "" {
					tc.caller.Only = "s"
				}
				begin := time.Now()
				about, err := newCatalog(rules{"guest": {"s"}}, s).About(t.Context(), tc.caller)
				if took := time.Since(begin); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				switch {
				case (err != nil) != (tc.fails != ""):
					t.Errorf("error %v, want %q", err, tc.fails)
				case err != nil && string(code(err)) != tc.fails && !strings.Contains(err.Error(), tc.fails):
					t.Errorf("error %v, want %q", err, tc.fails)
				case !strings.Contains(about.Instructions, tc.want):
					t.Errorf("instructions %q, want %q", about.Instructions, tc.want)
				}
			})
		})
	}
}

// TestDiscover checks that a search names each server with the tools that the caller may
// use, and with what is wrong with it, and starts a lazy server only if it is told to.
func TestDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, lazy, broken := newServer("good", "a", "secret"), newServer("lazy", "b"), newServer("broken")
		lazy.rests = fault.New(fault.InvalidInput, fault.Server, "test", "it is lazy")
		broken.failure = fault.New(fault.SpawnFailure, fault.Server, "test", "it is broken")
		good.trouble = fault.New(fault.Ejected, fault.Server, "test", "it is ejected")
		d := newCatalog(rules{"guest": {"secret"}}, good, lazy, broken)
		for _, start := range []bool{false, true} {
			for i, one := range d.Discover(t.Context(), tool.Caller{Identity: "guest"}, start) {
				got := names(one)
				if one.Fault != nil {
					got += ": " + one.Fault.Fault.Detail
				}
				want := []string{"broken: it is broken", "good a: it is ejected", "lazy: it is lazy"}[i]
				if start && one.Server == "lazy" {
					want = "lazy b"
				}
				if got != want {
					t.Errorf("with start %v: %q, want %q", start, got, want)
				}
			}
		}
		if lazy.asked != 1 {
			t.Errorf("the lazy server was started %d times", lazy.asked)
		}
	})
}

// names returns the name of a server and those of its tools.
func names(of control.ServerOffers) string {
	all := []string{of.Server}
	for _, one := range of.Tools {
		all = append(all, one.Name)
	}
	return strings.Join(all, " ")
}

// TestOffers checks that the tools of one server, or of all, are read, and that a server
// that does not start stands in the list with the reason.
func TestOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, broken := newServer("a", "t"), newServer("broken")
		broken.failure = fault.New(fault.SpawnFailure, fault.Server, "test", "it is broken")
		d := newCatalog(nil, a, broken)
		all, err := d.Offers(t.Context(), tool.Caller{}, "")
		if err != nil || len(all) != 2 || names(all[0]) != "a t" || names(all[1]) != "broken" ||
			code(all[1].Fault) != fault.SpawnFailure {
			t.Errorf("all: %+v, %v", all, err)
		}
		if one, err := d.Offers(t.Context(), tool.Caller{}, "a"); err != nil || len(one) != 1 || names(one[0]) != "a t" {
			t.Errorf("one: %+v, %v", one, err)
		}
		if _, err := d.Offers(t.Context(), tool.Caller{}, "none"); code(err) != fault.InvalidInput {
			t.Errorf("none: %v", err)
		}
	})
}

// TestToolOfServer checks how a tool is found by its server and one of its names, for the
// command line (Tool) and for call_tool (Inner), which suggests what there is.
func TestToolOfServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			server, name string
			tool, inner  string // what their call, or their error, says
		}{
			{"known", "read", "called read", "called read"},
			{"known", "known__read", "called read", "called read"},
			{"known", "rad", "offers no tool", "there is read"},
			{"fresh", "write", "called write", "called write"},
			{"fresh", "wite", "offers no tool", "there is write"},
			{"broken", "t", "it is broken", "it is broken"},
			{"knwon", "read", "no server knwon", "there are known"},
		} {
			known, fresh, broken := newServer("known", "read"), newServer("fresh", "write"), newServer("broken")
			known.take()
			broken.failure = fault.New(fault.SpawnFailure, fault.Server, "test", "it is broken")
			d := newCatalog(nil, known, fresh, broken)
			for how, find := range []func(context.Context, tool.Caller, string, string) (*tool.Remote, error){d.Tool, d.Inner} {
				r, err := find(t.Context(), tool.Caller{}, tc.server, tc.name)
				var got string
				if err != nil {
					got = err.Error()
				} else {
					got = callOf(t, r)
				}
				if want := []string{tc.tool, tc.inner}[how]; !strings.Contains(got, want) {
					t.Errorf("%s of %s: %q, want %q", tc.name, tc.server, got, want)
				}
			}
		}
	})
}

// TestLoginShellIsSlow_HandshakeAndFirstListWaitHalfASecond checks that the handshake of a session, its
// first lists, and the look at why they are empty together wait half a second for a server whose
// environment is not known yet.
func TestLoginShellIsSlow_HandshakeAndFirstListWaitHalfASecond(t *testing.T) {
	for _, pause := range []time.Duration{0, 300 * time.Millisecond, time.Minute} { // before the first list
		synctest.Test(t, func(t *testing.T) {
			s := newServer("s", "t")
			s.start, s.unprepared = time.Hour, true
			d, who := newCatalog(nil, s), tool.Caller{Only: "s"}
			var waited time.Duration
			timed := func(f func()) {
				begun := time.Now()
				f()
				waited += time.Since(begun)
			}
			about := func() {
				if _, err := d.About(t.Context(), who); err != nil {
					t.Errorf("the handshake: %v", err)
				}
			}
			timed(about)
			time.Sleep(pause)
			for _, method := range []string{mcp.ToolsList, mcp.PromptsList} {
				timed(func() {
					if list, ok := d.List(t.Context(), who, method); !ok || len(list.Entries) > 0 {
						t.Errorf("%s: %v, %v", method, list.Entries, ok)
					}
				})
			}
			timed(about)
			if want := max(unreadyList-pause, aboutWait); waited != want {
				t.Errorf("with %v before the first list they wait %v, want %v", pause, waited, want)
			}
		})
	}
}

// TestPatience checks how long a request for lists waits for a server that has not listed
// anything yet: as long as the first such request in all, and hardly for a server that has
// just failed to start.
func TestPatience(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, tc := range []struct {
		name string
		is   Start
		want time.Duration
	}{
		{"not started", Start{}, listWait},
		{"starting", Start{Begun: ago(3 * time.Second)}, listWait - 3*time.Second},
		{"starting for long", Start{Begun: ago(time.Minute)}, 0},
		{"failed", Start{Failed: true}, nextList},
		{
			"starting after it has failed",
			Start{Begun: ago(300 * time.Millisecond), Failed: true},
			nextList - 300*time.Millisecond,
		},
		{"without its environment", Start{Unprepared: true}, unreadyList},
		{
			"its start waits for its environment",
			Start{Begun: ago(200 * time.Millisecond), Unprepared: true},
			unreadyList - 200*time.Millisecond,
		},
	} {
		if got := patience(tc.is, now); got != tc.want {
			t.Errorf("%s: it is waited for %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestServerStartsAnew_ListForClientThatDoesNotListAgain checks that only such a client waits for a server that is
// starting and has listed before, and no longer than for another list.
func TestServerStartsAnew_ListForClientThatDoesNotListAgain(t *testing.T) {
	for _, x := range []struct {
		client       string
		method       string
		start, waits time.Duration
		want         string
	}{
		{"codex-mcp-client 0.130.0", mcp.ToolsList, 3 * time.Second, 3 * time.Second, "s__new"},
		{"codex-mcp-client 0.130.0", mcp.ToolsList, time.Hour, freshList, "s__old"},
		{"claude-code 2.1.329", mcp.ToolsList, 3 * time.Second, 0, "s__old"},
		{"", mcp.ToolsList, 3 * time.Second, 0, "s__old"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer("s", "old")
			s.take()
			s.lists, s.start, s.begun = listing.Lists{}, x.start, time.Now()
			s.list(listing.Tools, "new")
			d := newCatalog(nil, s)
			begin := time.Now()
			list, _ := d.List(t.Context(), tool.Caller{Client: x.client}, x.method)
			if len(list.Entries) != 1 || list.Entries[0].Name != x.want || time.Since(begin) != x.waits {
				t.Errorf("for %q, a start of %v: %+v after %v", x.client, x.start, list.Entries, time.Since(begin))
			}
		})
	}
}
