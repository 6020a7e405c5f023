package hosted

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdline/daemon/hosted/entry"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// listed returns a list of tools with these names.
func listed(names ...string) (raw listing.Lists) {
	for _, name := range names {
		raw[listing.Tools] = append(raw[listing.Tools], json.RawMessage(`{"name":"`+name+`","description":"`+name+`"}`))
	}
	return raw
}

// twoProjects returns a server with instances for the projects p and q, which have listed
// these tools.
func twoProjects(t *testing.T, p, q listing.Lists) *server {
	t.Helper()
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), CatalogDir: t.TempDir(),
		Servers: []entry.Server{{Name: "s", Scope: entry.Project, Key: "k", MaxConcurrent: 1}},
	})
	s := m.servers["s"]
	for _, one := range []struct {
		project string
		raw     listing.Lists
	}{{"p", p}, {"q", q}} {
		takeLists(s, one.project, one.raw, time.UnixMilli(1))
	}
	return s
}

// takeLists makes lists those of the process of a project.
func takeLists(s *server, project string, raw listing.Lists, now time.Time) {
	s.offers.Take(project, s.source(), &listing.Memory{Lists: raw}, listing.Likenesses(raw[listing.Tools]), now)
}

// TestOfferingShared checks that processes with the same lists share one offering.
func TestOfferingShared(t *testing.T) {
	s := twoProjects(t, listed("a", "b"), listed("a", "b"))
	p, q := s.offers.Of("p"), s.offers.Of("q")
	if p == nil || p != q {
		t.Errorf("%p and %p", p, q)
	}
	if s = twoProjects(t, listed("a"), listed("a", "b")); s.offers.Of("p") == s.offers.Of("q") {
		t.Error("one for two that differ")
	}
}

// lister is a session that looks at its lists when one has changed.
type lister struct {
	tool.Client
	m      *Manager
	looked atomic.Int32
}

func (l *lister) Caller() tool.Caller { return tool.Caller{Session: "l", Project: "p", Root: "/p"} }

func (l *lister) ListChanged(string) {
	l.m.List(context.Background(), l.Caller(), mcp.ToolsList)
	l.looked.Add(1)
}

// TestChangedWithoutLock checks that a session that is notified of changed lists can look
// at them.
func TestChangedWithoutLock(t *testing.T) {
	m, _ := sightManager(t, func(string) bool { return true })
	l := &lister{m: m}
	m.hub.Clients["l"] = l
	m.Changed()
	if l.looked.Load() == 0 {
		t.Error("it was not notified")
	}
	l.looked.Store(0)
	m.servers["all"].looked("/p", true)
	if l.looked.Load() == 0 {
		t.Error("it was not notified that it sees the server")
	}
}

// TestAcceptForOne checks that accepting a change accepts what the caller is offered, and
// leaves the pins of what another project's process lists.
func TestAcceptForOne(t *testing.T) {
	s := twoProjects(t, listed("a", "b"), listed("b", "c"))
	other := listed("a", "b")
	other[listing.Tools][0] = json.RawMessage(`{"name":"a","description":"another"}`)
	takeLists(s, "p", other, time.UnixMilli(2))
	pin := func(name string) *listing.Pin {
		view := s.View(&tool.Caller{Project: "p"})
		return view.Pins.Find(name)
	}
	got, err := s.m.Accept(t.Context(), tool.Caller{Project: "q"}, "s")
	if err != nil || len(got) != 0 {
		t.Errorf("for q: %q, %v", got, err)
	}
	if !pin("a").Changed() {
		t.Error("the change that p is offered is not told any more")
	}
	if got, err = s.m.Accept(t.Context(), tool.Caller{Project: "p"}, "s"); err != nil || len(got) != 1 ||
		got[0] != "a" {
		t.Errorf("for p: %q, %v", got, err)
	}
	for _, name := range []string{"b", "c"} {
		if p := pin(name); p == nil || p.SinceMS != 1 || p.Changed() {
			t.Errorf("%s is pinned as %+v", name, p)
		}
	}
	if pin("a").Changed() {
		t.Error("what was accepted is still a change")
	}
}

// TestShortenedNamesAreCallable checks that a tool is found by its shortened name, and is
// called by the server's own name.
func TestShortenedNamesAreCallable(t *testing.T) {
	long := strings.Repeat("t", 128)
	s := twoProjects(t, listed(long, "short"), listed())
	for _, only := range []string{"", "s"} {
		c := &tool.Caller{Project: "p", Only: only}
		list := s.m.view(t.Context(), c).List(listing.Tools)
		if len(list) != 2 {
			t.Fatalf("%d tools are listed", len(list))
		}
		for _, l := range list {
			name, _ := mcp.String(jsonrpc.Field(l.Raw, "name"))
			o := s.offers.Of("p").Find(listing.Tools, name, only != "")
			if o == nil || len(name) > 125 || o.Own != long && o.Own != "short" {
				t.Errorf("the tool listed as %s for a session of %q is %+v", name, only, o)
			}
		}
	}
}

// TestNameLooksAtItsServersOnly checks that to find what has a name takes no longer for each
// further server, and finds it, also by a shortened name and if one server's name begins as
// another's.
func TestNameLooksAtItsServersOnly(t *testing.T) {
	allocations := func(others int) float64 {
		long := strings.Repeat("long", 40)
		entries := []entry.Server{{Name: "s", Key: "k"}, {Name: "s__t", Key: "k"}, {Name: long, Key: "k"}}
		for i := range others {
			entries = append(entries, entry.Server{Name: fmt.Sprint("other", i), Key: "k"})
		}
		m := New(Options{Log: slog.New(slog.DiscardHandler), CatalogDir: t.TempDir(), Servers: entries})
		for _, s := range m.servers {
			takeLists(s, "", listed("a"), time.UnixMilli(1))
		}
		c := &tool.Caller{Project: "p"}
		for _, name := range []string{"s", "s__t", long} {
			shown := tool.Shown(name, "a")
			if o, _ := m.viewNamed(t.Context(), c, shown).Find(listing.Tools, shown); o == nil || o.Remote.Server != name {
				t.Errorf("of %d more servers %s is found as %+v", others, shown, o)
			}
		}
		return testing.AllocsPerRun(20, func() { m.viewNamed(t.Context(), c, "s__a") })
	}
	if few, many := allocations(0), allocations(50); many > few {
		t.Errorf("%.0f allocations with 50 more servers, and %.0f without", many, few)
	}
}
