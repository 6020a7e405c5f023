package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// fakeNotifySend plays notify-send: it writes a line with its arguments into a file beside it.
const fakeNotifySend = `#!/bin/sh
printf '%s\n' "$(printf "%s" "$*" | tr "\n" " ")" >>"$0.shown"
`

// TestNotifications checks that a user who has asked for notifications sees one when a consult
// in the background has ended, when a server's tool has changed, and when a server is given up;
// and that a user who has not asked sees none.
func TestNotifications(t *testing.T) {
	t.Parallel()
	for name, wanted := range map[string]bool{"asked for": true, "not asked for": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			shown := p.script("notify-send", fakeNotifySend) + ".shown"
			sick := filepath.Join(p.dir, "sick")
			p.configure(map[string]any{
				"tools": p.toolsEntry(hosting{"scope": "shared"}, "-listing", filepath.Join(p.dir, "listing")),
				"frail": p.toolsEntry(hosting{"scope": "shared", "max_restarts": 1}, "-sick", sick),
			}, "notifications", wanted)
			p.daemon()
			a := p.agent().shake()
			p.untilReady("tools")
			p.untilReady("frail")

			args := p.slow(0)
			args["wait_s"], args["render"] = 0, "json"
			id := consultID(t, a.wait(a.call("consult", args)))
			p.must("consult", "wait", id)
			p.relist(map[string]any{"description": "does something else"})
			if err := os.WriteFile(sick, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			a.wait(a.call("frail__die", map[string]any{"code": 7}))
			p.until("the server is given up", func(s control.StatusAnswer) bool { return find(t, s, "frail").Ejected })

			want := []string{
				"Holdline: consult " + id + " done after ", "Holdline: tools 1 tool is not what it was",
				"Holdline: frail given up, it failed too often: ",
			}
			read := func() string {
				b, _ := os.ReadFile(shown) // it is not there if nothing was shown
				return string(b)
			}
			if !wanted {
				want = nil
			}
			waitFor(t, "the notifications", func() bool { return strings.Count(read(), "\n") >= len(want) })
			a.rest()
			p.must("stop", "--all")
			got := read()
			for _, one := range want {
				if !strings.Contains(got, "--app-name=Holdline -- "+one) {
					t.Errorf("no notification says %q:\n%s", one, got)
				}
			}
			if strings.Count(got, "\n") != len(want) {
				t.Errorf("want %d notifications:\n%s", len(want), got)
			}
		})
	}
}
