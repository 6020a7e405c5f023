package e2e

import (
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/codextest"
)

// TestE2ECodexSlowProfile checks that the real Codex has all tools in its first turn, with
// holdline as a server like any other, although its proxy starts the daemon and the user's
// profile takes 1.5 s: holdline's own tools, and those of servers that have run before.
func TestE2ECodexSlowProfile(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	for _, known := range []bool{false, true} {
		t.Run(map[bool]string{false: "first time", true: "servers are known"}[known], func(t *testing.T) {
			p := newPlace(t).serve("shared")
			p.profile("bash", ".bash_profile", "sleep 1.5\nexport PATH="+programs+":$PATH\n")
			if known {
				a := p.agent().shake()
				p.untilReady("tools")
				a.leave()
				p.stopForNow("--all")
			}
			c, _ := p.codexClientOf(t, "", false,
				codexCode("text(ALL_TOOLS.map(t => t.name).filter(n => n.includes('holdline')).join())"),
				codexCode("text(await tools.mcp__holdline__health_snapshot({}))"),
				codextest.Step{Echo: true})
			message, calls := readCodex(t, c.wait(t))
			if want := []string{"holdline/health_snapshot completed"}; !slices.Equal(calls, want) {
				t.Errorf("calls %q, want %q", calls, want)
			}
			got := codexOutputs(t, message, 2)
			want := ownToolNames()
			if known { // others wait for the profile, and appear later
				want = append(want, "tools__effect")
			}
			for _, name := range want {
				if !strings.Contains(got[0], "mcp__holdline__"+name) {
					t.Errorf("the model was offered %q, without %s", got[0], name)
				}
			}
			p.faultless(t)
		})
	}
}
