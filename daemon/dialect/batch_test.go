package dialect

import (
	"fmt"
	"testing"
)

// TestBatch_OnlyListsOfMessagesAreTaken checks which lines are lists of messages.
func TestBatch_OnlyListsOfMessagesAreTaken(t *testing.T) {
	for line, want := range map[string]string{
		`[{"id":1}, {"id":2}]`: `[{"id":1} {"id":2}]`,
		`[{"id":1}]`:           `[{"id":1}]`,
		`[]`:                   `[]`,
		`[{"id":1},2]`:         `[]`,
		`[[{"id":1}]]`:         `[]`,
		`[INFO] started`:       `[]`,
		`[{"id":1}`:            `[]`,
		`{"id":1}`:             `[]`,
		``:                     `[]`,
	} {
		if got := fmt.Sprintf("%s", Batch([]byte(line))); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}
