package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// endBound is how long what is promised at once, or soon, may take on a busy machine. What hangs takes longer.
const endBound = slowness * 30 * time.Second

// TestServerDrowns has a server send requests without end and read no answers. It can be
// restarted and stopped at once, and its worker ends with it, whichever way it is ended.
func TestServerDrowns(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"restart", "stop", "killed", "daemon killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			a, b := p.wild(hosting{})
			child := p.untilReady("wild")
			worker := p.status().Workers[0]
			id := a.call("wild__drown", map[string]any{"count": 300_000}) // more than a worker keeps
			waitFor(t, "the requests", func() bool { return p.effectsOf("drowned") == 1 })
			if how == "daemon killed" {
				pid := p.pid(0)
				kill9(t, pid)
				p.pid(pid)
			}
			begun := time.Now()
			switch how {
			case "killed":
				kill9(t, child)
			case "stop":
				p.must("servers", "stop", "wild")
				p.must("servers", "start", "wild")
			default:
				p.must("servers", "restart", "wild")
			}
			if took := time.Since(begun); took > endBound {
				t.Errorf("it took %v", took)
			}
			if x := a.wait(id); x.code() != "outcome_unknown" {
				t.Errorf("the call under way: %s", x.raw)
			}
			b.echoes("after")
			waitFor(t, "the end of the worker", func() bool { return !alive(worker.PID) && !alive(child) })
			dir := filepath.Join(p.dir, "run/holdline/w", worker.ID)
			waitFor(t, "the end of its directory", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
			a.rest(id)
			b.rest()
		})
	}
}

// TestServerEndlessLine checks that a server that writes a line without end is ended and
// started again, and that its calls say so.
func TestServerEndlessLine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.wild(hosting{"timeout": "10m"})
	before := p.untilReady("wild")
	id := a.call("wild__endless", map[string]any{})
	x := a.wait(id)
	if x.code() != "outcome_unknown" || !strings.Contains(x.text(), "without a newline") {
		t.Errorf("the call under way: %s", x.raw)
	}
	b.echoes("after")
	if after := child(p.until("another process", func(s control.StatusAnswer) bool { return child(s, "wild") != 0 }),
		"wild"); after == before || alive(before) {
		t.Error("the server was not ended")
	}
	if f := p.server("wild").LastFault; f == nil || !strings.Contains(f.Fault.Detail, "without a newline") {
		t.Errorf("the fault that is shown: %+v", f)
	}
	a.rest()
	b.rest()
}
