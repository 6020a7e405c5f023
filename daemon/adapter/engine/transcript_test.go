package engine

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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

// TestTranscript_Torn checks that a line which could be written in part, as on a full disk, spoils
// none that follows.
func TestTranscript_Torn(t *testing.T) {
	out, in, err := os.Pipe() // of 64 KiB
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	tr := &Transcript{f: in}
	defer tr.Close()
	wrote := make(chan error)
	go func() { wrote <- tr.Write(Entry{Kind: KindText, Text: strings.Repeat("x", 1<<20)}) }()
	first := make([]byte, 1) // shows that a part was written
	if _, err := out.Read(first); err != nil {
		t.Fatal(err)
	}
	if err := in.SetWriteDeadline(time.Unix(1, 0)); err != nil { // no more is
		t.Fatal(err)
	}
	if err := <-wrote; err == nil {
		t.Fatal("a pipe that nobody reads took all")
	}
	for range 2 { // the disk is still full
		if err := tr.Write(Entry{Kind: KindNote}); err == nil {
			t.Fatal("a full pipe took a line")
		}
	}
	if err := in.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(out)
		read <- b
	}()
	for _, e := range []Entry{{Kind: KindHeard, ID: "m"}, {Kind: KindEnd}} {
		if err := tr.Write(e); err != nil {
			t.Error(err)
		}
	}
	tr.Close()
	dir := t.TempDir()
	b := slices.Concat(first, <-read)
	if err := os.WriteFile(filepath.Join(dir, FileTranscript), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := ReadTranscript(dir); err != nil || !said.Heard["m"] || bytes.Count(b, []byte("\n")) != 3 {
		t.Errorf("heard %v, %v; %d lines", said.Heard, err, bytes.Count(b, []byte("\n")))
	}
}
