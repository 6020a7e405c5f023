package claude

import (
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestReadNoteSaysWhatStaysOpen checks that the note of the level says what Landlock cannot
// refuse.
func TestReadNoteSaysWhatStaysOpen(t *testing.T) {
	c := New(Options{Env: []string{"HOME=/home/u"}, Landlock: func() int { return 5 }})
	note := strings.Join(c.readLevel(&engine.Info{Features: []string{optRestricted}}).Notes, "\n")
	for _, want := range []string{"mode", "owner", "time", "extended attribute"} {
		if !strings.Contains(note, want) {
			t.Errorf("the note does not speak of the %s:\n%s", want, note)
		}
	}
	if strings.Contains(note, "nothing else") {
		t.Errorf("the note promises too much:\n%s", note)
	}
}
