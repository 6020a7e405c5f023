package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"holdline/cmd/holdline/trial"
	"holdline/daemon/adapter/engine/claude/claudetest"
)

// TestE2ESelftest has the real programs try every way to write, at each level, for a user
// who allows everything. No file appears.
func TestE2ESelftest(t *testing.T) {
	t.Parallel()
	for _, version := range claudetest.Versions() {
		t.Run(version, func(t *testing.T) {
			bin := realClaude(t, version)
			p := newPlace(t)
			p.env = append(p.env, "HOLDLINE_CLAUDE_BIN="+bin)
			out, errs, code := p.run("", "doctor", "--consult-selftest", "--json")
			var r trial.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || !r.Held() {
				t.Fatalf("exit %d, err %v, %s%s", code, err, out, errs)
			}
			if r.Version != version || len(r.Columns) != 3 {
				t.Errorf("version %s, %d columns", r.Version, len(r.Columns))
			}
			var skipped []string
			for _, c := range r.Columns {
				if c.Skipped != "" {
					skipped = append(skipped, c.Name+": "+c.Skipped)
				} else if len(c.Outcomes) != len(r.Attempts) {
					t.Errorf("%s: %d outcomes of %d attempts", c.Name, len(c.Outcomes), len(r.Attempts))
				}
			}
			if r.Columns[0].Skipped != "" {
				t.Error("level read was not tried")
			}
			if len(skipped) > 0 {
				t.Skip("not tried: " + strings.Join(skipped, "; "))
			}
		})
	}
}
