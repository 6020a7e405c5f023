package plural

import "testing"

// TestCount checks that one thing, and only one, is in the singular.
func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 servers": Count(0, "server"), "1 server": Count(1, "server"), "2 servers": Count(2, "server"),
		"1 entry": Count(1, "entry"), "2 entries": Count(2, "entry"),
		"1 process": Count(1, "process"), "12 processes": Count(12, "process"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
