package listing

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// toolsOf returns the memory of a process that lists tools of these names.
func toolsOf(names ...string) *Memory {
	m := &Memory{About: json.RawMessage(`{}`)}
	for _, name := range names {
		m.Lists[Tools] = append(m.Lists[Tools], json.RawMessage(`{"name":"`+name+`"}`))
	}
	return m
}

// TestOffersOfScopes checks what the sessions of each scope are offered: what their own
// process has listed last, or else what any has; and whose lists a new listing changes.
func TestOffersOfScopes(t *testing.T) {
	source := &Source{Server: "s", Warn: func(kind string, err error) { t.Errorf("%s: %v", kind, err) }}
	var o Offers
	take := func(scope string, names ...string) Taken {
		m := toolsOf(names...)
		return o.Take(scope, source, m, Likenesses(m.Lists[Tools]), time.Now())
	}
	offered := func(scope string) (names []string) {
		for _, one := range o.Of(scope).All(Tools) {
			names = append(names, one.Own)
		}
		return names
	}
	for _, step := range []struct {
		name           string
		do             func() Taken
		p, q, other    []string
		shared, others int // kinds in which lists may have changed: all if none was known
		store, again   bool
	}{
		{
			name: "p lists first", do: func() Taken { return take("p", "a") },
			p: []string{"a"}, q: []string{"a"}, other: []string{"a"}, shared: 4, others: 4, store: true,
		},
		{
			name: "q lists the same", do: func() Taken { return take("q", "a") },
			p: []string{"a"}, q: []string{"a"}, other: []string{"a"},
		},
		{
			name: "q lists more", do: func() Taken { return take("q", "a", "b") },
			p: []string{"a"}, q: []string{"a", "b"}, other: []string{"a", "b"}, shared: 1, others: 1, store: true, again: true,
		},
		{
			name: "p is forgotten", do: func() (none Taken) { o.Forget("p"); return none },
			p: []string{"a", "b"}, q: []string{"a", "b"}, other: []string{"a", "b"},
		},
		{
			name: "an earlier process of q, and of p",
			do: func() (none Taken) {
				old := toolsOf("old")
				o.Restore("q", source.Offering(old.Lists, old.About, nil))
				o.Restore("p", source.Offering(old.Lists, old.About, nil))
				return none
			},
			p: []string{"old"}, q: []string{"a", "b"}, other: []string{"a", "b"},
		},
	} {
		got := step.do()
		for scope, want := range map[string][]string{"p": step.p, "q": step.q, "other": step.other} {
			if names := offered(scope); !slices.Equal(names, want) {
				t.Errorf("%s: %s is offered %q, want %q", step.name, scope, names, want)
			}
		}
		if len(got.Shared) != step.shared || len(got.Others) != step.others || got.Store != step.store ||
			got.Relisted != step.again {
			t.Errorf("%s: %+v", step.name, got)
		}
	}
}

// TestAcceptKeepsOthersPins checks that an accept for one scope keeps the pins of tools that
// sessions of a scope are offered that has never listed: those of the process that listed last.
func TestAcceptKeepsOthersPins(t *testing.T) {
	source := &Source{Server: "s", Warn: func(kind string, err error) { t.Errorf("%s: %v", kind, err) }}
	var o Offers
	for scope, tool := range map[string]string{"p": "a", "session": "b"} {
		m := toolsOf(tool)
		o.Take(scope, source, m, Likenesses(m.Lists[Tools]), time.Now())
	}
	m := toolsOf("b")
	o.Take("session", source, m, Likenesses(m.Lists[Tools]), time.Now())
	o.Forget("session")
	o.Accept("p")
	for _, scope := range []string{"p", "other"} {
		for _, tool := range o.Of(scope).All(Tools) {
			if o.pins.Find(tool.Own) == nil {
				t.Errorf("tool %s, which %s is offered, has no pin", tool.Own, scope)
			}
		}
	}
}
