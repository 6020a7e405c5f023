// Package lockcheck finds system calls that are made under a lock. A lock that
// many goroutines share is a [Mutex], and code that is about to read or write a
// file, a socket or a pipe, or to start a process, calls [Blocking]. Test
// binaries call [Watch]; then each Blocking in a goroutine that holds a Mutex is
// reported. In the program itself both cost a comparison with nil.
package lockcheck

import (
	"bytes"
	"runtime"
	"sync"
)

// watcher is nil but in test binaries. It is written before other goroutines run.
var watcher *watch

// watch records which goroutines hold locks.
type watch struct {
	report func(call string, stack []byte)

	mu   sync.Mutex     // guards held
	held map[string]int // locks that a goroutine holds, by its id
}

// Watch reports each [Blocking] call under a [Mutex], with the stack of its
// goroutine; report may be called from several goroutines. It is for test
// binaries, before they start goroutines.
func Watch(report func(call string, stack []byte)) {
	watcher = &watch{report: report, held: map[string]int{}}
}

// goroutineID returns the id of the calling goroutine, as a stack begins with it.
func goroutineID() string {
	var b [64]byte
	fields := bytes.Fields(b[:runtime.Stack(b[:], false)])
	return string(fields[1])
}

// count adds change to the number of locks that the calling goroutine holds.
func (w *watch) count(change int) {
	id := goroutineID()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[id] += change; w.held[id] == 0 {
		delete(w.held, id)
	}
}

// Blocking says that the caller is about to make a system call that can block.
func Blocking(call string) {
	if watcher == nil {
		return
	}
	id := goroutineID()
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
		watcher.count(1)
	}
}

// TryLock tries to lock m, and reports whether it did.
func (m *Mutex) TryLock() bool {
	locked := m.mu.TryLock()
	if locked && watcher != nil {
		watcher.count(1)
	}
	return locked
}

// Unlock unlocks m. The goroutine that locked it has to do so.
func (m *Mutex) Unlock() {
	if watcher != nil {
		watcher.count(-1)
	}
	m.mu.Unlock()
}
