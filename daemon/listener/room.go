package listener

import "holdline/protocol/lockcheck"

// Memory of long messages of guests, in bytes. A message of the greatest size has room at each socket,
// whatever the guests of another one do. All together stay below what the daemon may use before the
// runtime collects garbage all the time (package heap).
const (
	roomOfSocket = 72 << 20
	roomOfAll    = 2 * roomOfSocket
)

// freeSize is the size of a message, or of a buffer, that takes no room: there are only as many of them
// as connections, and calls in flight.
const freeSize = 64 << 10

// Room bounds the memory that long messages of guests take: those that have not ended yet, and those
// whose calls are in flight. Make one with [NewRoom].
type Room struct {
	mu   lockcheck.Mutex
	left int // guarded by mu
}

// Share is the part of a [Room] that the guests of one socket have. A nil Share has no bounds.
type Share struct {
	of   *Room
	left int // guarded by of.mu
}

// NewRoom returns the room for the guests of all sockets.
func NewRoom() *Room { return &Room{left: roomOfAll} }

// Share returns the part of another socket.
func (r *Room) Share() *Share { return &Share{of: r, left: roomOfSocket} }

// Resize records that something which takes held bytes of the room is about to have size bytes, and
// returns how many of the room it takes then. It returns held and false, and changes nothing, if there
// is no room for it; what becomes smaller always has room.
func (s *Share) Resize(held, size int) (now int, ok bool) {
	if size <= freeSize {
		size = 0
	}
	if s == nil || size == held {
		return size, true
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if more := size - held; more > 0 && more > min(s.left, s.of.left) {
		return held, false
	}
	s.left -= size - held
	s.of.left -= size - held
	return size, true
}
