// Package shelf has an entry for each consult that has ended and whose answer is kept. It decides
// which of them stay.
package shelf

import (
	"maps"
	"slices"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/budget"
	"holdline/daemon/consult/job"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tasks"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
)

// keepTold is how long the answer of a consult is kept at most for a client that has its id.
const keepTold = 24 * time.Hour

// An Entry is what stays in memory of an answer: what lists and budgets need. The answer itself
// is on disk.
type Entry struct {
	Info    answer.Info
	Project string       // key of the project of the client that asked
	Task    *tasks.Asked // by which the client asks for it; nil for none
	Told    bool         // a client has its id: it was detached
	Fetched bool         // a client has asked for it since its end
	Follows bool         // it was begun by consult_say
	Session string       // the program's own; "" if there is none
	Cost    budget.Cost
	Window  *engine.Window
	Answer  *answer.Answer // only if it could not be written
	Claim   *job.Claim     // of the client that asked
}

// NewEntry returns the entry of an answer, with the claim of the client that asked.
func NewEntry(a *answer.Answer, rec *jobdir.Record, detached bool, c *job.Claim) *Entry {
	cost := budget.Cost{
		Identity: a.Identity, Session: a.Caller, USD: a.CostUSD, Ended: time.UnixMilli(a.EndedUnixMS),
	}
	// One that was refused in the queue since others had spent the budget takes nothing from it.
	if f := a.Fault; f != nil && f.Fault.Code == fault.BudgetExceeded && f.Stage == fault.Host {
		cost.Identity, cost.Session = "", ""
	}
	if a.Answered != nil { // its members count, each by itself
		cost = budget.Cost{Ended: cost.Ended}
	}
	return &Entry{
		Info: a.Info(), Project: a.Project, Session: a.SessionID, Task: rec.Task, Cost: cost,
		Window: a.Window, Claim: c,
		Told:    detached && rec.Panel == "", // a panel keeps its members
		Follows: a.Follows != "",
	}
}

// isOwed reports whether a client that has the id of a consult or its task may still come for
// the answer.
func (e *Entry) isOwed(age time.Duration, now time.Time) bool {
	if e.Fetched {
		return false
	}
	return e.Task != nil && e.hasTask(age, now) || e.Told && now.Before(e.Cost.Ended.Add(min(age, keepTold)))
}

// hasTask reports whether a task that has ended is still kept.
func (e *Entry) hasTask(age time.Duration, now time.Time) bool {
	created := time.UnixMilli(e.Info.CreatedUnixMS)
	return now.Before(created.Add(tasks.TTL(age, e.Cost.Ended.Sub(created))))
}

// isWanted reports whether the client may still come for the answer.
func (e *Entry) isWanted(age time.Duration, now time.Time) bool {
	return e != nil && (e.Claim.IsOpen(now) || e.isOwed(age, now))
}

// A Shelf has the entries by their ids. Its caller holds the mutex that guards it.
type Shelf map[string]*Entry

// ByTask returns the entry of the task with that id, if the task is still kept after age.
func (s Shelf) ByTask(id string, age time.Duration, now time.Time) *Entry {
	for _, e := range s {
		if e.Task != nil && e.Task.ID == id && e.hasTask(age, now) {
			return e
		}
	}
	return nil
}

// Review asks the owner about all claims of a session.
func (s Shelf) Review(session string, o calls.Owner) {
	for _, e := range s {
		if e.Claim != nil && e.Claim.Key.Session == session {
			e.Claim = e.Claim.Reviewed(o)
		}
	}
}

// Prune removes the oldest entries beyond the number that are kept, and those that are too old,
// and returns them. An entry whose client may still come stays. An open claim is one reason: its
// client would repeat the request, and the consult would run twice. An id that a client has and
// whose answer it has not fetched, as a task or by consult_result, is another. The members of a
// panel stay with the panel, which lives if isLive says so.
func (s Shelf) Prune(keep config.Keep, now time.Time, isLive func(id string) bool) (gone []*Entry) {
	oldest := now.Add(-keep.Age)
	ids := slices.SortedFunc(maps.Keys(s), func(a, b string) int { return s[b].Cost.Ended.Compare(s[a].Cost.Ended) })
	for i, id := range ids {
		e := s[id]
		past := i >= keep.Count || e.Cost.Ended.Before(oldest)
		panel := e.Info.Panel // its client may come for all of its answers
		past = past && !isLive(panel) && !s[panel].isWanted(keep.Age, now) && !e.isWanted(keep.Age, now)
		if past || faultpoint.Broken("directory.kept") {
			delete(s, id)
			gone = append(gone, e)
		}
	}
	return gone
}

// Unwritten returns the answers that could not be written.
func (s Shelf) Unwritten() (all []*answer.Answer) {
	for _, e := range s {
		if e.Answer != nil {
			all = append(all, e.Answer)
		}
	}
	return all
}

// UnwrittenOf returns the answer of an entry if it could not be written, and else nil.
func (s Shelf) UnwrittenOf(id string) *answer.Answer {
	if e := s[id]; e != nil {
		return e.Answer
	}
	return nil
}
