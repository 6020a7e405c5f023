package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"holdline/daemon/masked"
	"holdline/protocol/control"
)

// AwaitExits waits until all processes have exited, or returns the cause of ctx.
func AwaitExits(ctx context.Context, all []*Process) error {
	for _, u := range all {
		select {
		case <-u.Exited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Logs returns what each process of a server wrote to stderr, with the secrets of its
// environment hidden. after and follow are as in [masked.Place], after by worker.
func (h *Hub) Logs(server string, after map[string]int64, follow bool) ([]control.ServerLog, error) {
	h.Mu.Lock()
	var running []*Process
	for u := range h.Processes {
		if u.Server == server && u.State != Exited {
			running = append(running, u)
		}
	}
	h.Mu.Unlock()
	slices.SortFunc(running, func(a, b *Process) int { return cmp.Compare(a.ID, b.ID) })
	logs := []control.ServerLog{}
	for _, u := range running {
		from, known := after[u.ID]
		l, err := u.readLog(masked.Place{From: from, Known: known, Follow: follow})
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
func (h *Hub) Remask(find func(*Process) *masked.Secrets) {
	h.Mu.Lock()
	unknown := map[*Process]*masked.Secrets{}
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
