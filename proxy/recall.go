package proxy

import (
	"slices"
	"time"

	"holdline/protocol/jsonrpc"
)

// unanswered removes all pending requests from the store and returns them, the oldest first.
// The caller must answer them.
func (s *store) unanswered() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*entry
	for _, e := range s.kept {
		if e.pending {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return int(a.n - b.n) })
	for _, e := range list {
		e.describe()
		e.shared = true
		s.settled(e)
	}
	return list
}

// replay is one line that a resume repeats.
type replay struct {
	n        int64         // number of the line
	came     time.Duration // see [entry]; 0 for a line that waits for no server
	answered bool          // the client has the answer: the line is repeated for its effect
	line     []byte        // nil: too large to keep
	spill
	id   jsonrpc.ID // without line: of the request that waits, or of the response
	call bool       // without line: the request calls a tool
}

// recall returns what a resume reports: the kept lines before next, in order, and the numbers
// of those that still want an answer. Lines from next on were not handed to a connection; they
// follow as usual.
func (s *store) recall() (next int64, pending []int64, lines []replay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = s.nextLocked()
	for _, e := range s.kept {
		if e.n >= next {
			continue
		}
		e.shared = true
		r := replay{n: e.n, came: e.came, answered: !e.pending, line: e.line, spill: e.spill}
		if e.pending || e.kind == kindResponse {
			r.id, r.call = e.id, e.call
		}
		lines = append(lines, r)
		if e.pending {
			pending = append(pending, e.n)
		}
	}
	slices.Sort(pending)
	slices.SortFunc(lines, func(a, b replay) int { return int(a.n - b.n) })
	return next, pending, lines
}
