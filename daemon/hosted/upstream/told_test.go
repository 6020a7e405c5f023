package upstream

import (
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/lines"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
)

// TestChangesOverDaemons_EachToldOnce has a resource change while a client is connected, while it has no
// connection, and while there is no daemon. It is told of each change once, and of none that it knows.
func TestChangesOverDaemons_EachToldOnce(t *testing.T) {
	c := &client{}
	w := watched(t, all{"a": true}.of(), map[string]tool.Client{"a": c})
	w.State = stage.Serving
	w.restoreStandingLocked([]calls.Record{{Kind: calls.KindSubscribe, Name: "u", Write: 1, Changed: 7}}, 1, 1)
	h := w.hub
	hold := func(again bool) {
		s, _, err := h.SubscribeLocked("a", "", "u", "s", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.HoldLocked("a", s, again)
	}
	change := func(seq int64, old bool) {
		w.updated(jsonrpc.Message{Params: []byte(`{"uri":"u"}`)}, &lines.Line{Seq: seq, Old: old})
	}
	want := func(when string, n int) {
		t.Helper()
		w.tellAllLocked()
		if told := c.took(); len(told) != n {
			t.Errorf("%s: told %d times, want %d", when, len(told), n)
		}
	}
	hold(false)
	want("a new subscription", 0)
	change(2, false)
	want("a change", 1)
	want("no change", 0)
	c.away = true
	change(3, false)
	want("a change without a connection", 0)
	c.away = false
	h.BackLocked("a")
	want("back at the same daemon", 1)
	h.BackLocked("a")
	want("back again", 0)

	id, place := w.ID, w.standing.subs["u"].changed
	next := func(changed, until int64) {
		w = watched(t, all{"a": true}.of(), map[string]tool.Client{"a": c})
		w.ID, w.State = id, stage.Serving // the worker is the same
		h = w.hub
		w.restoreStandingLocked([]calls.Record{{Kind: calls.KindSubscribe, Name: "u", Write: 1, Changed: changed}}, 1, until)
	}
	next(place, 5)
	hold(true)
	want("the next daemon, without a change", 0)
	change(3, true)
	want("what the client was told, read again", 0)
	change(4, true)
	change(4, true)
	want("changes between two daemons", 1)
	next(placeOf(&lines.Line{Seq: 4}), 5)
	hold(true)
	want("after a change that the journal has, and the client's proxy", 0)
	next(endOf(9), 12)
	hold(true)
	want("after a change that the client's proxy does not have", 1)
	next(0, 12)
	hold(true)
	want("after what the journal does not know", 1)
}
