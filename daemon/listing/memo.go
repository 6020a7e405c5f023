package listing

import (
	"slices"
	"sync"

	"holdline/daemon/tool"
)

// maxMemo bounds the lists that a [Memo] keeps. Most daemons need one or two: all sessions of an
// identity see the same, but for those of one server and those of a project.
const maxMemo = 16

// Memo keeps the lists that callers were given last. Many sessions ask for the same one, and with
// thousands of tools it takes a while to make. It is safe for concurrent use; its zero value is
// empty.
type Memo struct {
	mu   sync.Mutex // guards kept; no I/O under it
	kept []kept     // the latest last
}

// kept is a list, with all that it was made of.
type kept struct {
	view *View
	kind Kind
	list tool.List
}

// List returns what [View.List] has, with its digest. The caller must not change it.
func (m *Memo) List(v *View, k Kind) tool.List {
	whole := func() tool.List {
		list := v.List(k)
		return tool.List{Member: k.MCP().Member, Entries: list, Digest: v.Digest(list)}
	}
	if !v.repeatable() {
		return whole()
	}
	m.mu.Lock()
	i := slices.IndexFunc(m.kept, func(old kept) bool { return old.kind == k && old.view.same(v) })
	if i >= 0 {
		found := m.kept[i]
		m.kept = append(slices.Delete(m.kept, i, i+1), found)
		m.mu.Unlock()
		return found.list
	}
	m.mu.Unlock()
	list := whole()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(slices.Delete(m.kept, 0, max(0, len(m.kept)+1-maxMemo)), kept{v, k, list})
	return list
}

// repeatable reports whether a view with the same offerings under the same rules has the same
// lists. It has not where pins decide.
func (v *View) repeatable() bool {
	return v.rules != nil && !slices.ContainsFunc(v.servers, func(s ServerView) bool { return s.BlocksChanged })
}

// same reports whether the lists of two views, which are repeatable, are the same.
func (v *View) same(other *View) bool {
	return v.caller.Who() == other.caller.Who() && v.caller.Only == other.caller.Only &&
		v.version == other.version &&
		slices.EqualFunc(v.servers, other.servers, func(a, b ServerView) bool {
			return a.Server == b.Server && a.Offering == b.Offering && a.Unasked == b.Unasked
		})
}
