package listing

import (
	"fmt"
	"slices"
	"testing"

	"holdline/daemon/tool"
)

// counted are rules that count how often they are asked, and whose version is a number.
type counted struct {
	denied

	version int
	asked   *int
}

func (c counted) May(tool.Who, string, ...string) bool { *c.asked++; return true }

func (c counted) Version() any { return c.version }

// TestMemo checks that the same caller, rules and offerings get the list that was made before, that
// any other gets its own, and that what is kept is bounded.
func TestMemo(t *testing.T) {
	var m Memo
	asked := 0
	one := offering(t, "one", "", map[Kind][]string{Tools: {"a", "b"}})
	other := offering(t, "one", "", map[Kind][]string{Tools: {"c"}})
	view := func(identity string, version int, of *Offering, blocks bool) *View {
		return NewView(&tool.Caller{Identity: identity, Session: identity + "'s"}, counted{asked: &asked, version: version},
			[]ServerView{{Server: "one", Offering: of, BlocksChanged: blocks}})
	}
	for _, c := range []struct {
		what  string
		view  *View
		made  bool // anew
		tools []string
	}{
		{"the first one", view("x", 1, one, false), true, []string{"one__a", "one__b"}},
		{"another session", view("x", 1, one, false), false, []string{"one__a", "one__b"}},
		{"another identity", view("y", 1, one, false), true, []string{"one__a", "one__b"}},
		{"another offering", view("x", 1, other, false), true, []string{"one__c"}},
		{"other rules", view("x", 2, one, false), true, []string{"one__a", "one__b"}},
		{"the first rules again", view("x", 1, one, false), false, []string{"one__a", "one__b"}},
		{"where pins decide", view("x", 1, one, true), true, []string{"one__a", "one__b"}},
		{"where pins decide, again", view("x", 1, one, true), true, []string{"one__a", "one__b"}},
	} {
		before := asked
		if got := names(m.List(c.view, Tools).Entries); !slices.Equal(got, c.tools) || asked > before != c.made {
			t.Errorf("%s: got %q, made anew %v, want %q, %v", c.what, got, asked > before, c.tools, c.made)
		}
	}
	if list := m.List(view("x", 1, one, false), Prompts).Entries; len(list) > 0 {
		t.Errorf("prompts: %q", names(list))
	}
	for i := range 3 * maxMemo {
		m.List(view(fmt.Sprint(i), 1, one, false), Tools)
	}
	if len(m.kept) != maxMemo {
		t.Errorf("%d lists are kept, want %d", len(m.kept), maxMemo)
	}
}
