package upstream

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/lines"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// Each subscriber is notified of a change of its resource though daemons die, and not without a
// change. Each line of a process has a place in all its output. The journal says at which place a
// resource has changed last, and a client's proxy keeps up to which place its client was notified. A
// daemon that takes a subscription up compares both.

// retellPause is how often a notification is tried again for which a client had no room or no connection.
const retellPause = time.Second

// placeBits is how many bits of a place count the lines of one piece of output, and how many the
// messages of one line.
const placeBits = 12

// placeOf returns the place of a line in the output of its process: a later line has a higher one.
func placeOf(l *lines.Line) int64 {
	const most = 1<<placeBits - 1
	return l.Seq<<(2*placeBits) | int64(min(l.Nth&(1<<32-1), most))<<placeBits | int64(min(l.Nth>>32, most))
}

// endOf returns the highest place in the piece of output with the number seq.
func endOf(seq int64) int64 { return (seq+1)<<(2*placeBits) - 1 }

// changedLocked records that the resource uri, or all if it is "", have changed at a place. It does not
// notify anybody. The caller must hold hub.Mu.
func (u *Process) changedLocked(uri string, place int64) {
	st := u.standing
	for of, w := range st.subs {
		if of != ofLists && (uri == "" || covers(of, uri)) && place > w.changed {
			w.changed, w.recorded = place, false
			st.untold = true
		}
	}
}

// missedLocked has all be notified who have subscribed to the resource uri, or to any if it is "", and
// were not notified of a change at that place. The caller, the reader, must hold hub.Mu.
func (u *Process) missedLocked(uri string, place int64) {
	u.changedLocked(uri, place)
	for c, s := range u.subscribersLocked() {
		if (uri == "" || covers(s.URI, uri)) && u.toldLocked(c) < place {
			s.missed, u.standing.untold = true, true
		}
	}
}

// toldLocked returns the place up to which the client was notified of all changes, as its proxy says;
// -1 if it was notified of none of this process. The caller must hold hub.Mu.
func (u *Process) toldLocked(c tool.Client) int64 {
	if id, place, ok := strings.Cut(c.Told(u.Server), " "); ok && id == u.ID {
		if n, err := strconv.ParseInt(place, 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// HoldLocked records that a subscription of a session is in force. again says that it was in force at an
// earlier daemon: then its client is notified if it may have missed a change. hub.Mu must be held.
func (u *Process) HoldLocked(session string, s *Subscription, again bool) {
	s.held = true
	c := u.hub.Clients[session]
	if c == nil || !u.Instance.Uses(session, c) {
		return
	}
	if w := u.standing.subs[s.URI]; again && w != nil && u.toldLocked(c) < w.changed {
		s.missed = true
	}
	u.tellLocked(c, u.hub.subscriptions[session])
	u.standing.untold = true
	u.nudge()
}

// tellLocked notifies a client again of what was dropped, by all, its subscriptions. Once it was notified
// of all changes, its proxy is told up to which place, and tellLocked returns true. hub.Mu must be held.
func (u *Process) tellLocked(c tool.Client, all []*Subscription) (done bool) {
	done = true
	place := u.toldLocked(c)
	for _, s := range all {
		if !u.offersLocked(c, s) {
			continue
		}
		if s.missed && s.held {
			s.missed = !c.Updated(s.Holder, mcp.OfResource(s.URI))
		}
		w := u.standing.subs[s.URI]
		done = done && s.held && !s.missed && w != nil && w.state != asking && w.state != ending
		if w != nil {
			place = max(place, w.changed)
		}
	}
	if done && place >= 0 {
		c.Tell(u.Server, u.ID+" "+strconv.FormatInt(place, 10))
	}
	return done
}

// BackLocked has a session notified of what it has missed while it had no connection: its client is
// back at this daemon. The caller must hold h.Mu.
func (h *Hub) BackLocked(session string) {
	c := h.Clients[session]
	for u := range h.Processes {
		if c == nil || !u.Instance.Uses(session, c) {
			continue
		}
		for _, s := range h.subscriptions[session] {
			w := u.standing.subs[s.URI]
			s.missed = s.missed || s.held && u.offersLocked(c, s) && w != nil && u.toldLocked(c) < w.changed
		}
	}
	h.RetellLocked(session)
}

// RetellLocked has a session notified now of what was dropped. The caller must hold h.Mu.
func (h *Hub) RetellLocked(session string) {
	if len(h.subscriptions[session]) == 0 {
		return
	}
	for u := range h.Processes {
		if u.State <= stage.Serving {
			u.standing.untold = true
			u.nudge()
		}
	}
}

// A change is what the journal has to say of a subscription.
type change struct {
	*watch

	write, place int64
}

// tellAllLocked notifies all clients again of what was dropped, and returns what the journal has to say.
// next is when to call it again. The caller, the reader, must hold hub.Mu.
func (u *Process) tellAllLocked() (say []change, next time.Duration) {
	st := u.standing
	if !st.untold || u.State > stage.Serving {
		return nil, never
	}
	st.untold, next = false, never
	for session, all := range u.hub.subscriptions {
		c := u.hub.Clients[session]
		if c != nil && u.Instance.Uses(session, c) && !u.tellLocked(c, all) {
			st.untold, next = true, retellPause
		}
	}
	for uri, w := range st.subs {
		if uri != ofLists && w.state == agreed && w.write > 0 && !w.recorded {
			say = append(say, change{w, w.write, w.changed})
		}
	}
	return say, next
}

// recordChanges writes to the journal where resources have changed, and lets go on those who wait for a
// subscription. After an error, which it logs, output must not be acknowledged. It takes hub.Mu.
func (u *Process) recordChanges(w *supervisor.Worker, say []change) (ok bool) {
	ok = true
	for _, c := range say {
		err := w.Changed(c.write, c.place)
		if errors.Is(err, calls.ErrDamaged) { // no daemon takes up what it says
			err = nil
		}
		if err != nil {
			u.Log.Warn("it cannot be written down that a resource has changed", "err", err)
			ok = false
		}
		u.hub.Mu.Lock()
		c.settled = true
		if c.recorded = err == nil && c.changed == c.place; !c.recorded {
			u.standing.untold = true
		}
		u.notifyLocked()
		u.hub.Mu.Unlock()
	}
	return ok
}
