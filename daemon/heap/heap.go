// Package heap gives memory back when a process of the whole program is idle: the daemon, a
// consult's engine process, or that of a remote server. It also measures this process.
package heap

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/idlemem"
)

// Memory that is given back to the system.
const (
	// idleAllocs is how much an idle daemon allocates at most between two calls of
	// [releaser.check], in bytes.
	idleAllocs = 512 << 10
	// idleHeap and idleProgram are the bytes of the heap and of the program that an idle
	// daemon may hold on top of what it held after the last time, before it gives them back.
	// Each time takes it about a millisecond.
	idleHeap    = 256 << 10
	idleProgram = 512 << 10
	// softLimit is the memory from which on the runtime collects garbage at
	// once, in bytes. Otherwise it waits until there is as much garbage as there
	// is data, which after a few answers of the greatest size is very much.
	softLimit = 192 << 20
)

// releaser gives memory back to the system when the daemon is idle. The runtime by
// itself keeps what a burst of large answers has needed for minutes. The kernel keeps
// each page of the program that was used once, such as by the start, until memory is short.
type releaser struct {
	samples []metrics.Sample
	keep    uint64 // bytes of the heap that are never given back
	allocs  uint64 // bytes ever allocated, at the last check
	held    uint64 // bytes of the heap held after memory was given back
	again   bool   // memory was given back once after the last burst
	program uint64 // bytes of the program in memory after they were given back
	release func()
}

// GiveBack gives memory back to the system whenever this process is idle, until ctx ends. It
// leaves a heap of up to keep bytes alone, and sets the memory limit of the runtime unless the user
// has.
func GiveBack(ctx context.Context, keep uint64) {
	memory, look := newReleaser(keep), time.NewTimer(busyPause)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			look.Reset(memory.check())
		}
	}
}

// newReleaser sets the memory limit of the runtime, unless the user has, and returns
// a releaser. It leaves a heap of up to keep bytes alone: the first collection of a process takes
// about 0.7 MiB for itself, for good.
func newReleaser(keep uint64) *releaser {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT is not set
		debug.SetMemoryLimit(softLimit)
	}
	return &releaser{keep: keep, release: idlemem.Release, samples: []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}}
}

// When [releaser.check] is to be called again: soon while the daemon is busy, so that an end
// of that is seen, and otherwise seldom, since each call wakes the machine up.
const (
	busyPause = time.Second
	idlePause = 2 * time.Second
)

// Check gives memory back if little was allocated since the last check, and there is
// enough to give back. It returns after how long to call it again.
func (h *releaser) check() (next time.Duration) {
	allocs, held := h.readMetrics()
	idle := allocs-h.allocs <= idleAllocs
	h.allocs = allocs
	// A collection takes longer, the larger the heap. A second one frees what the goroutines of the
	// burst have kept, which end a while after it.
	if idle && (h.again || held > max(h.keep, h.held+max(idleHeap, h.held/8))) {
		h.again = !h.again
		h.release()
		h.allocs, h.held = h.readMetrics()
	}
	if idle && residentProgram() > h.program+idleProgram {
		releaseProgram()
		h.program = residentProgram()
	}
	if idle {
		return idlePause
	}
	return busyPause
}

// readMetrics returns how much was ever allocated, and how much memory of the system the heap
// holds now, both in bytes.
func (h *releaser) readMetrics() (allocs, held uint64) {
	metrics.Read(h.samples)
	for _, part := range h.samples[1:] {
		held += part.Value.Uint64()
	}
	return h.samples[0].Value.Uint64(), held
}

// Usage returns what this process uses.
func Usage() control.Runtime {
	r := control.Runtime{Goroutines: runtime.NumGoroutine(), FDs: descriptors()}
	read := []struct {
		name string
		to   *int64
	}{
		{"/memory/classes/heap/objects:bytes", &r.HeapBytes},
		{"/gc/heap/allocs:objects", &r.Allocs},
		{"/gc/heap/allocs:bytes", &r.AllocBytes},
	}
	samples := make([]metrics.Sample, len(read))
	for i := range read {
		samples[i].Name = read[i].name
	}
	metrics.Read(samples)
	for i := range samples {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			*read[i].to = int64(samples[i].Value.Uint64())
		}
	}
	return r
}

// descriptors returns the number of open descriptors, without the one that counting
// takes; -1 if it cannot be known.
func descriptors() int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return -1
	}
	return len(entries) - 1
}
