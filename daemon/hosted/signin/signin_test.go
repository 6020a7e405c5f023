package signin

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/filewatch"
	"holdline/daemon/hosted/entry"
	"holdline/protocol/fault"
)

// files are the files of a login: now as people see it, size to tell them apart.
type files struct {
	entry.LoginState
	size   int64
	onRead func() // called while they are read
}

// Stamp differs whenever size does.
func (f *files) Stamp(id string) entry.LoginStamp {
	return entry.LoginStamp{Server: filewatch.Stamp{Size: f.size}, Tokens: filewatch.Stamp{Size: int64(len(id))}}
}

// State returns what the files said before onRead.
func (f *files) State() entry.LoginState {
	now := f.LoginState
	if f.onRead != nil {
		f.onRead()
	}
	return now
}

// newView returns a view of the server s.
func newView() View { return View{Server: "s", Log: slog.New(slog.DiscardHandler)} }

var missing = fault.New(fault.Unauthenticated, fault.Server, "", "needs a login").WithReason(fault.NotLoggedIn)

// TestLoginStoredDuringLook checks that a login which is stored while the files are read is seen at
// the next call: the refusal must not have the stamp of the new files.
func TestLoginStoredDuringLook(t *testing.T) {
	f := &files{LoginState: entry.LoginState{Missing: missing}, size: 1}
	f.onRead = func() { f.LoginState, f.size, f.onRead = entry.LoginState{Login: "id", Who: "id ada"}, 2, nil }
	v := newView()
	v.Update(Look(f, ""))
	if refusal := v.Refusal(); refusal == nil || refusal.Operation != "start:s" {
		t.Fatalf("refusal %v", refusal)
	}
	id, stamp, should := v.ShouldLook()
	if !should || f.Stamp(id) == stamp {
		t.Error("the login is not noticed")
	}
	s := Look(f, id)
	v.Update(s)
	if refusal := v.Refusal(); refusal != nil || v.Last().Who != "id ada" || s.Stamp != f.Stamp("id") {
		t.Errorf("after the login: %v, %+v", refusal, v.Last())
	}
}

// TestLateRefusal checks that an answer of a process that was started before the login was stored
// refuses no call, and that one which the files do not explain counts for a while.
func TestLateRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{LoginState: entry.LoginState{Missing: missing}, size: 1}
		v := newView()
		before := Look(f, "")
		v.Update(before)
		f.LoginState, f.size = entry.LoginState{Login: "id", Who: "id ada"}, 2
		v.Update(Look(f, ""))
		if v.Refused(missing, before.Stamp, Look(f, "id")) {
			t.Error("an answer from before the login refuses calls")
		}
		if !v.Refused(missing, f.Stamp("id"), Look(f, "id")) {
			t.Error("an answer of a process of this login does not count")
		}
		if refusal := v.Refusal(); refusal == nil {
			t.Error("calls are not refused")
		}
		time.Sleep(retryAfter + time.Millisecond)
		if refusal := v.Refusal(); refusal != nil {
			t.Error("calls are refused for longer")
		}
	})
}

// TestAskedAgain checks that a server without a login is tried again once its refusal is old, that it
// needs a login for people until it has answered, and that another refusal counts from then on, also
// if the files do not have it.
func TestAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{LoginState: entry.LoginState{Missing: missing, Until: time.Now().Add(time.Minute)}}
		v := newView()
		v.Update(Look(f, ""))
		since := v.Since()
		check := func(when string, refused, shown bool) {
			t.Helper()
			if (v.Refusal() != nil) != refused || (v.Missing() != nil) != shown || !v.Since().Equal(since) {
				t.Errorf("%s: refused with %v, shown as %v since %v", when, v.Refusal(), v.Missing(), v.Since())
			}
		}
		check("at first", true, true)
		time.Sleep(time.Minute + time.Millisecond)
		check("a minute later", false, true)
		v.Update(Look(f, "")) // before the start
		check("before the start", false, true)
		v.Refused(missing, f.Stamp(""), Look(f, ""))
		check("refused again, and not written", true, true)
		time.Sleep(retryAfter + time.Millisecond)
		check("later", false, true)
		f.Missing, f.size = nil, 1
		v.Update(Look(f, ""))
		check("answered", false, false)
	})
}

// TestLooksAreRare checks that the files are looked at before a call once in a while, and each
// time while calls are refused.
func TestLooksAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{LoginState: entry.LoginState{Login: "id"}}
		v := newView()
		for range 3 { // nothing is known at first, and time goes by
			for i := range 3 {
				if _, _, should := v.ShouldLook(); should != (i == 0) {
					t.Errorf("call %d: a look: %v", i, should)
				}
			}
			time.Sleep(lookEvery)
		}
		f.Missing = missing
		v.Update(Look(f, "id"))
		for range 3 {
			if _, _, should := v.ShouldLook(); !should {
				t.Error("no look while calls are refused")
			}
		}
	})
}
