package direct

import (
	"strings"
	"testing"
)

// TestLastLineIsMasked checks that a secret longer than the shown part of a line is masked
// before the line is cut.
func TestLastLineIsMasked(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s3cret", 10)
	words := &lastBytes{most: tryStderr}
	_, _ = words.Write([]byte("first\n" + strings.Repeat("x", maxLastLine-20) + secret + "\n"))
	if got := words.last([]string{secret}); strings.Contains(got, "s3cret") || !strings.HasPrefix(got, ": xxx") {
		t.Errorf("last line: %s", got)
	}
}
