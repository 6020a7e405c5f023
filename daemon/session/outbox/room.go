package outbox

import (
	"context"
	"maps"
	"slices"
	"time"

	"holdline/protocol/lockcheck"
)

// Memory of answers that wait for guests, in bytes. One of the greatest size has room at each socket.
const (
	roomOfSocket = 72 << 20
	roomOfAll    = 80 << 20
)

// freeSize is how much may wait for a guest without taking room.
const freeSize = 64 << 10

// A guest for which answers wait takes guestStep bytes in guestWait at least, or its session may end:
// as soon as another one waits for room.
const (
	guestStep = 256 << 10
	guestWait = 15 * time.Second
)

// guestPiece is how much the connection of a guest is given at once.
const guestPiece = 64 << 10

// lookAgain is the pause after which who waits for room looks for guests that take nothing.
const lookAgain = 5 * time.Second

// Room bounds the memory of answers that wait for guests: those that are queued, those that the guest has
// not acknowledged, those that are kept until it is back, and those that are about to be queued. Others
// stay in their files meanwhile. The zero Room is ready for use.
type Room struct {
	mu      lockcheck.Mutex
	taken   int               // by all sockets; guarded by mu, as all below
	sockets map[string]*share // that have guests
	freed   chan struct{}     // closed when room is given back; nil if nobody waits for that
}

// share is what the guests of one socket take of a [Room].
type share struct {
	taken  int
	guests map[*Guest]struct{}
}

// Guest is one session that takes room. The methods of a nil Guest, which all other sessions have, do
// nothing, and find room.
type Guest struct {
	room   *Room
	socket string
	end    func() // ends the session, without waiting for that

	// All below is guarded by room.mu.
	taken int
	given int       // bytes that it has taken since then
	since time.Time // when it had last taken guestStep bytes, or took its first room
	gone  bool
}

// Join returns what stands for a session of a guest of that socket. The caller must call [Guest.Leave] when
// the session has ended. end ends it; it must not wait, and is called without any lock.
func (r *Room) Join(socket string, end func()) *Guest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sockets == nil {
		r.sockets = map[string]*share{}
	}
	if r.sockets[socket] == nil {
		r.sockets[socket] = &share{guests: map[*Guest]struct{}{}}
	}
	g := &Guest{room: r, socket: socket, end: end}
	r.sockets[socket].guests[g] = struct{}{}
	return g
}

// Leave gives back all that the session takes; it takes nothing any more.
func (g *Guest) Leave() {
	if g == nil {
		return
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	g.moveLocked(-g.taken)
	g.gone = true
	of := g.room.sockets[g.socket]
	if delete(of.guests, g); len(of.guests) == 0 {
		delete(g.room.sockets, g.socket)
	}
}

// Take makes held, which says how much of the room something takes, fit its size in bytes, and returns
// true; or false if there is no room, and changes nothing. What becomes smaller always has room.
func (g *Guest) Take(held *int, size int) bool { return g.fit(held, size, false) }

// Force is [Guest.Take] for what is in memory in any case.
func (g *Guest) Force(held *int, size int) { g.fit(held, size, true) }

// fit is [Guest.Take], or [Guest.Force].
func (g *Guest) fit(held *int, size int, force bool) bool {
	if g == nil {
		return true
	}
	if size <= freeSize {
		size = 0
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	more := size - *held
	if more > 0 && !force && !g.fitsLocked(more) {
		return false
	}
	g.moveLocked(more)
	*held = size
	return true
}

// Await is [Guest.Take] for something new, and blocks until there is room, or ctx is done: then it
// returns its cause.
func (g *Guest) Await(ctx context.Context, held *int, size int) error {
	size = min(size, roomOfSocket)
	for {
		freed, patience := g.waits()
		if g.Take(held, size) {
			return nil
		}
		select {
		case <-freed:
		case <-patience:
			g.makeRoom(size)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Took records that n bytes have gone to the guest, or that it has acknowledged so many.
func (g *Guest) Took(n int) {
	if g == nil {
		return
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	if g.given += n; g.given >= guestStep {
		g.given, g.since = 0, time.Now()
	}
}

// waits returns a channel that is closed when room is given back, and one that yields when it is time for
// [Guest.makeRoom]. They are nil for a nil Guest. Call it before looking for room.
func (g *Guest) waits() (freed <-chan struct{}, patience <-chan time.Time) {
	if g == nil {
		return nil, nil
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	if g.room.freed == nil {
		g.room.freed = make(chan struct{})
	}
	return g.room.freed, time.After(lookAgain)
}

// makeRoom ends sessions that take too little of what waits for them, the greatest first, until there would
// be room for so many bytes. The caller must hold no lock.
func (g *Guest) makeRoom(size int) {
	if g == nil {
		return
	}
	g.room.mu.Lock()
	own := g.room.sockets[g.socket]
	if g.gone {
		own = &share{}
	}
	need := own.lacks(size)
	from := []*share{own}
	if need <= 0 {
		need = g.room.taken + size - roomOfAll
		from = slices.Collect(maps.Values(g.room.sockets))
	}
	var slow []*Guest
	for _, of := range from {
		for other := range of.guests {
			if other.taken > 0 && time.Since(other.since) >= guestWait {
				slow = append(slow, other)
			}
		}
	}
	slices.SortFunc(slow, func(a, b *Guest) int { return b.taken - a.taken })
	n := 0
	for ; n < len(slow) && need > 0; n++ {
		need -= slow[n].taken
	}
	g.room.mu.Unlock()
	for _, other := range slow[:n] {
		other.end()
	}
}

// fitsLocked reports whether there is room for so many bytes more. The caller must hold room.mu.
func (g *Guest) fitsLocked(more int) bool {
	return !g.gone && g.room.taken+more <= roomOfAll && g.room.sockets[g.socket].lacks(more) <= 0
}

// lacks returns how many bytes are missing for so many more; none if it is not positive.
func (s *share) lacks(more int) int { return s.taken + more - roomOfSocket }

// moveLocked records that the session takes so many bytes more, or less. The caller must hold room.mu.
func (g *Guest) moveLocked(more int) {
	if g.gone || more == 0 {
		return
	}
	if g.taken == 0 {
		g.given, g.since = 0, time.Now()
	}
	g.taken += more
	g.room.taken += more
	g.room.sockets[g.socket].taken += more
	if more < 0 && g.room.freed != nil {
		close(g.room.freed)
		g.room.freed = nil
	}
}
