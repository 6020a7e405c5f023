package listing

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

// TestListsKept checks that lists read from a file equal those written, however they were
// spelled.
func TestListsKept(t *testing.T) {
	raw := Lists{
		Tools:     {json.RawMessage("{\"name\" : \"a\",\n\"description\":\"x < y && y > z\u2028\"}")},
		Resources: {json.RawMessage(`{"uri":"\u003cmem://a\u003e"}`)},
	}
	path := filepath.Join(t.TempDir(), "lists.json")
	mem := Memory{Key: "k", Lists: raw}
	if err := mem.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := got.Lists
	if !kept.equal(&raw) {
		t.Errorf("%s was kept as %s", raw, kept)
	}
	other := Lists{Tools: {json.RawMessage(`{"name":"b"}`)}}
	if kept.equal(&other) {
		t.Errorf("%s is taken for %s", other, kept)
	}
}
