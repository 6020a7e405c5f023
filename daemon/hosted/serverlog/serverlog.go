// Package serverlog reads what processes of servers wrote to stderr, for people.
package serverlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/logfile"
	"holdline/daemon/masked"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Logs returns what each process of the servers wrote to stderr, with the secrets of its
// environment hidden.
func Logs(h *upstream.Hub, servers []string, p *control.ServerLogsParams) ([]control.ServerLog, error) {
	h.Mu.Lock()
	var running []*upstream.Process
	for u := range h.Processes {
		if slices.Contains(servers, u.Server) && u.State != stage.Exited {
			running = append(running, u)
		}
	}
	h.Mu.Unlock()
	slices.SortFunc(running, func(a, b *upstream.Process) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.ID, b.ID))
	})
	logs := []control.ServerLog{}
	for _, u := range running {
		from, known := p.After[u.ID]
		l, err := read(h, u, masked.Place{From: from, Known: known, Follow: p.Follow, Since: p.SinceMS})
		if err != nil {
			return nil, fmt.Errorf("log of %s: %w", u.ID, err)
		}
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
	l = control.ServerLog{Server: u.Server, Worker: u.ID, Root: u.Owner.Root, Next: at.From}
	w := u.Worker()
	secrets := u.Secrets.Load() // not before: it is known when there is a worker
	if w == nil || secrets.IsUnknown() {
		return l, nil
	}
	l.PID = w.Status().ChildPID
	part, err := secrets.ReadLog(filepath.Join(u.Dir, process.FileStderr), at)
	l.Text, l.Next = part.Text, part.Next
	first := 0                      // line of the part
	if !at.Known && at.Since == 0 { // it is not known when these were printed
		h.Mu.Lock()
		printed := u.PrintedLocked()
		h.Mu.Unlock()
		for i, line := range printed {
			printed[i] = "[stdout, no MCP] " + line + "\n"
			first += strings.Count(printed[i], "\n")
		}
		l.Text = strings.Join(printed, "") + l.Text
	}
	for _, t := range part.Times {
		l.Times = append(l.Times, control.LogTime{Line: first + t.Line, UnixMS: t.UnixMS})
	}
	return l, err
}

// maxKept bounds what is kept of the log of a process that has ended, in bytes.
const maxKept = 256 << 10

// Keep writes the end of what a process that has ended wrote to the file at path, for
// [Last]. It keeps nothing while the secrets of the process are unknown.
func Keep(h *upstream.Hub, u *upstream.Process, path string) error {
	if u.Secrets.Load().IsUnknown() {
		return nil
	}
	l, err := read(h, u, masked.Place{Most: maxKept})
	if err != nil {
		return err
	}
	l.EndedMS = time.Now().UnixMilli()
	b, err := json.Marshal(&l)
	if err != nil {
		return err
	}
	return statedir.WriteFile(path, b)
}

// Last returns what [Keep] has written to the file at path; nil if there is no such file. Lines before
// since, a Unix time in ms, are left out.
func Last(path string, since int64) (*control.ServerLog, error) {
	var l control.ServerLog
	if err := ownfile.ReadJSON(path, &l); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	} else if err != nil {
		return nil, fmt.Errorf("log of the last process: %w", err)
	}
	if since > 0 {
		dropBefore(&l, since)
	}
	return &l, nil
}

// dropBefore removes the lines that were written before a Unix time in ms.
func dropBefore(l *control.ServerLog, since int64) {
	lines := strings.SplitAfter(l.Text, "\n")
	first := len(lines)
	switch i := slices.IndexFunc(l.Times, func(t control.LogTime) bool {
		return since <= t.UnixMS+logfile.MomentEvery.Milliseconds()
	}); {
	case i >= 0:
		first = min(first, l.Times[i].Line)
		l.Times = slices.Clone(l.Times[i:])
		for j := range l.Times {
			l.Times[j].Line -= first
		}
	case len(l.Times) == 0 && since <= l.EndedMS:
		return
	default:
		l.Times = nil
	}
	l.Text = strings.Join(lines[first:], "")
}
