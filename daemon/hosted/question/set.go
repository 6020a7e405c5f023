package question

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/calls"
	"holdline/protocol/jsonrpc"
)

// Max bounds the open requests of one process.
const Max = 256

// maxBytes bounds the params of all open requests of one process, in bytes.
const maxBytes = jsonrpc.MaxFrame

// A Set has the open requests of one process. Its owner guards it.
type Set struct {
	worker   string
	open     map[string]*Question // by id
	added    int                  // requests so far
	bytes    int                  // of the params of these
	answered map[string]struct{}  // requests that an earlier daemon has answered, or that stand in files, by id
	kept     []Kept               // requests of an earlier daemon's files, until they are opened
	early    map[string]Early     // answers to requests that are not read again yet, by id
	settled  []string             // ids of requests whose files are not needed any more
}

// An Early is a client's answer that arrived before this daemon has read the server's
// request again.
type Early struct {
	N   int64 // of the client's line; 0 if it came with a call
	Msg jsonrpc.Message
	// Of a modern client: the call whose client's request has the answer, and its write.
	By    *calls.Call
	Write int64
}

// NewSet returns an empty set for the process of the worker with that id.
func NewSet(worker string) Set { return Set{worker: worker} }

// ID returns the id of the request at a place in the output of the process of a worker: in
// the output with the number seq, the request after nth others.
func ID(worker string, seq, nth int64) string { return fmt.Sprintf("%s:%d.%d", worker, seq, nth) }

// Owns reports whether an id is that of a request of the process.
func (s *Set) Owns(id string) bool {
	rest, ok := strings.CutPrefix(id, s.worker)
	return ok && strings.HasPrefix(rest, ":")
}

// Find returns the open request with that id, or nil.
func (s *Set) Find(id string) *Question { return s.open[id] }

// FindRaw returns the request that waits for a client and has that id of the server's
// own, or nil.
func (s *Set) FindRaw(raw jsonrpc.ID) *Question {
	return s.find(func(q *Question) bool { return q.waits() && q.Raw.Key() == raw.Key() })
}

// find returns a request that matches, or nil.
func (s *Set) find(matches func(*Question) bool) *Question {
	for _, q := range s.open {
		if matches(q) {
			return q
		}
	}
	return nil
}

// Knows reports whether a request has an answer already, or is open.
func (s *Set) Knows(id string) bool { return s.HasAnswer(id) || s.open[id] != nil }

// HasAnswer reports whether an earlier daemon has answered a request.
func (s *Set) HasAnswer(id string) bool {
	_, ok := s.answered[id]
	return ok
}

// MarkAnswered records that a request needs no answer should it be read again.
func (s *Set) MarkAnswered(id string) {
	if s.answered == nil {
		s.answered = map[string]struct{}{}
	}
	s.answered[id] = struct{}{}
}

// Add opens a request of the server. It returns nil if too many are open. inFile says
// that it was read from a file.
func (s *Set) Add(id string, raw jsonrpc.ID, msg *jsonrpc.Message, inFile bool) *Question {
	if len(s.open) >= Max || s.bytes+len(msg.Params) > maxBytes {
		return nil
	}
	q := &Question{ID: id, Raw: raw, Method: msg.Method, Params: bytes.Clone(msg.Params), inFile: inFile}
	if s.open == nil {
		s.open = map[string]*Question{}
	}
	s.open[id] = q
	s.added++
	q.nth = s.added
	s.bytes += len(q.Params)
	return q
}

// Show records that requests were sent to the client of a call, in the answer to it.
func (s *Set) Show(c *calls.Call, shown []*Question) {
	for _, q := range shown {
		if q.state == Open {
			q.state, q.with = Shown, c
		}
	}
}

// Hide records that the requests that were shown with a call may be shown again.
func (s *Set) Hide(c *calls.Call) { s.hide(func(with *calls.Call) bool { return with == c }) }

// HideGuessed is [Set.Hide] for all calls of which it was only guessed.
func (s *Set) HideGuessed() {
	s.hide(func(with *calls.Call) bool { return with.Claim() == calls.Guessed })
}

func (s *Set) hide(matches func(with *calls.Call) bool) {
	for _, q := range s.open {
		if q.state == Shown && matches(q.with) {
			q.state, q.with = Open, nil
		}
	}
}

// Answer records that an answer to a request is on its way.
func (s *Set) Answer(q *Question) { q.state = max(q.state, Answered) }

// Close forgets a request that needs no answer any more. It returns false if it was
// closed before.
func (s *Set) Close(q *Question) bool {
	if q.state == Closed {
		return false
	}
	q.state = Closed
	if q.inFile {
		s.settled = append(s.settled, q.ID)
	}
	s.bytes -= len(q.Params)
	delete(s.open, q.ID)
	return true
}

// All returns the open requests.
func (s *Set) All() []*Question {
	var all []*Question
	for _, q := range s.open {
		all = append(all, q)
	}
	return all
}

// Waiting returns the requests that wait for a client: those that were sent to none, in
// order, or with shown also those that were.
func (s *Set) Waiting(shown bool) []*Question {
	all := slices.DeleteFunc(s.All(), func(q *Question) bool { return !q.waits() || q.state == Shown && !shown })
	slices.SortFunc(all, func(a, b *Question) int { return cmp.Compare(a.nth, b.nth) })
	return all
}

// AwaitClient reports whether a request waits for the answer of a client.
func (s *Set) AwaitClient() bool { return s.find((*Question).waits) != nil }

// AwaitPerson reports whether a person has yet to answer a request.
func (s *Set) AwaitPerson() bool {
	return s.find(func(q *Question) bool { return q.waits() && q.AsksPerson() }) != nil ||
		slices.ContainsFunc(s.kept, func(k Kept) bool { return AsksPerson(k.Msg.Method) })
}

// AreUncertain reports whether it is not known for certain to which call's client a
// request was sent.
func (s *Set) AreUncertain() bool {
	return s.find(func(q *Question) bool {
		return q.waits() && (q.state == Open || q.with.Claim() == calls.Guessed)
	}) != nil
}

// KeepEarly keeps an answer until its request is read again. It returns false if too
// many are kept.
func (s *Set) KeepEarly(id string, e Early) bool {
	if len(s.early) >= Max {
		return false
	}
	if s.early == nil {
		s.early = map[string]Early{}
	}
	s.early[id] = e
	return true
}

// TakeEarly removes and returns the answer to a request that arrived before it; false if
// there is none.
func (s *Set) TakeEarly(id string) (Early, bool) {
	e, ok := s.early[id]
	delete(s.early, id)
	return e, ok
}

// DropEarly drops the answers whose requests were not read. It returns the numbers of
// the client's lines.
func (s *Set) DropEarly() []int64 {
	var lines []int64
	for _, e := range s.early {
		if e.N > 0 {
			lines = append(lines, e.N)
		}
	}
	s.early = nil
	return lines
}

// Written records that a request is in a file.
func (s *Set) Written(q *Question) {
	if q.state == Closed { // meanwhile
		s.settled = append(s.settled, q.ID)
		return
	}
	q.inFile = true
}

// TakeSettled returns the names of the files that are not needed any more. The caller
// must remove them.
func (s *Set) TakeSettled() []string {
	all := s.settled
	s.settled = nil
	for i := range all {
		all[i] = FileName(all[i])
	}
	return all
}

// FileName returns the name of the file of the request with that id, in the directory of
// such files.
func FileName(id string) string {
	_, place, _ := strings.Cut(id, ":")
	return filepath.Base(place)
}

// Restore puts requests of an earlier daemon's files into the set.
func (s *Set) Restore(kept []Kept) { s.kept = kept }

// Kept returns the requests of an earlier daemon's files that have no answer, in order.
// lives says that the process can still read one; otherwise there are none.
func (s *Set) Kept(lives bool) []Kept {
	var open []Kept
	for _, k := range s.kept {
		if id := ID(s.worker, k.Seq, k.Nth); lives && !s.HasAnswer(id) {
			open = append(open, k)
		} else {
			s.settled = append(s.settled, id)
		}
	}
	return open
}

// Reopened records that the requests of an earlier daemon's files were opened. Output
// which contains one again is ignored.
func (s *Set) Reopened() {
	for _, k := range s.kept {
		s.MarkAnswered(ID(s.worker, k.Seq, k.Nth))
	}
	s.kept = nil
}
