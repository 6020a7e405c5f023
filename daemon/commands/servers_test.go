package commands

import (
	"encoding/json"
	"testing"
)

// TestFormatProgress checks how the progress of a server's call is shown to people.
func TestFormatProgress(t *testing.T) {
	for params, want := range map[string]string{
		`{"progressToken":1,"progress":1}`:                                      "1",
		`{"progressToken":1,"progress":1.5,"total":2}`:                          "1.5 of 2",
		`{"progressToken":1,"progress":2,"total":2,"message":"reading \u0041"}`: "2 of 2: reading A",
	} {
		if got := formatProgress(json.RawMessage(params)); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
}
