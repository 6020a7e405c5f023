package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// tooLongBytes is more than a message may have.
const tooLongBytes = 70 << 20

// reason returns the fault reason of a failed call, or "".
func (x answer) reason() string {
	var r struct {
		Cause struct {
			Reason string `json:"reason"`
		} `json:"cause"`
	}
	if x.Result.IsError {
		_ = json.Unmarshal(x.Result.StructuredContent, &r)
	}
	return r.Cause.Reason
}

// wantTooLong checks the fault of a call whose answer was dropped for its length.
func wantTooLong(t *testing.T, x *answer) {
	t.Helper()
	if x.code() != "downstream_failure" || x.reason() != "bad_output" ||
		!strings.Contains(x.text(), "more than 64 MiB") {
		t.Errorf("a call whose answer is too long: %.500s", x.raw)
	}
}

// TestServerLineTooLong checks that an answer over the limit is dropped and its call gets a
// fault, wherever the id is in it, and that other calls, before and after, and other
// sessions work.
func TestServerLineTooLong(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.wild(hosting{})
	pid := p.untilReady("wild")
	for _, late := range []bool{false, true} {
		id := a.call("wild__long", map[string]any{"bytes": tooLongBytes, "late": late})
		b.echoes("meanwhile")
		x := a.wait(id)
		wantTooLong(t, &x)
	}
	a.echoes("after")
	if s := p.server("wild"); s.NoiseLines != 2 || s.Restarts != 0 || p.untilReady("wild") != pid {
		t.Errorf("the server: %+v", s)
	}
	a.rest()
	b.rest()
}

// TestServerLineTooLongAtOnce checks that a call gets the fault before the end of the long
// line, if the beginning of the line shows the call's id.
func TestServerLineTooLongAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.wild(hosting{})
	x := a.wait(a.call("wild__half", map[string]any{"bytes": tooLongBytes}))
	wantTooLong(t, &x)
	id := b.call("wild__echo", map[string]any{"text": "behind"})
	if err := os.WriteFile(p.gate(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := b.wait(id); x.text() != "behind" {
		t.Errorf("a call behind it: %s", x.raw)
	}
	a.rest()
	b.rest()
}

// TestServerLineTooLongAdopted kills the daemon in the middle of an answer over the limit.
// The next daemon sees only the rest of it, and answers the call with the fault.
func TestServerLineTooLongAdopted(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"id first": false, "id last": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			a, b := p.wild(hosting{})
			pid := p.untilReady("wild")
			id := a.call("wild__half", map[string]any{"bytes": tooLongBytes, "late": late})
			waitFor(t, "half of the answer", func() bool { return p.effectsOf("half") == 1 })
			s := p.until("the worker", func(s control.StatusAnswer) bool { return len(s.Workers) == 1 })
			dir := filepath.Join(p.dir, "run/holdline/w", s.Workers[0].ID)
			record := filepath.Join(dir, "longline.json")
			waitFor(t, "its beginning to be acknowledged", func() bool {
				_, err := os.Stat(record)
				said, acked := p.said(t, s.Workers[0].ID)
				return err == nil && said-acked < 10
			})
			kill9(t, s.Daemon.PID)
			p.pid(s.Daemon.PID)
			if err := os.WriteFile(p.gate(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			x := a.wait(id)
			wantTooLong(t, &x)
			b.echoes("after")
			if p.untilReady("wild") != pid {
				t.Error("the server is another process")
			}
			waitFor(t, "the end of the record", func() bool { _, err := os.Stat(record); return os.IsNotExist(err) })
			a.rest(id)
			b.rest()
		})
	}
}
