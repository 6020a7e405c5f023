package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// A stubServer has limits, and no process.
type stubServer struct {
	Server
	limits entry.Server
}

func (s stubServer) Entry() *entry.Server { return &s.limits }

// newRequest returns a request of a tool of a server with these limits.
func newRequest(limits entry.Server) *request {
	hub := upstream.New(upstream.Options{Log: slog.New(slog.DiscardHandler)})
	return &request{
		Dispatcher: New(hub, nil), s: stubServer{limits: limits}, o: &listing.Offer{Own: "t", Method: mcp.ToolsCall},
	}
}

// TestTimeLeft checks that a call that an earlier daemon made gets no more time than
// before, except for progress that may not be on record yet, and a moment to find its
// answer.
func TestTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequest(entry.Server{Name: "s", Timeout: 320 * time.Second, MaxTimeout: time.Hour})
		told := func(json.RawMessage) {}
		for _, tc := range []struct {
			name      string
			made      time.Duration // how long ago it was made, or had its latest progress on record
			inherited bool          // from an earlier daemon
			progress  func(json.RawMessage)
			want      time.Duration
		}{
			{"a new one", 0, false, told, 320 * time.Second},
			{"one of before", 100 * time.Second, false, told, 220 * time.Second},
			{"one that is late", 400 * time.Second, false, told, -80 * time.Second},
			{"an inherited one", 100 * time.Second, true, nil, 220 * time.Second},
			{"an inherited one that is late", 400 * time.Second, true, nil, time.Second},
			{"an inherited one with progress", 100 * time.Second, true, told, 260 * time.Second},
			{"an inherited one with progress that is late", 400 * time.Second, true, told, time.Second},
		} {
			until := time.Now().Add(320*time.Second - tc.made)
			c := upstream.NewCall(calls.NewCall(calls.Key{}, "t", false))
			if tc.inherited {
				c.Call = calls.Restore(&calls.Record{DeadlineBootMS: bootclock.AtMS(until)}, false)
			} else {
				c.Deadline.Set(until)
			}
			c.OnProgress = tc.progress
			if got := r.timeLeft(c, r.soonest(c)).Round(time.Second); got != tc.want {
				t.Errorf("%s has %v, want %v", tc.name, got, tc.want)
			}
		}
	})
}

// TestBounded checks that the time of a call is counted from when its client sent it, in
// all daemons and queues together.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequest(entry.Server{Name: "s", Timeout: 10 * time.Second, MaxTimeout: time.Minute, StartTimeout: 20 * time.Second})
		for age, want := range map[time.Duration][2]time.Duration{
			0:                {time.Minute, 20 * time.Second},
			15 * time.Second: {45 * time.Second, 5 * time.Second},
			30 * time.Second: {30 * time.Second, time.Second},
			time.Hour:        {time.Second, time.Second},
		} {
			r.rc = &tool.RemoteCall{Sent: time.Now().Add(-age), Replay: age > 0}
			ctx, cancel := r.bounded(t.Context())
			if last, _ := ctx.Deadline(); time.Until(last) != want[0] {
				t.Errorf("a call of age %v has %v in all, want %v", age, time.Until(last), want[0])
			}
			if patient := time.Until(r.patientUntil(false)); patient != want[1] {
				t.Errorf("a call of age %v waits %v for a process, want %v", age, patient, want[1])
			}
			cancel()
			if isOverdue(ctx) || !isAbandoned(ctx) {
				t.Errorf("a call that its client cancels counts as overdue")
			}
		}
		r.rc = &tool.RemoteCall{Sent: time.Now()}
		ctx, cancel := r.bounded(t.Context())
		defer cancel()
		<-ctx.Done()
		f, ok := errors.AsType[*fault.Record](AsFault(context.Cause(ctx), r.o))
		if !isOverdue(ctx) || isAbandoned(ctx) || !ok || f.Fault.Code != fault.Timeout {
			t.Errorf("the cause of the end of a call's time is %v, want a timeout", context.Cause(ctx))
		}
	})
}
