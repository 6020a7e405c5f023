package e2e

import (
	"encoding/json"
	"syscall"
	"testing"
)

const sigTerm = syscall.SIGTERM

// decode decodes JSON into v, or fails the test.
func decode(tb testing.TB, s string, v any) {
	tb.Helper()
	if err := json.Unmarshal([]byte(s), v); err != nil {
		tb.Errorf("%v: %s", err, s)
	}
}
