package spare

import "testing"

// TestBuffers checks that a buffer is large enough, that it is used again, and that not too much
// is kept.
func TestBuffers(t *testing.T) {
	var b Buffers
	for _, n := range []int{0, 1, least, least + 1, 3 * least, least << 5, least<<5 + 1, 1 << 20} {
		buf := b.Get(n)
		if len(buf) != 0 || cap(buf) < n || cap(buf) > max(2*n, least) {
			t.Errorf("%d bytes: a buffer of %d with %d", n, cap(buf), len(buf))
		}
		full := append(buf, make([]byte, n)...)
		b.Put(full)
		if kept := n <= least<<5; kept != (b.bytes > 0) {
			t.Errorf("%d bytes: %d are kept", n, b.bytes)
		}
		if again := b.Get(n); n > 0 && n <= least<<5 && &again[:1][0] != &full[0] {
			t.Errorf("%d bytes: another buffer", n)
		}
		if b.bytes != 0 {
			t.Fatalf("%d bytes are left", b.bytes)
		}
	}
	for range 2 * most / least {
		b.Put(make([]byte, least))
	}
	if b.bytes > most {
		t.Errorf("%d bytes are kept", b.bytes)
	}
}
