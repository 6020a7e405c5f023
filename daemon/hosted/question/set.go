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
	open     map[string]*Question   // by id
	added    int                    // requests so far
	bytes    int                    // of the params of these
	answered map[string]struct{}    // requests that an earlier daemon has answered, or that stand in files, by id
	kept     []Kept                 // requests of an earlier daemon's files, until they are opened
	with     map[string]*calls.Call // calls whose clients an earlier daemon has told of requests, by the ids of these
	early    map[string]Early       // answers to requests that are not read again yet, by id
	settled  []string               // ids of requests whose files are not needed any more
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
	q.with = s.with[id]
	delete(s.with, id)
	s.added++
	q.nth = s.added
	s.bytes += len(q.Params)
	return q
}

// Show records that the client of a call is told of requests: by the answer to it, or by its task.
func (s *Set) Show(c *calls.Call, shown []*Question) {
	for _, q := range shown {
		q.with = c
	}
}

// WasShown records that an earlier daemon has told the client of a call of the request with that
// id, which may be unread.
func (s *Set) WasShown(c *calls.Call, id string) {
	if q := s.open[id]; q != nil {
		q.with = c
		return
	}
	if s.with == nil {
		s.with = map[string]*calls.Call{}
	}
	s.with[id] = c
}

// ForgetUnread forgets what [Set.WasShown] has recorded of requests that were not read: there is
// nothing unread any more.
func (s *Set) ForgetUnread() { s.with = nil }

// Answer records that an answer to a request is on its way, in line n of the client; 0 if it is in
// none.
func (s *Set) Answer(q *Question, n int64) {
	if q.state < Answered {
		q.state, q.answer = Answered, n
	}
}

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

// Waiting returns, in order, the requests that wait for the client of a session.
func (s *Set) Waiting() []*Question { return s.waiting(func(*Question) bool { return true }) }

// ToShow returns, in order, the requests that wait for a client and that no client has.
func (s *Set) ToShow() []*Question { return s.waiting(func(q *Question) bool { return !q.isShown() }) }

// Of returns, in order, the requests that wait for the client of a call: those that belong to the
// call, and with free also those that belong to none.
func (s *Set) Of(c *calls.Call, free bool) []*Question {
	return s.waiting(func(q *Question) bool {
		with := q.With()
		return with == c || free && with == nil
	})
}

// waiting returns, in order, the requests that wait for a client and match.
func (s *Set) waiting(matches func(*Question) bool) []*Question {
	all := slices.DeleteFunc(s.All(), func(q *Question) bool { return !q.waits() || !matches(q) })
	slices.SortFunc(all, func(a, b *Question) int { return cmp.Compare(a.nth, b.nth) })
	return all
}

// HasShown reports whether the client of a call has a request that it is to answer.
func (s *Set) HasShown(c *calls.Call) bool {
	return s.find(func(q *Question) bool { return q.waits() && q.isShown() && q.with == c }) != nil
}

// AwaitClient reports whether a request waits for the answer of a client.
func (s *Set) AwaitClient() bool { return s.find((*Question).waits) != nil }

// AwaitPerson reports whether a person has yet to answer a request.
func (s *Set) AwaitPerson() bool {
	return s.find(func(q *Question) bool { return q.waits() && q.AsksPerson() }) != nil ||
		slices.ContainsFunc(s.kept, func(k Kept) bool { return AsksPerson(k.Msg.Method) })
}

// KeepEarly keeps an answer until its request is read again. It returns false if it does not:
// too many are kept, or there is one already, by another line of the client. The first one counts.
func (s *Set) KeepEarly(id string, e Early) bool {
	if first, given := s.early[id]; given {
		return first.N == e.N && e.N > 0 // the client's proxy has sent it again
	}
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
