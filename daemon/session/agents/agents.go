// Package agents counts what each client process uses in all its sessions together.
package agents

import (
	"cmp"
	"sync/atomic"

	"holdline/protocol/lockcheck"
)

// A Table has the client processes that have sessions. It is safe for concurrent use.
type Table struct {
	limit atomic.Int64 // calls that an agent may have in flight

	mu    lockcheck.Mutex // guards byKey, and sessions of each agent
	byKey map[string]*Agent
}

// An Agent is a client process. Most have one session for each server that they use,
// all of them children of the one process.
type Agent struct {
	table    *Table
	key      string       // of the client process
	limit    int64        // calls that it may have in flight; 0 is the table's
	sessions int          // that have not ended; guarded by table.mu
	calls    atomic.Int64 // in flight
}

// New returns a table without agents.
func New() *Table { return &Table{byKey: map[string]*Agent{}} }

// SetLimit sets the number of calls that each agent without a limit of its own may have in flight
// from now on; calls that are in flight already go on. It takes no lock.
func (t *Table) SetLimit(calls int) { t.limit.Store(int64(calls)) }

// Join counts one more session of the agent of that key, and returns the agent, which it adds to
// the table if there is none. limit is the number of calls that a new agent may have in flight; 0
// means the limit of the table. An agent that is there keeps its limit. It takes t.mu.
func (t *Table) Join(key string, limit int) *Agent {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.byKey[key]
	if a == nil {
		a = &Agent{table: t, key: key, limit: int64(limit)}
		t.byKey[key] = a
	}
	a.sessions++
	return a
}

// Part counts one session less, after one that [Table.Join] has counted has ended. With its last
// session it removes the agent from the table, and returns the agent's key; else it returns "".
// It takes the mutex of the table.
func (a *Agent) Part() string {
	a.table.mu.Lock()
	defer a.table.mu.Unlock()
	if a.sessions--; a.sessions > 0 {
		return ""
	}
	delete(a.table.byKey, a.key)
	return a.key
}

// BeginCall counts a call in flight and returns true; the caller must call [Agent.EndCall] when
// the call ends. If the agent has as many as it may have, BeginCall counts nothing and returns
// false. limit is the agent's limit in both cases. It takes no lock, and does not block.
func (a *Agent) BeginCall() (limit int, ok bool) {
	most := cmp.Or(a.limit, a.table.limit.Load())
	if a.calls.Add(1) > most {
		a.calls.Add(-1)
		return int(most), false
	}
	return int(most), true
}

// ContinueCall is [Agent.BeginCall] for a call that an earlier daemon has begun: the limit was
// looked at then.
func (a *Agent) ContinueCall() { a.calls.Add(1) }

// EndCall ends a call that [Agent.BeginCall] or [Agent.ContinueCall] has counted. It takes no lock.
func (a *Agent) EndCall() { a.calls.Add(-1) }
