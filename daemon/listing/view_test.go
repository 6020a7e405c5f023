package listing

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// denied are rules that deny these names to every identity.
type denied []string

func (d denied) May(_ tool.Who, _ string, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(d, name) })
}

func (d denied) Check(who tool.Who, server string, names ...string) error {
	if !d.May(who, server, names...) {
		return fault.New(fault.Denied, fault.Host, server, "denied")
	}
	return nil
}

func (denied) CheckURI(tool.Who, string, string) error { return nil }

func (d denied) Reaches(tool.Who, string) bool { return true }

func (denied) CheckShown(tool.Who, string, string) error { return nil }

func (denied) Renamed(tool.Who, string, string) string { return "" }

func (denied) Original(_ tool.Who, name string) string { return name }

func (denied) Searches(tool.Who) bool { return false }

func (denied) Version() any { return nil }

// offering returns the offering of a server that lists these entries.
func offering(t *testing.T, server, about string, lists map[Kind][]string) *Offering {
	t.Helper()
	var all Lists
	for k, list := range lists {
		for _, name := range list {
			all[k] = append(all[k], json.RawMessage(`{"`+k.MCP().Key+`":"`+name+`"}`))
		}
	}
	s := Source{Server: server, Warn: func(kind string, err error) { t.Errorf("%s: %v", kind, err) }}
	return s.Offering(all, json.RawMessage(about), nil)
}

// names returns the names in a list.
func names(list []tool.Listing) (all []string) {
	for _, l := range list {
		all = append(all, l.Name)
	}
	return all
}

// TestViewListsAndFinds checks that of two servers with one resource the first by name has
// it, that rules hide entries from lists only, and that a server that has never listed is
// named where an unknown name could be its own.
func TestViewListsAndFinds(t *testing.T) {
	servers := func() []ServerView {
		return []ServerView{
			{Server: "new"},
			{
				Server:   "b",
				Offering: offering(t, "b", `{}`, map[Kind][]string{Tools: {"x"}, Resources: {"mem:one", "mem:b"}}),
			},
			{
				Server:   "a",
				Offering: offering(t, "a", `{}`, map[Kind][]string{Tools: {"y", "x"}, Resources: {"mem:one"}}),
			},
		}
	}
	v := NewView(&tool.Caller{}, denied{"y"}, servers())
	if got := names(v.List(Tools)); !slices.Equal(got, []string{"a__x", "b__x"}) {
		t.Errorf("the tools are %q", got)
	}
	if got := names(v.List(Resources)); !slices.Equal(got, []string{"mem:b", "mem:one"}) {
		t.Errorf("the resources are %q", got)
	}
	if o := v.Listed("mem:one"); o == nil || o.Remote.Server != "a" {
		t.Errorf("the resource of both servers is %+v, want a's", o)
	}
	for _, c := range []struct {
		name, server string
		unlisted     []string
	}{
		{"a__y", "a", nil}, // a call of it is refused with the rule
		{"new__t", "", []string{"new"}},
		{"c__t", "", nil},
	} {
		o, unlisted := v.Find(Tools, c.name)
		server := ""
		if o != nil {
			server = o.Remote.Server
		}
		if server != c.server || !slices.Equal(unlisted, c.unlisted) {
			t.Errorf("%s: found at %q, unlisted %q; want %q, %q", c.name, server, unlisted, c.server, c.unlisted)
		}
	}
	if has := v.Has(); !has.Prompts || !has.Logging {
		t.Errorf("with a server that has never listed, there is %+v, want everything", has)
	}
	if has := NewView(&tool.Caller{}, nil, servers()[1:]).Has(); has != (tool.Has{Resources: true}) {
		t.Errorf("without it there is %+v, want resources only", has)
	}
	alone := NewView(&tool.Caller{Only: "b"}, nil, servers()[1:2])
	if o, _ := alone.Find(Tools, "x"); o == nil || o.Own != "x" {
		t.Errorf("a session for one server finds %+v under the server's own name", o)
	}
	if l := alone.List(Tools); len(l) != 1 || !strings.Contains(string(l[0].Raw), `"name":"x"`) {
		t.Errorf("a session for one server is shown %q", l)
	}
}

// TestViewStays checks that later changes of tools and pins do not change a view. In the
// next view a tool that differs from its pin is blocked, if the configuration says so.
func TestViewStays(t *testing.T) {
	first := offering(t, "s", `{}`, map[Kind][]string{Tools: {"t", "u"}})
	var pins Pins
	pins.Compare(Likenesses(first.Lists()[Tools]), time.UnixMilli(1))
	s := ServerView{Server: "s", Offering: first, Pins: pins, BlocksChanged: true}
	before := NewView(&tool.Caller{}, nil, []ServerView{s})

	lists := first.Lists()
	lists[Tools] = []json.RawMessage{json.RawMessage(`{"name":"t","description":"another"}`), lists[Tools][1]}
	second := (&Source{Server: "s"}).Offering(lists, nil, nil)
	changed, dirty := pins.Compare(Likenesses(lists[Tools]), time.UnixMilli(2))
	if !slices.Equal(changed, []string{"t"}) || !dirty {
		t.Fatalf("changed %q, dirty %v", changed, dirty)
	}
	if got := names(before.List(Tools)); !slices.Equal(got, []string{"s__t", "s__u"}) {
		t.Errorf("the view before the change lists %q", got)
	}
	if p := before.Server("s").Pins.Find("t"); p.Changed() {
		t.Errorf("the view before the change has the pin %+v", p)
	}
	s.Offering, s.Pins = second, pins
	if got := names(NewView(&tool.Caller{}, nil, []ServerView{s}).List(Tools)); !slices.Equal(got, []string{"s__u"}) {
		t.Errorf("the view after the change lists %q", got)
	}
	f := s.Blocked(second.Tool("t"))
	if f == nil || f.Fault.Code != fault.Denied || !strings.Contains(f.Fault.Detail, "(description)") {
		t.Errorf("the changed tool is blocked with %+v", f)
	}
	if n := pins.CountChanged(second); n != 1 {
		t.Errorf("%d tools have changed", n)
	}
	all := s.Tools()
	if len(all.Tools) != 2 || !all.Tools[0].Blocked || all.Tools[1].Blocked {
		t.Errorf("users are shown %+v", all.Tools)
	}
	KeepUsable(&all, denied{"u"}, tool.Who{})
	if len(all.Tools) != 0 || all.Fault == nil || !strings.HasPrefix(all.Fault.Fault.Detail, "1 of its tools") {
		t.Errorf("of one tool that is denied and one that is blocked stay %+v, %+v", all.Tools, all.Fault)
	}
	s.BlocksChanged = false
	if got := names(NewView(&tool.Caller{}, nil, []ServerView{s}).List(Tools)); len(got) != 2 {
		t.Errorf("where changed tools are not blocked, the view lists %q", got)
	}
}

// TestViewResource checks that a resource that is not listed belongs to the most likely
// template, and that rules apply to its URI and to each template that matches it.
func TestViewResource(t *testing.T) {
	const resources = `{"capabilities":{"resources":{}}}`
	a := map[Kind][]string{Templates: {"mem:{all}", "mem:x/{n}"}}
	b := map[Kind][]string{Templates: {"mem:{any}"}, Resources: {"mem:x/listed"}}
	all := []ServerView{
		{Server: "a", Offering: offering(t, "a", resources, a)},
		{Server: "b", Offering: offering(t, "b", resources, b)},
	}
	for _, c := range []struct {
		uri, only string
		rules     denied
		server    string
		names     []string
	}{
		{"mem:x/listed", "", nil, "b", []string{"mem:x/listed"}},
		{"mem:x/1", "", nil, "a", []string{"mem:x/1", "mem:{all}", "mem:x/{n}"}},
		{"mem:y", "", nil, "a", []string{"mem:y", "mem:{all}"}},
		{"mem:x/1", "", denied{"mem:x/{n}"}, "b", []string{"mem:x/1", "mem:{any}"}},
		{"other:1", "", nil, "", nil},
		{"other:1", "a", nil, "a", []string{"other:1"}},
	} {
		seen := all
		if c.only != "" {
			seen = all[:1]
		}
		o := NewView(&tool.Caller{Only: c.only}, c.rules, slices.Clone(seen)).Resource(c.uri, nil)
		switch {
		case o == nil && c.server == "":
		case o == nil:
			t.Errorf("%s: not found", c.uri)
		case o.Remote.Server != c.server, o.Own != c.uri, o.Remote.Name != c.uri,
			!slices.Equal(o.Remote.Names, c.names):
			t.Errorf("%s: found %+v, want server %q, names %q", c.uri, o, c.server, c.names)
		}
	}
}

// TestUnknownNames checks that the answer to an unknown name suggests the most similar
// names that the caller may use.
func TestUnknownNames(t *testing.T) {
	tools := map[Kind][]string{Tools: {"search_secret", "search_code", "read"}}
	v := NewView(&tool.Caller{}, denied{"search_secret"}, []ServerView{
		{Server: "github", Offering: offering(t, "github", `{}`, tools)},
		{Server: "files"},
	})
	for _, c := range []struct {
		err  error
		want string
	}{
		{v.UnknownServer("gitub"), `no server "gitub" is hosted here; there are github, files`},
		{v.UnknownTool("github", "search"), `server github offers no tool "search"; there are search_code, read`},
		{v.UnknownTool("files", "x"), `server files offers no tool "x"`},
		{NewView(&tool.Caller{}, nil, nil).UnknownServer("x"), `no server "x" is hosted here`},
	} {
		if f := fault.From(c.err, fault.Host, ""); f.Fault.Code != fault.UnknownTool || f.Fault.Detail != c.want {
			t.Errorf("got %s: %s, want %s", f.Fault.Code, f.Fault.Detail, c.want)
		}
	}
}
