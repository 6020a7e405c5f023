package engine

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTranscript_Full checks that a transcript does not grow over its limit, that it says so once, and
// that what is proof of something still fits.
func TestTranscript_Full(t *testing.T) {
	dir := t.TempDir()
	tr, err := CreateTranscript(dir, Entry{Level: "read"})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	write := func(e Entry) {
		t.Helper()
		if err := tr.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		write(Entry{Kind: KindText, Text: strings.Repeat("x", 1<<20)})
	}
	write(Entry{Kind: KindSaid, ID: "m"})
	write(Entry{Kind: KindTool, Text: "Read"})
	write(Entry{Kind: KindEnd})
	b, err := os.ReadFile(filepath.Join(dir, FileTranscript))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > maxTranscript+1<<10 || len(b) < maxTranscript-2<<20 {
		t.Errorf("the file has %d bytes", len(b))
	}
	var kinds []string
	last := int64(0)
	for line := range bytes.Lines(b) {
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil || e.Seq != last+1 {
			t.Fatalf("%v: line %d behind %d", err, e.Seq, last)
		}
		last = e.Seq
		if e.Kind != KindText {
			kinds = append(kinds, e.Kind)
		}
	}
	if got := strings.Join(kinds, " "); got != "start cut said end" {
		t.Errorf("lines: %s", got)
	}
	if said, err := ReadTranscript(dir); err != nil || !said.Began {
		t.Errorf("read again: %+v, %v", said.Began, err)
	}
}
