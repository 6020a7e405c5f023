package e2e

import (
	"fmt"
	"testing"
)

// TestIDUsedAgainAfterCancellation_NewCallHasItsAnswer cancels a call whose answer is on its way to the
// client, and makes another one under its id. That one gets its own answer, once, and nothing else
// comes, also if the daemon dies then.
func TestIDUsedAgainAfterCancellation_NewCallHasItsAnswer(t *testing.T) {
	t.Parallel()
	const point, id = "proxy.received", 1_000_000
	for _, killed := range []bool{false, true} {
		p := newPlace(t).serve("session").login().faults()
		a := p.agent("--identity", "a").shake()
		call := func(token string) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":`+
				`{"name":"tools__effect","arguments":{"token":%q,"ms":0},"_meta":{"progressToken":%d}}}`, id, token, id)
		}
		a.wait(a.effect("ready", 0))
		pid := p.pid(0)
		p.dieAs(point, death{held: true})
		a.send(call("first"))
		waitFor(t, "the answer to the first call", func() bool { return p.died(point) })
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		a.send(call("second"))
		waitFor(t, "the second call", func() bool { return p.effectsOf("end second") == 1 })
		if killed {
			kill9(t, pid)
		}
		p.letGo(point)
		if x := a.wait(id); x.text() != "second" {
			t.Errorf("killed: %v: the second call's answer is %s", killed, x.raw)
		}
		if n := p.effectsOf("begin second"); n != 1 {
			t.Errorf("killed: %v: the second call was made %d times", killed, n)
		}
		a.rest(id)
	}
}
