package hosted

import (
	"log/slog"
	"testing"

	"holdline/protocol/process"
)

// TestErrandsNeverWait: who has an errand holds the lock that the writer needs,
// so however many there are, none waits; answers to the server's requests have
// places of their own.
func TestErrandsNeverWait(t *testing.T) {
	u := &upstream{errands: make(chan errand, maxErrands), log: slog.New(slog.DiscardHandler)}
	for range 2 * maxErrands {
		u.errandLocked(errand{rec: process.Record{Kind: process.RecordCancel}, done: func(error) {}})
	}
	if n := len(u.errands); n != maxErrands-maxAsks {
		t.Errorf("%d cancellations wait, want %d", n, maxErrands-maxAsks)
	}
	for range 2 * maxAsks {
		u.errandLocked(errand{rec: process.Record{Kind: process.RecordRespond}})
	}
	if n := len(u.errands); n != maxErrands {
		t.Errorf("%d errands wait, want %d", n, maxErrands)
	}
}
