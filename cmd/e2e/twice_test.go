package e2e

import (
	"os"
	"testing"
)

// The deaths of two daemons in a row at the same point, of those that a second daemon
// reaches. Where daemons come to the point only after the death of another, three die.
var (
	consultsTwice = []crash{
		{point: "consult.kept"},
		{point: "private.attached", after: "write.made"},
		{point: "private.followed"},
		{point: "write.recorded"},
		{point: "consult.resumed", after: "write.made"},
		{point: "private.attaching", after: "write.made"},
		{point: "private.attached", after: "private.followed"},
		{point: "private.event"},
		{point: "private.exited"},
		{point: "private.letting"},
		{point: "consult.kept", after: "worker.written"},
		{point: "consult.told"},
		{point: "consult.released"},
		{point: "consult.resumed", after: "consult.queued"},
		{point: "write.sent"},
		{point: "write.made"},
	}
	serversTwice = []crash{
		{point: "hosted.adopted", after: "hosted.dispatched"},
		{point: "hosted.answered"},
		{point: "write.recorded", times: 2},
		{point: "hosted.dispatched"},
		{point: "hosted.spawned"},
		{point: "hosted.introduced"},
		{point: "hosted.listed"},
		{point: "hosted.forgot"},
		{point: "hosted.errand"},
		{point: "hosted.asked", maybe: true}, // the client may have the question already, and answers the next daemon
		{point: "hosted.reaping"},
		{point: "hosted.dead", after: "worker.written"},
		{point: "hosted.adopted", after: "hosted.asked"},
		{point: "hosted.adopted", after: "hosted.introduced"},
		{point: "write.sent"},
		{point: "write.sent", times: 2},
		{point: "write.made", times: 2},
	}
)

// twice returns the first n of the deaths, or all if the tests may take long, each with two
// daemons that die.
func twice(all []crash, n int) []crash {
	if os.Getenv("HOLDLINE_LONG") != "" {
		n = len(all)
	}
	var both []crash
	for _, c := range all[:n] {
		c.twice = true
		both = append(both, c)
	}
	return both
}

// TestCrashesTwice checks the same as [TestCrashes] if the next daemon dies where the first
// one has died.
func TestCrashesTwice(t *testing.T) {
	t.Parallel()
	goThrough(t, twice(consultsTwice, 6))
}

// TestServerCrashesTwice does so for hosted servers, as [TestServerCrashes].
func TestServerCrashesTwice(t *testing.T) {
	t.Parallel()
	inTurn(t, twice(serversTwice, 4), func(t *testing.T, c crash, i int) {
		t.Helper()
		c.serve(t, i%2 == 1)
	})
}
