package consultcmd

import (
	"testing"

	"holdline/protocol/control"
)

// TestPick checks which consult a word means: a whole id, the beginning of one, or the latest
// consult; and that a word which means several, or none, is refused.
func TestPick(t *testing.T) {
	all := []control.Consult{{ID: "ab0000000001"}, {ID: "ab0000000002"}, {ID: "c00000000003"}}
	for word, want := range map[string]string{
		"ab0000000002": "ab0000000002", "c": "c00000000003", "C0": "c00000000003", "last": "ab0000000001",
		"ab": "", "d": "", "": "",
	} {
		if got, err := pick(word, all); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", word, got, err, want)
		}
	}
	if got, err := pick("last", nil); err == nil {
		t.Errorf("the last of no consults is %q", got)
	}
	if got, err := pick("", all[:1]); err == nil {
		t.Errorf("no word is the only consult, %q", got)
	}
}
