// Package footprint measures how much memory processes and what they have started take.
package footprint

import (
	"context"
	"sync"
	"time"

	"holdline/protocol/process"
)

// Memory is how much memory processes take, in bytes.
type Memory struct {
	// Total is their share of the machine's memory. On Linux that is the proportional set
	// size: a page that several processes have in common is divided among them.
	Total int64
	// Private is the part that a further process of the same program would need, too: all
	// but the pages of files, such as the program itself.
	Private int64
}

// A Tree is a process and what comes from it.
type Tree struct {
	Own       Memory // of the root
	Below     Memory // of its descendants
	Processes int    // number of the descendants
}

// Bounds of a measurement. The memory of one process takes the kernel about a millisecond for
// each 100 MB.
const (
	// fresh is how long a measurement is used again, and usable how long it is returned while
	// the next one is under way.
	fresh  = time.Second
	usable = 5 * time.Second
	// patience bounds the wait for one.
	patience = 500 * time.Millisecond
	// exactTime is how long processes are measured exactly. The rest are measured by numbers
	// that the kernel has at hand, which count a shared page for each process.
	exactTime = 300 * time.Millisecond
)

// A Meter measures trees of processes, at most one time a second, whoever asks. Its zero value
// is ready.
type Meter struct {
	mu      sync.Mutex // guards what follows
	trees   map[int]Tree
	at      time.Time     // when trees were measured
	running chan struct{} // closed at the end of the measurement under way; nil if there is none
}

// Trees returns the trees below the processes with these pids, as they were lately. It measures
// them anew if that is more than a second ago, and waits for that if it is more than five; but
// for [patience] at most: if the kernel is slow, it returns what an earlier measurement has
// found. A tree that was not measured is missing.
func (m *Meter) Trees(ctx context.Context, roots []int) map[int]Tree {
	m.mu.Lock()
	if m.running == nil && time.Since(m.at) > fresh {
		m.running = make(chan struct{})
		go m.measure(roots, m.running) // it ends by itself; there is one at most
	}
	running, old := m.running, time.Since(m.at) > usable
	m.mu.Unlock()
	if running != nil && old {
		select {
		case <-running:
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.trees
}

// measure replaces the trees by those below roots, and then closes done.
func (m *Meter) measure(roots []int, done chan struct{}) {
	trees := measureTrees(roots, time.Now().Add(exactTime))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trees, m.at, m.running = trees, time.Now(), nil
	close(done)
}

// measureTrees returns the trees below roots, by the pids of the roots. It measures exactly until
// the deadline.
func measureTrees(roots []int, deadline time.Time) map[int]Tree {
	all, err := process.List()
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, p := range all {
		children[p.PPID] = append(children[p.PPID], p.PID)
	}
	// The members of all trees, so that they can be measured together.
	members := map[int][]int{}
	var pids []int
	for _, root := range roots {
		if root <= 0 || members[root] != nil {
			continue
		}
		members[root] = append([]int{root}, below(children, root)...)
		pids = append(pids, members[root]...)
	}
	memory := measure(pids, deadline)
	trees := map[int]Tree{}
	for root, list := range members {
		t := Tree{Own: memory[root], Processes: len(list) - 1}
		for _, pid := range list[1:] {
			t.Below.Total += memory[pid].Total
			t.Below.Private += memory[pid].Private
		}
		trees[root] = t
	}
	return trees
}

// below returns the descendants of a process.
func below(children map[int][]int, root int) []int {
	var found []int
	seen := map[int]bool{root: true}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, pid := range children[next[0]] {
			if !seen[pid] { // a reused pid could make a ring of what was read
				seen[pid] = true
				found, next = append(found, pid), append(next, pid)
			}
		}
	}
	return found
}
