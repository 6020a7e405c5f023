// Package flight keeps the requests of a session that are not answered yet, and the phase in
// which each of them is.
package flight

import (
	"context"
	"iter"
	"maps"
	"sync/atomic"

	"holdline/daemon/session/agents"
	"holdline/protocol/jsonrpc"
)

// A Flight is a request that is not answered yet.
type Flight struct {
	N            int64                   // number of the client's line
	Subscription bool                    // stays open until the client cancels it
	Late         bool                    // counts as a call until its answer is queued, as those of guests do
	Cancel       context.CancelCauseFunc // ends the work on the request

	agent *agents.Agent // whose call it counts as
	left  atomic.Bool   // it counts no more
	key   string        // of the request's id: equal ids have equal keys
	phase atomic.Int32  // a Phase; changed by [Table.Move] alone
}

// Phase is where a request in flight stands.
//
//	Running   -> Answering: its answer is made, and is about to be queued
//	Running   -> Cancelled: its client cancelled it, or came back without waiting for it
//	Running   -> Finished:  the session ends, or the daemon leaves it to the next one
//	Answering -> Cancelled: as above, before the answer was queued: it never will be
//	Answering -> Finished:  its answer is queued, or kept for the next connection
//
// An outbox reads the phase under its own lock whenever it takes a line for the
// flight. So no progress follows an answer, and nothing at all a cancellation.
type Phase int32

// The phases.
const (
	Running Phase = iota
	Answering
	Cancelled
	Finished
)

// At returns the phase. It takes no lock: the phase may change at once, unless the caller holds
// the session's lock.
func (f *Flight) At() Phase { return Phase(f.phase.Load()) }

// MayReport reports whether progress of the flight may still be sent: whether it is Running. It
// takes no lock.
func (f *Flight) MayReport() bool { return f.At() == Running }

// MayAnswer reports whether the answer to the flight may still be sent: whether it is not
// Cancelled. It takes no lock.
func (f *Flight) MayAnswer() bool { return f.At() != Cancelled }

// A Table has the flights of a session that are Running or Answering, by the ids of their
// requests. A later request takes the id of one that is Answering. The table has no lock of
// its own: its methods need that of the session.
type Table struct {
	agent *agents.Agent
	byKey map[string]*Flight
}

// NewTable returns a table without flights. Flights that are Running count as calls of agent.
func NewTable(agent *agents.Agent) *Table { return &Table{agent: agent, byKey: map[string]*Flight{}} }

// Enter adds f as the flight of the request of that id, counts it as a call of the agent, and
// returns true. If the agent has as many as it may have, Enter changes nothing and returns false.
// limit is the agent's limit in both cases. The caller must hold the session's lock.
func (t *Table) Enter(id jsonrpc.ID, f *Flight) (limit int, ok bool) {
	if limit, ok = t.agent.BeginCall(); ok {
		t.add(id, f)
	}
	return limit, ok
}

// Continue is [Table.Enter] for a request that was in flight at an earlier daemon: no limit refuses
// it now, since it may have had its effect.
func (t *Table) Continue(id jsonrpc.ID, f *Flight) {
	t.agent.ContinueCall()
	t.add(id, f)
}

// add puts f into the table.
func (t *Table) add(id jsonrpc.ID, f *Flight) {
	f.agent, f.key = t.agent, id.Key()
	t.byKey[f.key] = f
}

// Move changes the phase of a flight, and returns true: from Running to any other, or from
// Answering to Cancelled or Finished. It returns false, and changes nothing, for every other
// change. A flight that leaves Running counts no more against the limit of the agent, unless it is Late;
// one that is Cancelled or Finished leaves the table. Move does not call f.Cancel. The caller must hold the
// session's lock.
func (t *Table) Move(f *Flight, to Phase) bool {
	from := f.At()
	if from != Running && (from != Answering || to == Answering) {
		return false
	}
	if to != Answering || !f.Late {
		f.Leave()
	}
	f.phase.Store(int32(to))
	if to != Answering && t.byKey[f.key] == f { // its id may be in use again
		delete(t.byKey, f.key)
	}
	return true
}

// Leave ends a flight's counting against the limit of its agent. It takes no lock.
func (f *Flight) Leave() {
	if !f.left.Swap(true) {
		f.agent.EndCall()
	}
}

// Find returns the flight, Running or Answering, of the request with that id, or nil. The caller
// must hold the session's lock.
func (t *Table) Find(id jsonrpc.ID) *Flight { return t.byKey[id.Key()] }

// All returns an iterator over the flights, Running and Answering, in no particular order.
// [Table.Move] may be called meanwhile. The caller must hold the session's lock until the
// iteration ends.
func (t *Table) All() iter.Seq[*Flight] { return maps.Values(t.byKey) }

// Calls returns the number of Running flights without the subscriptions, which stay open. The
// caller must hold the session's lock.
func (t *Table) Calls() int {
	n := 0
	for _, f := range t.byKey {
		if f.At() == Running && !f.Subscription {
			n++
		}
	}
	return n
}
