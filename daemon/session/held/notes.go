package held

import (
	"hash/fnv"
	"strconv"
	"strings"

	"holdline/protocol"
	"holdline/protocol/lockcheck"
)

// noted is the name of what a proxy keeps of a subscription of the modern era, before that of the
// subscription.
const noted = protocol.NotedFact

// Notes are what a client of the modern era was told last in each of its subscriptions, as digests: what
// it gets, and how tasks stand. Its proxy keeps the same for the next daemon, which tells the client only
// what has changed. It is safe for concurrent use.
type Notes struct {
	mu   lockcheck.Mutex   // guards told; innermost, as that of [Lists]
	told map[string]string // digests, by subscription and, of a task, the task
}

// A Note is what a client is told in a subscription.
type Note struct{ name, digest string }

// NewNote returns the note of what stands in line. task is "" if that is the acknowledgement.
func NewNote(subscription, task string, line []byte) Note {
	name := subscription
	if task != "" {
		name += " " + task
	}
	h := fnv.New64a()
	_, _ = h.Write(line) // a hash takes every write
	return Note{name, strconv.FormatUint(h.Sum64(), 36)}
}

// Keep returns what the proxy has to keep of a note.
func (n Note) Keep() map[string]string { return map[string]string{noted + n.name: n.digest} }

// Has reports whether the client was told this last.
func (n *Notes) Has(note Note) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told[note.name] == note.digest
}

// Add records that the client is told this. Call it when the line is queued.
func (n *Notes) Add(note Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told == nil {
		n.told = map[string]string{}
	}
	n.told[note.name] = note.digest
}

// Restore goes on with what the proxy of a client that is back has kept: what was told later may be lost.
// It returns what the proxy need not keep any more: that of subscriptions for which open returns false.
func (n *Notes) Restore(kept map[string]string, open func(subscription string) bool) (gone map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told, gone = map[string]string{}, map[string]string{}
	for key, digest := range kept {
		name, ok := strings.CutPrefix(key, noted)
		subscription, _, _ := strings.Cut(name, " ")
		switch {
		case !ok:
		case open(subscription):
			n.told[name] = clip(digest)
		default:
			gone[key] = ""
		}
	}
	return gone
}

// End forgets a subscription, and returns what the proxy need not keep any more.
func (n *Notes) End(subscription string) (gone map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gone = map[string]string{}
	for name := range n.told {
		if of, _, _ := strings.Cut(name, " "); of == subscription {
			delete(n.told, name)
			gone[noted+name] = ""
		}
	}
	return gone
}
