// Package spare keeps buffers that are used again, so that what a worker passes on becomes no
// garbage: Go's collector takes about 0.7 MiB for itself from its first run on.
package spare

import "math/bits"

const (
	least = 256       // bytes of the smallest buffers that are kept
	most  = 128 << 10 // bytes of all that are kept
)

// Buffers has buffers of several sizes, each twice as large as the one before. The zero Buffers is
// ready for use, by one goroutine at a time.
type Buffers struct {
	kept  [6][][]byte // by class
	bytes int         // of kept
}

// Get returns an empty buffer for n bytes.
func (b *Buffers) Get(n int) []byte {
	class := classOf(n)
	if class >= len(b.kept) {
		return make([]byte, 0, n)
	}
	last := len(b.kept[class]) - 1
	if last < 0 {
		return make([]byte, 0, least<<class)
	}
	buf := b.kept[class][last]
	b.kept[class] = b.kept[class][:last]
	b.bytes -= cap(buf)
	return buf
}

// Put keeps buf if it came from Get and there is room. No other code may use it any more.
func (b *Buffers) Put(buf []byte) {
	n := cap(buf)
	if class := classOf(n); class < len(b.kept) && n == least<<class && b.bytes+n <= most {
		b.kept[class] = append(b.kept[class], buf[:0])
		b.bytes += n
	}
}

// classOf returns the least class whose buffers, of least<<class bytes, hold n bytes.
func classOf(n int) int { return bits.Len(uint(max(n-1, 0)) / least) }
