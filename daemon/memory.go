package daemon

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
)

// Memory that is given back to the system.
const (
	// idleAllocs is how much a daemon that counts as idle allocates at most
	// between two looks, in bytes.
	idleAllocs = 4 << 20
	// idleHeld is how much more than after the last time it may hold before it
	// gives memory back, in bytes.
	idleHeld = 16 << 20
	// softLimit is the memory from which on the runtime collects garbage at
	// once, in bytes. Otherwise it waits until there is as much garbage as there
	// is data, which after a few answers of the greatest size is very much.
	softLimit = 192 << 20
)

// heap gives memory back to the system when the daemon is idle. The runtime by
// itself keeps what a burst of large answers has needed for minutes.
type heap struct {
	samples []metrics.Sample
	allocs  uint64 // at the last look
	held    uint64 // after memory was given back
	release func()
}

func newHeap() *heap {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		debug.SetMemoryLimit(softLimit)
	}
	return &heap{release: debug.FreeOSMemory, samples: []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}}
}

// look gives memory back if nothing much has happened since the last look, and
// there is enough to give.
func (h *heap) look() {
	allocs, held := h.read()
	idle := allocs-h.allocs <= idleAllocs
	h.allocs = allocs
	if idle && held > h.held+idleHeld {
		h.release()
		h.allocs, h.held = h.read()
	}
}

// read returns how much was ever allocated, and how much memory of the system is
// held now, both in bytes.
func (h *heap) read() (allocs, held uint64) {
	metrics.Read(h.samples)
	return h.samples[0].Value.Uint64(), h.samples[1].Value.Uint64() - h.samples[2].Value.Uint64()
}
