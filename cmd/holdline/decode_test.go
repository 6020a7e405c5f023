package main

import (
	"encoding/json"
	"syscall"
	"testing"
)

const sigTerm = syscall.SIGTERM

// decode reads JSON or fails the test.
func decode(t testing.TB, s string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), v); err != nil {
		t.Errorf("%v: %s", err, s)
	}
}
