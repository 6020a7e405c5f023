package listing

import (
	"bytes"
	"encoding/json"
	"os"
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

// TestFileOfListsDamaged_NothingInItIsBelieved changes each byte of a file with lists, and puts it in another
// one's place. Lists are believed only as they were written; pins stay if the damage is elsewhere.
func TestFileOfListsDamaged_NothingInItIsBelieved(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "sm-1", "lists.json")
	for _, dir := range []string{"sm-1", "sm-2"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mem := Memory{
		Key: "k", Lists: Lists{Tools: {json.RawMessage(`{"name":"a","description":"safe"}`)}},
		Pins: []Pin{{Tool: "a"}},
	}
	if err := mem.Write(path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	believed := func(path string) bool {
		got, err := ReadMemory(path)
		if err == nil && got.Torn != "" &&
			(got.Torn != path || got.Key != "" || len(got.Pins) != 1 || got.Pins[0].Tool != "a") {
			t.Errorf("a torn file gives %+v", got)
		}
		return err == nil && got.Torn == ""
	}
	if !believed(path) {
		t.Error("the whole file is not believed")
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if believed(path) {
			t.Errorf("byte %d is changed, and the file is believed: %s", i, b)
		}
	}
	other := filepath.Join(root, "sm-2", "lists.json")
	if err := os.WriteFile(other, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if believed(other) {
		t.Error("another process's file is believed")
	}
}
