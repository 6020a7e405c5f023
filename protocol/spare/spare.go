// Package spare keeps large buffers for the next long line. Memory that is new to a process
// costs more than what is then done with it: for each page the kernel has to find and clear
// one. So a process that carries one long line after another uses the same buffers again.
//
// What nobody has used for a second goes back to the system.
package spare

import (
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
	"unsafe"
)

const (
	// Least is the size of the smallest buffers that are kept, in bytes.
	Least = 64 << 10
	// maxKept bounds what is kept, in bytes.
	maxKept = 64 << 20
	// idle is how long buffers are kept that are not used.
	idle = time.Second
	// sizes is how many sizes there are: each is twice the one before. Larger buffers than
	// the largest, of 128 MiB, are not kept.
	sizes = 12
)

// kept are the buffers that nobody uses.
var kept struct {
	mu    sync.Mutex
	free  [sizes][][]byte // by size
	bytes int             // of all
	used  time.Time       // when a buffer was last taken or put
	timer *time.Timer     // frees them; nil if it does not run
}

// Get returns an empty slice with a capacity of n bytes or more. What is behind its length
// may be anything. A caller that knows when it is done with the buffer should [Put] it. If it
// does not, the buffer is kept once the collector finds that nothing refers to it.
func Get(n int) []byte {
	size := sizeOf(n)
	if n < Least || size >= sizes {
		return make([]byte, 0, n)
	}
	kept.mu.Lock()
	var b []byte
	if free := kept.free[size]; len(free) > 0 {
		last := len(free) - 1
		b, free[last] = free[last], nil
		kept.free[size] = free[:last]
		kept.bytes -= cap(b)
		touchLocked()
	}
	kept.mu.Unlock()
	if b == nil {
		b = make([]byte, 0, Least<<size)
	}
	runtime.SetFinalizer(unsafe.SliceData(b), func(first *byte) { keep(unsafe.Slice(first, Least<<size)[:0]) })
	return b
}

// Put gives back a buffer. Its caller, and all to whom it has given a part of the buffer, must
// not use it any more. b has to begin where the buffer of [Get] does. Put does nothing with a
// slice that is not from Get.
func Put(b []byte) {
	size := sizeOf(cap(b))
	if cap(b) < Least || size >= sizes || cap(b) != Least<<size {
		return
	}
	runtime.SetFinalizer(unsafe.SliceData(b), nil)
	keep(b[:0])
}

// Grow returns a slice with the bytes of b and room for n more. It puts the buffer of b, if
// that becomes too small: the caller must be the only one that uses it. At least it doubles
// the room, and from little on it does more.
func Grow(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	next := 2 * cap(b)
	if cap(b) < 1<<20 {
		next = 4 * cap(b)
	}
	grown := append(Get(max(next, len(b)+n)), b...)
	Put(b)
	return grown
}

// sizeOf returns the number of the smallest size that has room for n bytes.
func sizeOf(n int) int { return bits.Len(uint(max(n, 1)-1) / Least) }

// keep keeps a buffer that nobody uses, unless enough are kept.
func keep(b []byte) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.bytes+cap(b) > maxKept {
		return
	}
	size := sizeOf(cap(b))
	kept.free[size] = append(kept.free[size], b)
	kept.bytes += cap(b)
	touchLocked()
}

// touchLocked notes that a buffer was used.
func touchLocked() {
	kept.used = time.Now()
	if kept.timer == nil {
		kept.timer = time.AfterFunc(idle, freeIdle)
	}
}

// freeIdle frees all buffers once none was used for a while.
func freeIdle() {
	kept.mu.Lock()
	if left := idle - time.Since(kept.used); left > 0 {
		kept.timer.Reset(left)
		kept.mu.Unlock()
		return
	}
	kept.timer, kept.bytes = nil, 0
	clear(kept.free[:])
	kept.mu.Unlock()
	debug.FreeOSMemory()
}
