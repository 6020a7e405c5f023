package listener

import "testing"

// TestRoom checks that the guests of one socket have no more than their share, those of all sockets no
// more than the room, that a message of the greatest size has room beside another socket's, and that
// what is given back is there again.
func TestRoom(t *testing.T) {
	const mib = 1 << 20
	room := NewRoom()
	a, b, c := room.Share(), room.Share(), room.Share()
	take := func(s *Share, held, size, want int, may bool) {
		t.Helper()
		if now, ok := s.Resize(held, size); now != want || ok != may {
			t.Errorf("Resize(%d, %d) = %d, %t, want %d, %t", held, size, now, ok, want, may)
		}
	}
	take(a, 0, freeSize, 0, true)
	take(a, 0, 65*mib, 65*mib, true)
	take(a, 0, 8*mib, 0, false) // more than the share
	take(a, 0, 7*mib, 7*mib, true)
	take(b, 0, 65*mib, 65*mib, true)
	take(c, 0, 8*mib, 0, false) // more than is left of all
	take(c, 0, 7*mib, 7*mib, true)
	take(a, 65*mib, 66*mib, 65*mib, false)
	take(a, 65*mib, freeSize, 0, true)
	take(c, 7*mib, 60*mib, 60*mib, true)
	take(a, 7*mib, 0, 0, true)
	take(b, 65*mib, 0, 0, true)
	take(c, 60*mib, 0, 0, true)
	for _, s := range []*Share{a, b, c} {
		if s.left != roomOfSocket {
			t.Errorf("%d bytes are left, want all", s.left)
		}
	}
	if room.left != roomOfAll {
		t.Errorf("%d bytes of the room are left, want all", room.left)
	}
	take(nil, 0, 65*mib, 65*mib, true)
}
