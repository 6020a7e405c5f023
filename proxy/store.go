package proxy

import (
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// entryCost is what an entry takes beside its line, roughly, in bytes.
const entryCost = 256

// maxKept bounds how many lines are remembered, however short they are.
const maxKept = 100_000

// What is kept for lines to come, in bytes: of all, and of one line.
const (
	maxSpare     = 64 << 10
	maxSpareLine = 16 << 10
)

// maxSpareQueue is for how many lines the memory of the queue is kept.
const maxSpareQueue = 1 << 10

// maxRelayed bounds how many ids of server requests are known as copied.
const maxRelayed = 1024

// What is kept for daemons bounds these: the number of facts, of those among them that begin with
// [protocol.NotedFact], of which a client may have many, and the bytes of one with its name.
const (
	maxFacts = 192
	maxNoted = 160
	maxFact  = 256
)

// store remembers the client's lines: those not yet sent, and those that a resume must
// repeat. It also knows which answers the client still waits for. It is safe for concurrent
// use. A line leaves the store once no daemon can need it again.
type store struct {
	limit int // bytes to hold at most, a line begun excepted

	sinceBoot func() time.Duration // reads the boot clock

	mu      sync.Mutex          // guards all below
	last    int64               // ordinal of the latest line
	queue   []*entry            // from first on those not yet sent, in order
	first   int                 // of queue; 0 if none is left
	queued  int                 // bytes of lines not yet written whole
	held    int                 // bytes of all lines and entries held
	kept    map[int64]*entry    // that are pending, standing or unseen, by number
	byID    map[string]*entry   // pending, the oldest of its id: cancellations name ids
	due     int                 // answers that the client waits for, and those being copied
	calls   int                 // entries that are calling
	eof     bool                // the client sends no more lines
	initial *entry              // the initialize that has succeeded
	ready   *entry              // latest initialized
	level   *entry              // latest setLevel that has succeeded
	subs    map[string]*entry   // by URI: the same of subscribe
	relayed map[string]struct{} // ids of server requests already copied
	order   []string            // of relayed, the oldest first
	facts   map[string]string   // that the daemon has told, for the next one; never nil
	files   []*os.File          // of lines that are not needed any more
	spare   []*entry            // not needed any more, for lines to come
	spared  int                 // bytes of spare
}

// newStore returns an empty store.
func newStore(limit int, sinceBoot func() time.Duration) *store {
	return &store{
		limit: limit, sinceBoot: sinceBoot,
		kept: map[int64]*entry{}, byID: map[string]*entry{},
		subs: map[string]*entry{}, relayed: map[string]struct{}{}, facts: map[string]string{},
	}
}

// addLine gives a line, which has its newline, the next number and queues it to be sent. The
// store owns line from then on. A cancellation ends the wait for all requests of its id at once:
// the proxy then drops an answer that comes too late, also if a later request has the id by then.
func (s *store) addLine(line []byte) { s.add(newEntry(line), len(line)) }

// addCopy is [store.addLine] of a copy of line, which has no newline. It uses the memory of an
// earlier line if it can: a process that allocates little needs no collection, of which the
// first alone takes 0.7 MiB that never come back.
func (s *store) addCopy(line []byte) {
	e := s.takeSpare()
	e.line = append(append(slices.Grow(e.line, len(line)+1), line...), '\n')
	_, _ = e.read()
	s.add(e, len(e.line))
}

// takeSpare returns an entry of no line.
func (s *store) takeSpare() *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.spare) - 1
	if last < 0 {
		return &entry{}
	}
	e := s.spare[last]
	s.spare = s.spare[:last]
	s.spared -= cap(e.line) + entryCost
	e.reset()
	return e
}

// add is [store.addLine] of an entry whose line has so many bytes.
func (s *store) add(e *entry, size int) {
	if e.kind == kindRequest {
		e.came = s.sinceBoot()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, asked := s.relayed[e.key]; asked && e.unclear {
		e.kind = kindResponse
	}
	s.last++
	e.n = s.last
	e.size = size
	if len(s.queue) == cap(s.queue) && s.first > len(s.queue)/2 { // it may never be empty
		n := copy(s.queue, s.unsent())
		clear(s.queue[n:])
		s.queue, s.first = s.queue[:n], 0
	}
	s.queue = append(s.queue, e)
	s.queued += e.size
	s.held += e.size + entryCost
	switch e.kind {
	case kindRequest, kindInitialize, kindLevel, kindSubscribe, kindUnsubscribe, kindListen:
		s.await(e)
	case kindCancel:
		for r := s.byID[e.uri]; r != nil; {
			next := r.next
			if r.kind != kindInitialize { // MCP forbids to cancel that
				s.settled(r)
			}
			r = next
		}
	case kindResponse:
		e.unseen = true
	case kindOther:
	case kindInitialized:
		s.ready = s.stand(s.ready, e)
	}
	if e.pending || e.standing || e.unseen {
		s.kept[e.n] = e
	}
}

// await makes e a pending request, behind others of its id. The caller must hold s.mu.
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

// succeeded records the effect of a request that has succeeded: a resume must repeat it to
// set up the session at the next daemon. Before e was answered, the earlier line of its kind
// was the one to repeat. The caller must hold s.mu.
func (s *store) succeeded(e *entry) {
	switch e.kind {
	case kindInitialize:
		s.initial = s.stand(s.initial, e)
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

// stand returns the later one of two lines of a kind. A resume repeats that one; the other
// is released. The caller must hold s.mu.
func (s *store) stand(old, e *entry) *entry {
	if old != nil && old.n > e.n {
		return old
	}
	e.standing = true
	s.unstand(old)
	return e
}

// unstand ends that a resume repeats e for its effect. e may be nil. The caller must hold
// s.mu.
func (s *store) unstand(e *entry) {
	if e != nil {
		e.standing = false
		s.release(e)
	}
}

// settled ends the wait for the answer to e, a pending request. The caller must hold s.mu.
func (s *store) settled(e *entry) {
	e.pending = false
	s.notCalling(e)
	if e.kind != kindListen {
		s.due--
	}
	switch before := s.byID[e.key]; {
	case before == e && e.next == nil:
		delete(s.byID, e.key)
	case before == e:
		s.byID[e.key] = e.next
	default:
		for before.next != e {
			before = before.next
		}
		before.next = e.next
	}
	e.next = nil
	s.release(e)
}

// release frees the parts of e that are not needed any more: its line once it was sent and
// no resume repeats it, its entry once nothing refers to it. If the store is over its limit,
// it frees the line of a request that still waits, too: a resume then reports only its id.
// The caller must hold s.mu.
func (s *store) release(e *entry) {
	needed := e.pending || e.standing || e.unseen
	if !needed {
		delete(s.kept, e.n)
	}
	if !e.sent || e.size < 0 {
		return // the line is still to be sent, or all is done
	}
	switch {
	case !needed:
		s.held -= e.size + entryCost
		e.size = -1
		if e.file != nil {
			s.files = append(s.files, e.file)
			e.file = nil
		}
		if n := cap(e.line) + entryCost; !e.shared && s.spared+n <= maxSpare {
			s.spare = append(s.spare, e)
			s.spared += n
		} else {
			e.line = nil
		}
	case s.held > s.limit && e.file == nil && e.line != nil: // else the daemon may have yet to open the file
		e.describe()
		s.held -= e.size
		e.size, e.line = 0, nil
	}
}

// takeNext removes the next line to send from the queue and returns it; nil if there is none,
// or if it has more than room bytes. After writing it the caller must call [store.flushed].
func (s *store) takeNext(room int) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unsent()) == 0 || s.queue[s.first].size > room {
		return nil
	}
	e := s.queue[s.first]
	if e.call && e.pending {
		e.calling = true
		s.calls++
	}
	s.queue[s.first] = nil
	if s.first++; s.first == len(s.queue) {
		s.queue, s.first = s.queue[:0], 0
		if cap(s.queue) > maxSpareQueue {
			s.queue = nil
		}
	}
	return e
}

// unsent returns the lines that were not sent yet, in order. The caller must hold s.mu.
func (s *store) unsent() []*entry { return s.queue[s.first:] }

// hasUnsent reports whether lines wait to be sent.
func (s *store) hasUnsent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unsent()) > 0
}

// takeBack undoes takeNext: the connection broke, and no byte of e was written. Lines are
// taken back in the opposite order.
func (s *store) takeBack(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == 0 {
		s.queue = slices.Insert(s.queue, 0, e)
	} else {
		s.first--
		s.queue[s.first] = e
	}
	s.notCalling(e)
}

// notCalling records that e, if it is a call, is not in flight any more. The caller must hold
// s.mu.
func (s *store) notCalling(e *entry) {
	if e.calling {
		e.calling = false
		s.calls--
	}
}

// flushed records that e's line was written, or that the connection broke in the middle of
// it: no more of it will be written on this connection.
func (s *store) flushed(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.sent = true
	s.queued -= e.size
	s.release(e)
}

// full reports whether the proxy must not read the client's next line yet. While there is a
// connection (up), the proxy reads little ahead of the daemon; without one it reads all that
// the store may hold.
func (s *store) full(up bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxKept {
		return true
	}
	if up {
		// A daemon that does not read holds up the client, as a server would.
		return s.queued > readAhead
	}
	return s.held >= s.limit
}

// isFull reports whether as much is held as may be.
func (s *store) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held >= s.limit
}

// answer reports whether the proxy must copy the answer to line n to the client: if, and only if,
// the client waits for it. Then the caller must call [store.copied] afterwards. n is 0 if the daemon
// has not said it: the answer is for the oldest request of its id then.
// A request that has succeeded may have an effect that a resume repeats; answer records that, too.
func (s *store) answer(n int64, id jsonrpc.ID, failed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.awaitedLocked(n, id)
	if e == nil {
		return false
	}
	if !failed {
		s.succeeded(e)
	}
	s.settled(e)
	s.due++
	return true
}

// awaitedLocked returns the request that an answer is for, as [store.answer] says; nil if the client
// waits for none. The caller must hold s.mu.
func (s *store) awaitedLocked(n int64, id jsonrpc.ID) *entry {
	if n == 0 {
		return s.byID[key(id)]
	}
	if e := s.kept[n]; e != nil && e.pending {
		return e
	}
	return nil
}

// waitsFor reports whether the client waits for the answer to line n, or, if n is 0, to a request of
// that id.
func (s *store) waitsFor(n int64, id jsonrpc.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaitedLocked(n, id) != nil
}

// removeFiles removes the files of lines that are not needed any more. all says that none is.
func (s *store) removeFiles(all bool) {
	s.mu.Lock()
	files := s.files
	s.files = nil
	if all {
		for _, e := range append(slices.Collect(maps.Values(s.kept)), s.unsent()...) {
			if e.file != nil {
				files = append(files, e.file)
				e.file = nil
			}
		}
	}
	s.mu.Unlock()
	for _, f := range files {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
}

// copied records that n answers were written to the client.
func (s *store) copied(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due -= n
}

// relay reports whether the proxy must copy a server's request to the client, and records
// that it does. After a resume the daemon may send a request again; the client must get it
// once.
func (s *store) relay(id jsonrpc.ID) bool {
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

// seen records that a server has the response in line n: no resume repeats it.
func (s *store) seen(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.kept[n]; e != nil && e.unseen {
		e.unseen = false
		s.release(e)
	}
}

// keep keeps what a daemon says for the next one. It ignores what is too long or too much.
func (s *store) keep(facts map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, value := range facts {
		_, known := s.facts[name]
		switch {
		case value == "":
			delete(s.facts, name)
		case len(name)+len(value) <= maxFact && (known || s.hasRoomFor(name)):
			s.facts[name] = value
		}
	}
}

// hasRoomFor reports whether a further fact may be kept. The caller must hold s.mu.
func (s *store) hasRoomFor(fact string) bool {
	if !strings.HasPrefix(fact, protocol.NotedFact) {
		return len(s.facts) < maxFacts
	}
	noted := 0
	for name := range s.facts {
		if strings.HasPrefix(name, protocol.NotedFact) {
			noted++
		}
	}
	return noted < maxNoted
}

// factsKept returns a copy of the facts.
func (s *store) factsKept() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.facts)
}

// endInput records that the client sends no more lines.
func (s *store) endInput() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eof = true
}

// state reports whether the client has closed its side. drained is true if, besides, all its
// lines are sent and all its answers are copied.
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
	return s.calls
}

// nextLocked is the number of the first line that no connection was handed.
func (s *store) nextLocked() int64 {
	if len(s.unsent()) > 0 {
		return s.queue[s.first].n
	}
	return s.last + 1
}
