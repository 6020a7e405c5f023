package spare

import (
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// keptBytes returns how much is kept.
func keptBytes() int {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	return kept.bytes
}

// empty frees what is kept, as after a time of rest.
func empty() {
	kept.mu.Lock()
	kept.used = time.Now().Add(-2 * idle)
	kept.mu.Unlock()
	freeIdle()
}

// TestPutBuffer_IsUsedAgain checks that a buffer that was put is the next one of its size, and
// that a slice which Get did not make is not kept.
func TestPutBuffer_IsUsedAgain(t *testing.T) {
	empty()
	b := append(Get(Least+1), "text"...)
	if cap(b) != 2*Least {
		t.Errorf("room for %d bytes, want %d", cap(b), 2*Least)
	}
	first := unsafe.SliceData(b)
	Put(b)
	small := Get(Least)
	if unsafe.SliceData(small) == first {
		t.Error("a larger buffer than needed is taken")
	}
	if b = Get(2 * Least); unsafe.SliceData(b) != first || len(b) != 0 {
		t.Errorf("another buffer is taken, of %d bytes", len(b))
	}
	before := keptBytes()
	for _, strange := range [][]byte{nil, make([]byte, Least-1), make([]byte, Least+1), b[1:2]} {
		if Put(strange); keptBytes() != before {
			t.Errorf("a slice of %d bytes is kept", cap(strange))
		}
	}
	Put(small) // so that the collector brings back nothing in a later test
	Put(b)
}

// TestForgottenBuffer_IsKept checks that a buffer is kept once nothing refers to it, and is
// freed after a while.
func TestForgottenBuffer_IsKept(t *testing.T) {
	const rare = 8 * Least // which no other test uses
	keptOnes := func() int {
		kept.mu.Lock()
		defer kept.mu.Unlock()
		return len(kept.free[sizeOf(rare)])
	}
	part := Get(rare)[8:16]
	runtime.GC()
	if keptOnes() > 0 {
		t.Error("a buffer is kept of which a part is used")
	}
	runtime.KeepAlive(part)
	for deadline := time.Now().Add(10 * time.Second); keptOnes() == 0; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatal("a buffer that nothing refers to is not kept")
		}
	}
	if empty(); keptOnes() > 0 {
		t.Error("a buffer is kept after a time of rest")
	}
}

// TestKept_IsBounded checks that no more than maxKept bytes are kept.
func TestKept_IsBounded(t *testing.T) {
	empty()
	for _, b := range [][]byte{Get(maxKept), Get(maxKept), Get(2 * maxKept)} {
		Put(b)
	}
	if n := keptBytes(); n == 0 || n > maxKept {
		t.Errorf("%d bytes are kept, the most is %d", n, maxKept)
	}
	empty()
}

// TestGrow_KeepsBytes checks that a buffer that grows has its bytes, and room.
func TestGrow_KeepsBytes(t *testing.T) {
	var b []byte
	for i := range 5 * Least / 2 {
		b = append(Grow(b, 1), byte(i))
	}
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, b[i])
		}
	}
	Put(b)
}
