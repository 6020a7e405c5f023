package startup_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// TestFault checks that the most useful of several reasons is given for a failed start.
func TestFault(t *testing.T) {
	death := fault.New(fault.ProcessFailure, fault.Server, "run:s", "s ended: exit code 1")
	death.Cause = &fault.Cause{StderrTail: []string{"bad credentials"}}
	refusal := func(method string) error {
		return &dialect.RefusalError{Method: method, Raw: []byte(`{"code":1,"message":"no"}`)}
	}
	for _, x := range []struct {
		name  string
		f     startup.Failure
		err   error
		code  fault.Code
		words string
	}{
		{
			"it ended",
			startup.Failure{Death: death},
			upstream.ErrExited,
			fault.SpawnFailure,
			`s did not start: exit code 1, "bad credentials"`,
		},
		{
			"it ended meanwhile",
			startup.Failure{Death: death},
			errors.New("a slow answer"),
			fault.SpawnFailure,
			"exit code 1",
		},
		{
			"it was ended",
			startup.Failure{Death: death, Ended: true},
			errors.New("odd answer"), fault.SpawnFailure,
			"odd answer",
		},
		{"it refuses", startup.Failure{Death: death}, refusal(mcp.Initialize), fault.SpawnFailure, "no (1)"},
		{
			"it refuses the question",
			startup.Failure{Death: death},
			refusal(mcp.Discover),
			fault.SpawnFailure,
			"exit code 1",
		},
		{"no room", startup.Failure{}, syscall.ENOSPC, fault.ResourceExhausted, ""},
	} {
		x.f.Server = "s"
		if r := x.f.Fault(x.err); r.Fault.Code != x.code || !strings.Contains(r.Fault.Detail, x.words) {
			t.Errorf("%s: %v", x.name, r)
		}
	}
	f := startup.Failure{Server: "s", Death: death, Printed: []string{"Listening on port 3000", "Name: "}}
	for _, words := range []string{f.Fault(upstream.ErrExited).Fault.Detail, f.Slow(time.Minute, true).Fault.Detail} {
		if !strings.Contains(words, "Listening on port 3000 / Name:") || strings.Contains(words, "more time") {
			t.Errorf("of a program that is no MCP server it says %q", words)
		}
	}
	late := error(fault.New(fault.Timeout, fault.Server, "tools/call:s__t", "not said within 8s: it may still be starting"))
	said := startup.Unlisted("s", f.Printed, late)
	if r, ok := errors.AsType[*fault.Record](said); !ok || r.Fault.Code != fault.SpawnFailure || r.Operation != "tools/call:s__t" ||
		!strings.Contains(r.Fault.Detail, "Listening on port 3000 / Name:") {
		t.Errorf("of one that has not ended yet: %v", said)
	}
	if got := startup.Unlisted("s", nil, late); !errors.Is(got, late) {
		t.Errorf("of one that has printed nothing: %v", got)
	}
	if other := errors.New("another"); !errors.Is(startup.Unlisted("s", f.Printed, other), other) {
		t.Error("another error is not passed on")
	}
	slow := startup.Failure{Server: "s", Death: death}
	if words := slow.Slow(time.Minute, true).Fault.Detail; !strings.Contains(words, "bad credentials") {
		t.Errorf("a slow start says %q", words)
	}
}

// TestClock checks that progress restarts the time of a start, five times its patience in
// all.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, clock, cancel := startup.NewClock(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		for ctx.Err() == nil {
			select {
			case <-time.After(30 * time.Second):
				clock.Progress()
			case <-ctx.Done():
			}
		}
		if took := time.Since(begun); took != 5*time.Minute || !errors.Is(context.Cause(ctx), startup.ErrSlow) {
			t.Errorf("a start that goes on ended after %v: %v", took, context.Cause(ctx))
		}
	})
}
