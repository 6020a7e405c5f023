// Package serverlog reads what processes of servers wrote to stderr, for people.
package serverlog

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/masked"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// Logs returns what each process of a server wrote to stderr, with the secrets of its
// environment hidden. after and follow are as in [masked.Place], after by worker.
func Logs(h *upstream.Hub, server string, after map[string]int64, follow bool) ([]control.ServerLog, error) {
	h.Mu.Lock()
	var running []*upstream.Process
	for u := range h.Processes {
		if u.Server == server && u.State != stage.Exited {
			running = append(running, u)
		}
	}
	h.Mu.Unlock()
	slices.SortFunc(running, func(a, b *upstream.Process) int { return cmp.Compare(a.ID, b.ID) })
	logs := []control.ServerLog{}
	for _, u := range running {
		from, known := after[u.ID]
		l, err := read(h, u, masked.Place{From: from, Known: known, Follow: follow})
		if err != nil {
			return nil, fmt.Errorf("log of %s: %w", u.ID, err)
		}
		l.Root = u.Owner.Root
		logs = append(logs, l)
	}
	return logs, nil
}

// Remask asks again for the secrets of processes that are unknown. find is called without the
// hub's mutex.
func Remask(h *upstream.Hub, find func(*upstream.Process) *masked.Secrets) {
	h.Mu.Lock()
	unknown := map[*upstream.Process]*masked.Secrets{}
	for u := range h.Processes {
		if secrets := u.Secrets.Load(); secrets.IsUnknown() {
			unknown[u] = secrets
		}
	}
	h.Mu.Unlock()
	for u, before := range unknown {
		if secrets := find(u); !secrets.IsUnknown() {
			u.Secrets.CompareAndSwap(before, secrets)
		}
	}
}

// read reads what the process wrote to stderr, behind the first lines of what it wrote to stdout that is
// no MCP. It returns no text while the
// secrets of the process are unknown.
func read(h *upstream.Hub, u *upstream.Process, at masked.Place) (l control.ServerLog, err error) {
	l = control.ServerLog{Worker: u.ID, Next: at.From}
	w := u.Worker()
	secrets := u.Secrets.Load() // not before: it is known when there is a worker
	if w == nil || secrets.IsUnknown() {
		return l, nil
	}
	l.PID = w.Status().ChildPID
	l.Text, l.Next, err = secrets.ReadLog(filepath.Join(u.Dir, process.FileStderr), at)
	if !at.Known {
		h.Mu.Lock()
		printed := u.PrintedLocked()
		h.Mu.Unlock()
		for i, line := range printed {
			printed[i] = "[stdout, no MCP] " + line + "\n"
		}
		l.Text = strings.Join(printed, "") + l.Text
	}
	return l, err
}
