// Package idlemem gives memory back to the system when a process through which bytes pass
// is idle. The Go runtime by itself keeps what a burst has needed for minutes, and many such
// processes are idle most of the time.
package idlemem

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// least is how many bytes have to pass before memory is given back.
	least = 256 << 10
	// silence is for how long no bytes have passed then.
	silence = time.Second
)

// Releaser gives memory back after [least] bytes and then a second of silence, unless the runtime
// has never collected: there is little garbage then, and a first collection takes about 0.7 MiB
// for itself, for good. The zero Releaser is ready for use, by several goroutines.
type Releaser struct {
	passed  atomic.Int64 // bytes, ever
	done    atomic.Int64 // of them, those before memory was given back
	waiting atomic.Bool  // check is going to run, and uses what follows
	seen    int64        // passed when check was set up
}

// Passed counts n bytes that have passed.
func (r *Releaser) Passed(n int) {
	passed := r.passed.Add(int64(n))
	if passed-r.done.Load() >= least && r.waiting.CompareAndSwap(false, true) {
		r.wait(passed)
	}
}

// wait has check run later, in a goroutine of the runtime's timers.
func (r *Releaser) wait(passed int64) {
	r.seen = passed
	time.AfterFunc(silence, r.check)
}

// check gives memory back if no bytes have passed meanwhile.
func (r *Releaser) check() {
	if passed := r.passed.Load(); passed != r.seen {
		r.wait(passed)
		return
	}
	release()
	r.done.Store(r.seen)
	r.waiting.Store(false)
	r.Passed(0) // bytes may have passed meanwhile, and none may follow
}

// release is replaced by a test.
var release = func() {
	var gc debug.GCStats // unlike runtime.MemStats it is read without stopping the world
	if debug.ReadGCStats(&gc); gc.NumGC > 0 {
		Release()
	}
}

// Release gives memory back at once. It collects twice: what is in a [sync.Pool] stays for
// one collection.
func Release() {
	runtime.GC()
	debug.FreeOSMemory()
}
