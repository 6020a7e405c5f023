package spelling

import "testing"

// TestDistance checks the edit distance of pairs of words.
func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"kitten", "sitting", 3},
		{"scope", "scope", 0},
		{"scpoe", "scope", 1},
		{"gte", "get", 1},
		{"ab", "bca", 3},
		{"lazy", "crazy", 2},
	} {
		if got := Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestNearest checks which word is suggested for a slip, and that none is suggested for a word
// that is nothing like the others.
func TestNearest(t *testing.T) {
	words := []string{"start", "status", "statusline", "stop", "logs", "doctor", "config", "top"}
	for slip, want := range map[string]string{
		"stat": "status", "statusl": "statusline", "statsu": "status", "sttaus": "status", "stoop": "stop",
		"dctor": "doctor", "docktor": "doctor", "CONF": "config", "log": "logs",
		"bogus": "", "s": "", "": "", "xyz": "", "help": "",
	} {
		if got := Nearest(slip, words); got != want {
			t.Errorf("for %q %q is suggested, want %q", slip, got, want)
		}
	}
}
