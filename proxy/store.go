package proxy

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"holdline/protocol/jsonrpc"
)

// entryCost is what an entry takes beside its line, roughly, in bytes.
const entryCost = 256

// maxKept bounds how many lines are remembered, however short they are.
const maxKept = 100_000

// maxRelayed bounds how many ids of server requests are known as copied.
const maxRelayed = 1024

// store remembers the client's lines: those not yet sent, and those that a
// resume must repeat. It says what the client still waits for.
type store struct {
	limit  int  // bytes to hold at most, a line begun excepted
	resume bool // else only ids are remembered once a line was sent

	sinceBoot func() time.Duration // reads the boot clock

	mu      sync.Mutex // guards all below
	last    int64      // ordinal of the latest line
	unsent  []*entry   // in order
	queued  int        // bytes of lines not yet written whole
	held    int        // bytes of all lines and entries held
	kept    map[int64]*entry
	byID    map[string]*entry // pending, the oldest of its id
	due     int               // answers that the client waits for, and those being copied
	badDue  int               // of those, answers with id null
	eof     bool
	initial *entry              // the initialize that has succeeded
	ready   *entry              // latest initialized
	level   *entry              // latest setLevel that has succeeded
	subs    map[string]*entry   // by URI: the same of subscribe
	relayed map[string]struct{} // ids of server requests already copied
	order   []string            // of relayed, the oldest first
}

func newStore(limit int, resume bool, sinceBoot func() time.Duration) *store {
	return &store{
		limit: limit, resume: resume, sinceBoot: sinceBoot,
		kept: map[int64]*entry{}, byID: map[string]*entry{},
		subs: map[string]*entry{}, relayed: map[string]struct{}{},
	}
}

// add numbers a line and queues it.
func (s *store) add(line []byte) {
	e := newEntry(line)
	if e.kind == kindRequest {
		e.came = s.sinceBoot()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	e.n = s.last
	e.size = len(e.line)
	s.unsent = append(s.unsent, e)
	s.queued += e.size
	s.held += e.size + entryCost
	switch e.kind {
	case kindRequest, kindInitialize, kindLevel, kindSubscribe, kindUnsubscribe, kindListen:
		s.await(e)
	case kindCancel:
		if r := s.byID[e.uri]; r != nil && r.kind != kindInitialize { // which must not be cancelled
			s.settled(r)
		}
	case kindResponse:
		e.unseen = s.resume
	case kindOther:
		if e.bad {
			s.due++
			s.badDue++
		}
	case kindInitialized:
		s.ready = s.stand(s.ready, e)
	}
	if e.pending || e.standing || e.unseen {
		s.kept[e.n] = e
	}
}

// await enters e among the pending ones, behind others of its id.
func (s *store) await(e *entry) {
	e.pending = true
	if e.kind != kindListen {
		s.due++
	}
	first := s.byID[e.key]
	if first == nil {
		s.byID[e.key] = e
		return
	}
	for first.next != nil {
		first = first.next
	}
	first.next = e
}

// succeeded notes what the answer to e has put in force, which a resume has to
// repeat. Until then, what stood before stands.
func (s *store) succeeded(e *entry, answer []byte) {
	switch e.kind {
	case kindInitialize:
		if s.initial = s.stand(s.initial, e); e.standing {
			e.was = bytes.Clone(answer)
		}
	case kindLevel:
		s.level = s.stand(s.level, e)
	case kindSubscribe:
		if !e.ended {
			s.subs[e.uri] = s.stand(s.subs[e.uri], e)
		}
	case kindUnsubscribe:
		for _, other := range s.kept { // one that is not answered yet must not stand later
			if other.kind == kindSubscribe && other.uri == e.uri && other.n < e.n {
				other.ended = true
			}
		}
		if old := s.subs[e.uri]; old != nil && old.n < e.n {
			s.unstand(old)
			delete(s.subs, e.uri)
		}
	default:
	}
}

// stand returns the later one of two lines of a kind, which is to be repeated,
// and drops the other. Nothing is repeated without a resume.
func (s *store) stand(old, e *entry) *entry {
	if !s.resume || old != nil && old.n > e.n {
		return old
	}
	e.standing = true
	s.unstand(old)
	return e
}

func (s *store) unstand(e *entry) {
	if e != nil {
		e.standing = false
		s.release(e)
	}
}

// settled takes e, the oldest of its id, from the pending ones.
func (s *store) settled(e *entry) {
	e.pending = false
	if e.kind != kindListen {
		s.due--
	}
	if e.next == nil {
		delete(s.byID, e.key)
	} else {
		s.byID[e.key] = e.next
		e.next = nil
	}
	s.release(e)
}

// release frees what is not needed of e any more.
func (s *store) release(e *entry) {
	needed := e.pending || e.standing || e.unseen
	if !needed {
		delete(s.kept, e.n)
	}
	if !e.sent || e.size < 0 {
		return // the line is still to be sent, or all is done
	}
	if e.size > 0 && (!needed || !s.resume || s.held > s.limit) {
		s.held -= e.size
		e.size, e.line = 0, nil
	}
	if !needed {
		s.held -= entryCost
		e.size = -1
	}
}

// take is the next line to send, or nil. The caller tells [store.flushed].
func (s *store) take() *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unsent) == 0 {
		return nil
	}
	e := s.unsent[0]
	s.unsent[0] = nil
	s.unsent = s.unsent[1:]
	if len(s.unsent) == 0 {
		s.unsent = nil
	}
	return e
}

// flushed says that e's line was written, or as much of it as there ever will
// be on this connection.
func (s *store) flushed(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.sent = true
	s.queued -= e.size
	s.release(e)
}

// full reports whether the client has to wait before its next line is read.
// While the line is up little is read ahead; while it is down all that fits.
func (s *store) full(up bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxKept {
		return true
	}
	if up {
		return s.queued > readAhead
	}
	return s.held >= s.limit
}

// answer reports whether an answer is to be copied to the client: if, and only if,
// the client waits for it. Then the caller must call [store.copied] afterwards.
func (s *store) answer(id jsonrpc.ID, failed bool, line []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(id) == "null" {
		if s.badDue > 0 {
			s.badDue--
		} else {
			s.due++
		}
		return true
	}
	e := s.byID[key(id)]
	if e == nil {
		return false
	}
	if !failed && s.resume {
		s.succeeded(e, line)
	}
	s.settled(e)
	s.due++
	return true
}

// copied says that an answer has been written to the client.
func (s *store) copied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due--
}

// relay reports whether a server's request is to be copied: not twice.
func (s *store) relay(id jsonrpc.ID) bool {
	if !s.resume {
		return true
	}
	k := key(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.relayed[k]; known {
		return false
	}
	if len(s.order) >= maxRelayed {
		delete(s.relayed, s.order[0])
		s.order = append(s.order[:0], s.order[1:]...)
	}
	s.relayed[k] = struct{}{}
	s.order = append(s.order, k)
	return true
}

// seen notes that a server has the response in line n.
func (s *store) seen(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.kept[n]; e != nil && e.unseen {
		e.unseen = false
		s.release(e)
	}
}

// end says that no more lines come.
func (s *store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eof = true
}

// state reports whether the client has closed its side, and whether with that
// nothing is left to send and nothing to wait for.
func (s *store) state() (eof, drained bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eof, s.eof && s.queued == 0 && s.due == 0
}

// calling counts the tool calls that were handed to a connection and whose
// answers the client still waits for.
func (s *store) calling() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, next := 0, s.nextLocked()
	for n, e := range s.kept {
		if e.call && e.pending && n < next {
			calls++
		}
	}
	return calls
}

// nextLocked is the number of the first line that no connection was handed.
func (s *store) nextLocked() int64 {
	if len(s.unsent) > 0 {
		return s.unsent[0].n
	}
	return s.last + 1
}

// unanswered takes all pending requests, the oldest first.
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
		s.settled(s.byID[e.key])
	}
	return list
}

// replay is one remembered line of a resume.
type replay struct {
	n        int64
	came     time.Duration // see [entry]; 0 for what waits for no server
	answered bool
	line     []byte     // nil: too large to keep
	id       jsonrpc.ID // then, of the request that waits, or of the response
	call     bool       // and whether that calls a tool
	was      json.RawMessage
}

// recall is what a resume has to say: the lines before next, in order, and
// which of them still want an answer. Lines from next on have not been sent.
// Those before it that could not be read are not repeated, so that no answer to
// them is due any more.
func (s *store) recall() (next int64, pending []int64, lines []replay, eof bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = s.nextLocked()
	bad := 0
	for _, e := range s.unsent {
		if e.bad {
			bad++
		}
	}
	s.due -= s.badDue - bad
	s.badDue = bad
	for _, e := range s.kept {
		if e.n >= next {
			continue
		}
		r := replay{n: e.n, came: e.came, answered: !e.pending, line: e.line, was: e.was}
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
	return next, pending, lines, s.eof
}
