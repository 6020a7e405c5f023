package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"holdline/protocol/bulk"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// TestWriteFrame checks that the worker gets the long part of a write as a second name of the
// client's file, and its bytes if that file is gone.
func TestWriteFrame(t *testing.T) {
	w := newTestWorker(t, Options{}, process.Spec{ID: "test"})
	path := filepath.Join(t.TempDir(), "line")
	if err := os.WriteFile(path, []byte("..middle.."), 0o600); err != nil {
		t.Fatal(err)
	}
	p := bulk.Parts{
		Before: []byte("<"), Long: []byte("middle"), After: []byte(">"),
		File: &bulk.File{Path: path, Offset: 2, Size: 6},
	}
	wr := &write{id: 7, size: p.Size()}
	frame := w.writeFrame(wr, &p)
	if frame.Kind != workerwire.Write || frame.N != 7 || string(frame.Payload) != "<>" {
		t.Errorf("frame %+v", frame)
	}
	var filed workerwire.Filed
	if err := json.Unmarshal(frame.Body, &filed); err != nil {
		t.Fatal(err)
	}
	if filed.Before != 1 || wr.link != filepath.Join(w.dir, filed.Span.File) {
		t.Errorf("%+v, link %s", filed, wr.link)
	}
	if b, err := bulk.Read(w.dir, filed.Span); string(b) != "middle" {
		t.Errorf("the worker reads %q, %v", b, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wr = &write{id: 8, size: p.Size()}
	if frame = w.writeFrame(wr, &p); frame.Body != nil || string(frame.Payload) != "<middle>" || wr.link != "" {
		t.Errorf("without the file: frame %+v, link %q", frame, wr.link)
	}
}
