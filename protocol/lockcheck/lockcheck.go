// Package lockcheck finds system calls that are made under a lock. A lock that
// many goroutines share is a [Mutex], and code that is about to read or write a
// file, a socket or a pipe, or to start a process, calls [Blocking]. Test
// binaries call [Watch]; then each Blocking in a goroutine that holds a Mutex is
// reported. In the program itself both cost a comparison with nil.
package lockcheck

import (
	"runtime"
	"sync"
)

// watcher is nil but in test binaries. It is written before other goroutines run.
var watcher *watch

// watch records which goroutines hold locks.
type watch struct {
	goroutine func() int64
	report    func(call string, stack []byte)

	mu      sync.Mutex       // guards what follows
	held    map[int64]int    // locks that a goroutine holds, by its id
	holders map[*Mutex]int64 // ids of the goroutines that hold locks
}

// Watch reports each [Blocking] call under a [Mutex], with the stack of its
// goroutine; report may be called from several goroutines. goroutine returns the
// id of the goroutine that calls it. Watch is for test binaries, before they start
// goroutines; package lockchecktest calls it.
func Watch(goroutine func() int64, report func(call string, stack []byte)) {
	watcher = &watch{goroutine: goroutine, report: report, held: map[int64]int{}, holders: map[*Mutex]int64{}}
}

// locked records that the calling goroutine holds m.
func (w *watch) locked(m *Mutex) {
	id := w.goroutine()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders[m] = id
	w.held[id]++
}

// unlocked records that the goroutine that holds m is about to unlock it.
func (w *watch) unlocked(m *Mutex) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.holders[m]
	delete(w.holders, m)
	if w.held[id]--; w.held[id] == 0 {
		delete(w.held, id)
	}
}

// Blocking says that the caller is about to make a system call that can block.
func Blocking(call string) {
	if watcher == nil {
		return
	}
	id := watcher.goroutine()
	watcher.mu.Lock()
	held := watcher.held[id]
	watcher.mu.Unlock()
	if held > 0 {
		stack := make([]byte, 16<<10)
		watcher.report(call, stack[:runtime.Stack(stack, false)])
	}
}

// Mutex is a [sync.Mutex] under which no system call may be made that can block.
type Mutex struct {
	mu sync.Mutex
}

// Lock locks m.
func (m *Mutex) Lock() {
	m.mu.Lock()
	if watcher != nil {
		watcher.locked(m)
	}
}

// TryLock tries to lock m, and reports whether it did.
func (m *Mutex) TryLock() bool {
	locked := m.mu.TryLock()
	if locked && watcher != nil {
		watcher.locked(m)
	}
	return locked
}

// Unlock unlocks m. The goroutine that locked it has to do so.
func (m *Mutex) Unlock() {
	if watcher != nil {
		watcher.unlocked(m)
	}
	m.mu.Unlock()
}
