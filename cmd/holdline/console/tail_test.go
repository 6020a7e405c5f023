package console

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEndOf checks that the last lines of a text are returned.
func TestEndOf(t *testing.T) {
	for lines, want := range map[uint]string{0: "", 1: "c\n", 2: "b\nc\n", 3: "a\nb\nc\n", 9: "a\nb\nc\n"} {
		if got := string(EndOf([]byte("a\nb\nc\n"), lines)); got != want {
			t.Errorf("the last %d lines are %q, want %q", lines, got, want)
		}
	}
}

// TestTailOfALongLog checks that as many lines are printed as are wanted, also of a log of several
// MiB, and that the first one is whole where the log is too long for that.
func TestTailOfALongLog(t *testing.T) {
	line := strings.Repeat("x", 98) + "|\n" // 100 bytes
	for _, tt := range []struct{ has, wanted, printed int }{
		{80_000, 50_000, 50_000}, {80_000, 1 << 30, 80_000}, {80_000, 1, 1}, {180_000, 1 << 30, maxTail / 100},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(strings.Repeat(line, tt.has)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Tail(t.Context(), &out, path, uint(tt.wanted), time.Time{}, false); err != nil {
			t.Fatal(err)
		}
		if out.Len() != tt.printed*len(line) || !strings.HasPrefix(out.String(), line) {
			t.Errorf("of %d lines %d are wanted, and printed are %d bytes from %.10q on",
				tt.has, tt.wanted, out.Len(), out.String())
		}
	}
}
