package dispatch

import (
	"context"
	"maps"
	"slices"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/detached"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tasks"
	"holdline/protocol/mcp"
)

// A Recall returns the server whose process has a call, and what was called. It is called
// without the hub's mutex.
type Recall func(c *upstream.Call) (Server, *listing.Offer)

// LoadTasks reads the tasks of earlier daemons, once the records of calls are known. Calls of
// tasks that work go on; a task whose call is on record nowhere has ended. Unless whole is set, some
// records are yet to be read: tasks without a call wait for [Dispatcher.LoadLateTasks]. If dir is ""
// there are no tasks.
func (d *Dispatcher) LoadTasks(dir string, recall Recall, whole bool) error {
	if dir == "" {
		return nil
	}
	store, err := detached.Open(d.hub.Life, dir, d.hub.Log)
	if err != nil {
		return err
	}
	d.Tasks = store
	all := store.Records()
	d.hub.Mu.Lock()
	for i := range all { // of all, before any of them asks its client
		if c := d.hub.Calls[all[i].Key()]; c != nil {
			c.AskedLocked(all[i].AskedFor())
		} else if !whole {
			d.late = append(d.late, all[i].ID)
		}
	}
	late := slices.Clone(d.late)
	d.hub.Mu.Unlock()
	for i := range all {
		if !slices.Contains(late, all[i].ID) {
			d.loadTask(&all[i], recall)
		}
	}
	d.hub.Mu.Lock()
	defer d.hub.Mu.Unlock()
	for _, c := range d.hub.Calls {
		d.withdrawTasklessLocked(c)
	}
	d.hub.WG.Go(func() { store.Run(d.hub.Life) })
	return nil
}

// withdrawTasklessLocked gives up a detached call without a task that can be believed. Its file was there before
// the call was detached: a client that asks for it is told that its outcome is unknown.
func (d *Dispatcher) withdrawTasklessLocked(c *upstream.Call) {
	if id := tasks.ID(c.Key.Session, c.Key.N); c.Claim().IsDetached() && !d.Tasks.Has(id) {
		d.Tasks.Miss(id)
		d.withdrawLocked(c)
	}
}

// FoundLocked says that the records of a process were read after [Dispatcher.LoadTasks].
func (d *Dispatcher) FoundLocked(u *upstream.Process) {
	if d.Tasks == nil {
		return
	}
	for _, id := range d.late {
		if rec, ok := d.Tasks.Record(id); ok {
			if c := d.hub.Calls[rec.Key()]; c != nil {
				c.AskedLocked(rec.AskedFor())
			}
		}
	}
	for _, c := range slices.Collect(maps.Values(u.Calls)) {
		d.withdrawTasklessLocked(c)
	}
}

// LoadLateTasks goes on with the tasks of earlier daemons whose calls are known now; with whole set,
// with all.
func (d *Dispatcher) LoadLateTasks(recall Recall, whole bool) {
	var found []detached.Record
	d.hub.Mu.Lock()
	d.late = slices.DeleteFunc(d.late, func(id string) bool {
		rec, ok := d.Tasks.Record(id)
		if ok && !whole && d.hub.Calls[rec.Key()] == nil {
			return false
		}
		if ok {
			found = append(found, rec)
		}
		return true
	})
	d.hub.Mu.Unlock()
	for i := range found {
		d.loadTask(&found[i], recall)
	}
}

// loadTask goes on with a task of an earlier daemon.
func (d *Dispatcher) loadTask(rec *detached.Record, recall Recall) {
	d.hub.Mu.Lock()
	key := rec.Key()
	c := d.hub.Calls[key]
	final := rec.Status.IsFinal()
	switch {
	case c == nil && final:
		d.hub.Mu.Unlock()
	case c == nil:
		d.hub.Mu.Unlock()
		d.lost(rec)
	case !c.Claim().IsDetached(): // its client waits for the answer: it was never told of a task
		d.hub.Mu.Unlock()
		if !final {
			d.Tasks.Forget(rec.ID)
		}
	case final:
		defer d.hub.Mu.Unlock()
		if rec.Status == tasks.Cancelled { // perhaps nobody has told the server
			for ; c != nil; c = d.hub.Calls[key] {
				d.withdrawLocked(c)
				key.Round++
			}
			return
		}
		d.storedLocked(key.Session, key.N)
	default:
		d.hub.Mu.Unlock()
		s, o := recall(c)
		d.carryOn(s, o, rec)
	}
}

// withdrawLocked gives up a detached call that no client wants.
func (d *Dispatcher) withdrawLocked(c *upstream.Call) {
	c.Demand(calls.Withdraw)
	d.hub.DropLocked(c)
}

// carryOn goes on with the detached call of a task of an earlier daemon, in a goroutine of
// the hub.
func (d *Dispatcher) carryOn(s Server, o *listing.Offer, rec *detached.Record) {
	life, end := context.WithCancelCause(d.hub.Life)
	params := d.Tasks.Resume(rec.ID, func() { end(errCancelled) })
	r := &request{
		Dispatcher: d, s: s, o: o, rc: rec.RemoteCall(params), task: &detachment{id: rec.ID, done: true, end: end},
	}
	if !r.begin(func() {
		defer end(nil)
		res, err := r.handle(life)
		r.finish(life, res, err)
	}) {
		end(nil)
	}
}

// lost ends a task of an earlier daemon whose call is on record nowhere: what happened to it
// is not known. The machine was started again, or its runtime directory removed.
func (d *Dispatcher) lost(rec *detached.Record) {
	f := calls.Facts{Pending: true, Recorded: true} // its file is the record; there is no worker
	if calls.Decide(f) != calls.Unknown {
		return
	}
	o, message := outcome(nil, upstream.UnknownFault(mcp.ToolsCall+":"+rec.Shown, nil, false, 0))
	if err := d.Tasks.End(rec.ID, o, message); err != nil {
		d.hub.Log.Error("what a task has come to cannot be written down", "task", rec.ID, "err", err)
	}
}
