package jsonrpc

import (
	"strings"
	"testing"
)

// FuzzElements checks that for any bytes Elements ends, and returns neither an empty
// element nor bytes from outside the array.
func FuzzElements(f *testing.F) {
	for _, arr := range []string{
		`[}`, `[:`, `[,`, `[1,]`, `[1,,2]`, `["`, `["\`, `[{"a":"`, `[[[`, `[1 2]`, `[ 1 , {"a":[2]} ]`, `{}`, ``,
	} {
		f.Add(arr)
	}
	f.Fuzz(func(t *testing.T, arr string) {
		bytes := 0
		_ = Elements([]byte(arr), func(value []byte) error {
			if bytes += len(value); len(value) == 0 || !strings.Contains(arr, string(value)) {
				t.Fatalf("element %q of %q", value, arr)
			}
			return nil
		})
		if bytes > len(arr) {
			t.Fatalf("%d bytes of elements in %q", bytes, arr)
		}
	})
}
