package supervisor_test

import (
	"strings"
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestServerClosesPipeAndLives checks that a server that has closed its stdin or stdout and
// still runs is ended by its worker, with that as the reason. A write that it did not read
// counts as not dispatched.
func TestServerClosesPipeAndLives(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{process.Stdin, process.Stdout} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			s := h.daemon()
			shut := map[string]string{process.Stdin: "exec <&-", process.Stdout: "exec >&-"}[stream]
			// The server ignores the end of its input and SIGTERM.
			w := h.start(s,
				shell("closes-"+stream, "trap '' TERM; "+shut+"; echo closed >&2; while :; do sleep 600; done"))
			follow(t, w, false, func(s *seen) bool { return strings.Contains(s.stderr.String(), "closed") })
			if stream == process.Stdin {
				if _, err := w.Write(t.Context(), calls.Record{}, []byte("{}\n")); !supervisor.NotDispatched(err) {
					t.Errorf("a write to a closed stdin = %v, want one that was certainly not made", err)
				}
			}
			got := follow(t, w, false, func(s *seen) bool { return s.last.Kind == supervisor.Closed })
			if got.last.Kind != supervisor.Closed || got.last.Exit.Closed != stream || got.last.Exit.KilledByOthers() {
				t.Fatalf("the last event is %+v, want a server ended for closing its %s", got.last, stream)
			}
			f := w.ExitFault("run:x", got.last.Exit)
			if f.Fault.Code != fault.ProcessFailure || !strings.Contains(f.Fault.Detail, "closed its "+stream) {
				t.Errorf("the fault is %s: %s", f.Fault.Code, f.Fault.Detail)
			}
		})
	}
}
