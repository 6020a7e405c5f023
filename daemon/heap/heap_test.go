package heap

import (
	"runtime"
	"testing"
)

// TestHeapGivesBack checks that memory needed by a burst is returned to the system when the program
// is idle again, once more a while after that, and not while it is busy.
func TestHeapGivesBack(t *testing.T) {
	h := newReleaser(0)
	given, release := 0, h.release
	h.release = func() { given++; release() }
	for range 4 {
		h.check()
	}
	before := given
	burst := make([]byte, 64<<20)
	for i := 0; i < len(burst); i += 4096 {
		burst[i] = 1
	}
	h.check()
	if given != before {
		t.Error("memory is given back while much happens")
	}
	_, full := h.readMetrics()
	runtime.KeepAlive(burst) // and no longer
	h.check()
	if _, now := h.readMetrics(); given != before+1 || now+32<<20 > full {
		t.Errorf("given back %d times, %d MiB are held of %d", given-before, now>>20, full>>20)
	}
	for range 3 {
		h.check()
	}
	if given != before+2 {
		t.Errorf("given back %d times although nothing has happened since", given-before)
	}
}

// TestHeapKeeps checks that a heap below what is to be kept is left alone.
func TestHeapKeeps(t *testing.T) {
	h := newReleaser(1 << 40)
	h.release = func() { t.Error("memory is given back") }
	h.check()
	h.check()
}
