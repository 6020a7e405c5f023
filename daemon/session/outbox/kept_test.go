package outbox

import "testing"

// TestKept checks which answers are kept for a client that is away, and in which order it gets
// those for which it still waits.
func TestKept(t *testing.T) {
	var k Kept
	for _, a := range []Answer{
		{N: 3, Line: []byte("three")},
		{N: 1, Line: []byte("one")},
		{N: 2, Line: []byte("two")},
		{N: 4, Line: []byte("stored"), Stored: true},
		{Line: []byte("never asked for again")},
	} {
		k.Add(a)
	}
	if got := k.Bytes(); got != len("threeonetwo") {
		t.Errorf("%d bytes are kept, want %d", got, len("threeonetwo"))
	}
	got := k.Take(map[int64]struct{}{1: {}, 3: {}, 4: {}})
	if len(got) != 2 || got[0].N != 1 || got[1].N != 3 {
		t.Errorf("got %+v, want the answers to 1 and 3", got)
	}
	if k.Bytes() != 0 || k.Take(map[int64]struct{}{2: {}}) != nil {
		t.Error("something is kept after Take")
	}
}
