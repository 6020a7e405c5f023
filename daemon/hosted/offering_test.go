package hosted

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"holdline/daemon/tool"
)

// listed is a list of tools of these names.
func listed(names ...string) (raw lists) {
	for _, name := range names {
		raw[tools] = append(raw[tools], json.RawMessage(`{"name":"`+name+`","description":"`+name+`"}`))
	}
	return raw
}

// twoProjects is a server with an instance for each of the projects p and q,
// which have listed the tools named.
func twoProjects(t *testing.T, p, q lists) *server {
	t.Helper()
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), CatalogDir: t.TempDir(),
		Servers: []Spec{{Name: "s", Scope: Project, Key: "k", MaxConcurrent: 1}},
	})
	s := m.servers["s"]
	for _, one := range []struct {
		project string
		raw     lists
	}{{"p", p}, {"q", q}} {
		inst := s.instanceLocked(&tool.Caller{Project: one.project})
		inst.own = s.knownLocked(inst, one.raw, nil, nil)
		s.latest = inst.own
		s.pinLocked(likenesses(one.raw[tools]), time.UnixMilli(1))
	}
	return s
}

// TestListsKept: lists that were kept in a file are not taken for others,
// however they were spelled.
func TestListsKept(t *testing.T) {
	raw := lists{tools: {json.RawMessage("{\"name\" : \"a\",\n\"description\":\"x < y && y > z\u2028\"}")}, resources: {json.RawMessage(`{"uri":"\u003cmem://a\u003e"}`)}}
	path := filepath.Join(t.TempDir(), "lists.json")
	mem := memory{Version: memoryVersion, Key: "k"}
	mem.setLists(raw)
	if err := mem.write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := got.lists()
	if !sameLists(&kept, &raw) {
		t.Errorf("%s was kept as %s", raw, kept)
	}
	other := listed("b")
	if sameLists(&kept, &other) {
		t.Errorf("%s is taken for %s", other, kept)
	}
}

// TestOfferingShared: processes that list the same share what is made of that.
func TestOfferingShared(t *testing.T) {
	s := twoProjects(t, listed("a", "b"), listed("a", "b"))
	p, q := s.offersLocked(&tool.Caller{Project: "p"}), s.offersLocked(&tool.Caller{Project: "q"})
	if p == nil || p != q {
		t.Errorf("%p and %p", p, q)
	}
	if s = twoProjects(t, listed("a"), listed("a", "b")); s.offersLocked(&tool.Caller{Project: "p"}) == s.offersLocked(&tool.Caller{Project: "q"}) {
		t.Error("one for two that differ")
	}
}

// TestAcceptForOne: what is accepted is what the caller is offered; the pins of
// what another project's process lists stay.
func TestAcceptForOne(t *testing.T) {
	s := twoProjects(t, listed("a", "b"), listed("b", "c"))
	other := listed("a", "b")
	other[tools][0] = json.RawMessage(`{"name":"a","description":"another"}`)
	s.pinLocked(likenesses(other[tools]), time.UnixMilli(2))
	inst := s.instanceLocked(&tool.Caller{Project: "p"})
	inst.own = s.knownLocked(inst, other, nil, nil)
	s.latest = inst.own
	got, err := s.m.Accept(t.Context(), tool.Caller{Project: "q"}, "s")
	if err != nil || len(got) != 0 {
		t.Errorf("for q: %q, %v", got, err)
	}
	if !s.pinnedLocked("a").Changed() {
		t.Error("the change that p is offered is not told any more")
	}
	if got, err = s.m.Accept(t.Context(), tool.Caller{Project: "p"}, "s"); err != nil || len(got) != 1 || got[0] != "a" {
		t.Errorf("for p: %q, %v", got, err)
	}
	for _, name := range []string{"b", "c"} {
		if p := s.pinnedLocked(name); p == nil || p.SinceMS != 1 || p.Changed() {
			t.Errorf("%s is pinned as %+v", name, p)
		}
	}
	if s.pinnedLocked("a").Changed() {
		t.Error("what was accepted is still a change")
	}
}
