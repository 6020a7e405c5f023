package held

import (
	"maps"
	"slices"
	"testing"

	"holdline/protocol/mcp"
)

// proxy is what a proxy keeps.
type proxy map[string]string

func (p proxy) keep(facts map[string]string) {
	maps.Copy(p, facts)
	maps.DeleteFunc(p, func(_, value string) bool { return value == "" })
}

// TestListChanges_EachAnnouncedOnce walks through what a client is given and told, over daemons.
func TestListChanges_EachAnnouncedOnce(t *testing.T) {
	l, p := &Lists{}, proxy{}
	give := func(digest string) {
		l.Given(mcp.ToolsList, digest)
		p.keep(KeepGiven(mcp.ToolsList, digest))
	}
	look := func(when, digest string, once, want bool) {
		t.Helper()
		now := map[string]string{mcp.ToolsList: digest}
		got := l.Announce(mcp.ToolsChanged, now, once)
		if got != want {
			t.Errorf("%s: announced %v, want %v", when, got, want)
		}
		if got {
			p.keep(KeepTold(now))
		}
	}
	next := func() {
		l = &Lists{}
		l.Restore(p, true)
	}
	look("a client without a list", "a", true, false)
	give("a")
	look("the same list", "a", true, false)
	look("another one", "b", true, true)
	look("another one again, before the client has asked", "c", true, false)
	look("the same for a modern client", "c", false, true)
	next()
	look("at the next daemon, as it was told", "c", true, false)
	look("as it was given", "a", true, false)
	look("another one", "d", true, true)
	give("d")
	next()
	look("at the next daemon, after it has listed", "d", true, false)
	look("another one", "c", true, true) // also if it was told of that one long ago
	l.Restore(proxy{given + mcp.ToolsList: "older"}, false)
	look("on a new connection to the same daemon, since the notification may be lost", "c", true, true)
	look("but only for the list that was given", "d", false, false)
}

// TestTwoListsOfOneNotification checks that resources and templates are compared each by itself, and
// that a client that has asked for one of them is told of the other.
func TestTwoListsOfOneNotification(t *testing.T) {
	var l Lists
	l.Given(mcp.ResourcesList, "r")
	if held := l.Held(mcp.ResourcesChanged); !slices.Equal(held, []string{mcp.ResourcesList}) {
		t.Errorf("held are %q", held)
	}
	look := func(resources, templates string) bool {
		return l.Announce(mcp.ResourcesChanged,
			map[string]string{mcp.ResourcesList: resources, mcp.TemplatesList: templates}, true)
	}
	if look("r", "t") {
		t.Error("a change of templates that the client does not hold is announced")
	}
	l.Given(mcp.TemplatesList, "t")
	if look("r", "t") || !look("r", "u") || look("s", "u") {
		t.Error("want one notification, for the templates")
	}
	l.Given(mcp.TemplatesList, "u")
	if !look("s", "u") {
		t.Error("the resources have changed, and the client has asked for the templates since the last notification")
	}
}

// TestProxySaysNonsense checks that what a proxy says is bounded, and that a client whose proxy keeps
// nothing is told of the next change.
func TestProxySaysNonsense(t *testing.T) {
	l := &Lists{}
	long := make([]byte, 1<<16)
	l.Restore(proxy{given + mcp.ToolsList: string(long)}, true)
	if l.lists[0].given != unknown {
		t.Errorf("%d bytes are kept", len(l.lists[0].given))
	}
	l = &Lists{}
	l.Restore(nil, true)
	if now := map[string]string{mcp.PromptsList: "p"}; !l.Announce(mcp.PromptsChanged, now, true) ||
		l.Announce(mcp.PromptsChanged, now, true) {
		t.Error("want one notification")
	}
}
