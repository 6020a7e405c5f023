package tool_test

import (
	"strings"
	"testing"

	"holdline/daemon/tool"
)

// TestShownNames checks that no name exceeds the length that Claude Code allows, that no
// two tools have the same name, and that a name leads to its server before the server was
// ever asked.
func TestShownNames(t *testing.T) {
	seen := map[string]string{}
	for _, of := range []string{
		"s", "github", strings.Repeat("s", 38), strings.Repeat("s", 45), strings.Repeat("s", 128),
	} {
		for _, own := range []string{
			"t",
			"delete/file",
			strings.Repeat("t", 43),
			strings.Repeat("t", 44),
			strings.Repeat("t", 128),
			strings.Repeat("t", 128) + "é",
		} {
			name := tool.Shown(of, own)
			if shown := "mcp__holdline__" + name; len(shown) > 64 {
				t.Errorf("%s of %s is shown as %s, %d characters", own, of, shown, len(shown))
			}
			if len(of+"__"+own) <= 49 && own != "delete/file" && name != of+"__"+own {
				t.Errorf("%s of %s is changed to %s though it is short", own, of, name)
			}
			if other := seen[name]; other != "" {
				t.Errorf("%s and %s of %s are both %s", other, own, of, name)
			}
			seen[name] = of + " " + own
			if !tool.MayBeOf(of, name) {
				t.Errorf("server %s is not asked for %s", of, name)
			}
			if name != of+"__"+own && !tool.MayBeAltered(name) {
				t.Errorf("%s is not seen to be altered", name)
			}
			alone := tool.ShownAlone(of, own)
			if shown := "mcp__" + of + "__" + alone; len(of) < 100 &&
				(len(shown) > 128 || len(shown) < 128 && alone != own) {
				t.Errorf("%s of %s alone is shown as %s, %d characters", own, of, shown, len(shown))
			}
		}
	}
}
