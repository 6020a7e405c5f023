// Package signin knows whether the login of a server lets calls be made. It reads the files of
// logins through [entry.Login], and starts and ends no processes.
package signin

import (
	"log/slog"
	"time"

	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/startup"
	"holdline/protocol/fault"
)

const (
	// retryAfter is how long a refusal counts that the files of the login do not explain: the
	// server refuses a login that they have.
	retryAfter = 10 * time.Second
	// lookEvery is the pause between looks at the files of a login that lets calls be made.
	lookEvery = time.Second
)

// A Sight is what the files of a login say at one moment.
type Sight struct {
	entry.LoginState
	Stamp entry.LoginStamp // of the files, taken before they were read: a later change is seen
}

// Look reads the files. id is that of the login which they had before; "" if it is not known.
func Look(login entry.Login, id string) Sight {
	s := Sight{Stamp: login.Stamp(id), LoginState: login.State()}
	for range 3 {
		if s.Login == id {
			break
		}
		id = s.Login // the server has another login: the stamp was that of the one before
		s = Sight{Stamp: login.Stamp(id), LoginState: login.State()}
	}
	return s
}

// A View is what is known of a server's login. It has seen nothing at first. The caller guards it
// with a lock.
type View struct {
	Server string
	Log    *slog.Logger

	refusal *fault.Record // why calls fail at once; nil if they do not
	since   time.Time     // of refusal
	until   time.Time     // when calls are tried again all the same; zero for never
	last    Sight
	next    time.Time // of the next look before a call, while calls can be made
}

// Refusal returns the fault of calls to a server that needs a login; nil if calls can be tried.
func (v *View) Refusal() *fault.Record {
	if v.refusal == nil || !v.until.IsZero() && time.Now().After(v.until) {
		return nil
	}
	return v.refusal
}

// Missing returns the fault of a server that needs a login, for people; nil if it needs none. It
// stays while calls are tried all the same.
func (v *View) Missing() *fault.Record {
	if v.last.Missing != nil {
		return v.refusal
	}
	return v.Refusal()
}

// Since returns since when the server needs a login, if it does.
func (v *View) Since() time.Time { return v.since }

// Pardon lets calls be tried again.
func (v *View) Pardon() { v.refusal = nil }

// Last returns what the files said at the last look.
func (v *View) Last() Sight { return v.last }

// ShouldLook reports whether the files are to be looked at before a call: each time while calls
// are refused, else once in [lookEvery]. stamp is what they had at the last look.
func (v *View) ShouldLook() (id string, stamp entry.LoginStamp, ok bool) {
	now := time.Now()
	if v.refusal == nil && now.Before(v.next) {
		return "", stamp, false
	}
	v.next = now.Add(lookEvery)
	return v.last.Login, v.last.Stamp, true
}

// Update takes what the files say now.
func (v *View) Update(now Sight) {
	v.last, v.next = now, time.Now().Add(lookEvery)
	if now.Missing == nil {
		v.refusal = nil
		return
	}
	v.refuse(now.Missing, now.Until)
}

// Refused takes that a process has answered with f because there is no login, and what the files
// say now. stamp is what they had when that process was started. If they say that calls can be
// made, f counts only if they are what they were then, and for [retryAfter]: else it is an answer
// by an older login. Refused reports whether calls are refused.
func (v *View) Refused(f *fault.Record, stamp entry.LoginStamp, now Sight) bool {
	until := time.Now().Add(retryAfter)
	if now.Missing != nil {
		v.Update(now)
		if !v.until.IsZero() && v.until.Before(until) { // the files could not be written
			v.until = until
		}
		return true
	}
	if now.Stamp != stamp {
		return false
	}
	v.last = now
	v.refuse(f, until)
	return true
}

// refuse makes calls fail with f until then.
func (v *View) refuse(f *fault.Record, until time.Time) {
	own := *f
	own.Operation = startup.Operation(v.Server)
	if v.refusal == nil {
		v.since = time.Now()
		v.Log.Warn("server needs a login", "server", v.Server, "err", &own)
	}
	v.refusal, v.until = &own, until
}
