package worker

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/bulk"
	"holdline/protocol/process"
)

// newLongWorker returns a worker that runs nothing.
func newLongWorker(t *testing.T) *worker {
	t.Helper()
	spec := process.Spec{Orphan: process.Orphan{Do: process.OrphanLeave}}
	spec.SetDefaults()
	return newWorker(t.TempDir(), spec, nil, io.Discard)
}

// readAs has the worker read text as its child's output, in pieces of so many bytes.
func (w *worker) readAs(text string, size int) {
	for piece := range slices.Chunk([]byte(text), size) {
		w.took(bytes.Clone(piece))
	}
}

// doLater does what conduct would do.
func (w *worker) doLater() {
	w.mu.Lock()
	later := w.later
	w.later = nil
	w.mu.Unlock()
	for _, do := range later {
		do()
	}
}

// files returns the names of the files of long lines.
func (w *worker) files(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(w.dir, process.FileLong+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// output returns all of the output, as a daemon would get it, and how many entries are in files.
func (w *worker) output(t *testing.T) (text string, filed int) {
	t.Helper()
	var b strings.Builder
	for i := range w.out.entries {
		e := &w.out.entries[i]
		if e.file == "" {
			b.Write(e.data)
			continue
		}
		filed++
		data, err := w.readFiled(e)
		whole, werr := os.ReadFile(filepath.Join(w.dir, e.file))
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		b.Write(data)
		if line := b.String(); !strings.HasSuffix(line, string(whole)) || int64(len(whole)) != e.off+int64(e.size) {
			t.Errorf("the file has %d bytes, and is not the whole line", len(whole))
		}
	}
	return b.String(), filed
}

// TestLongLine checks that each long line lies in a file, as a whole, wherever the output is
// cut, and that what is beside it and before its end does not. The file goes when the line is
// acknowledged.
func TestLongLine(t *testing.T) {
	long := strings.Repeat("0123456789", bulk.Min/5)
	text := "first\n" + long + "\nbetween\n" + strings.Repeat("short\n", bulk.Min/4) + long + long + "\nlast\nrest"
	for _, size := range []int{1 << 20, 65_521, 64 << 10, 4096} {
		w := newLongWorker(t)
		w.readAs(text, size)
		got, filed := w.output(t)
		if got != text || filed != 2 && size < bulk.Min {
			t.Errorf("in pieces of %d bytes: %d bytes, %d entries in files, want %d and 2",
				size, len(got), filed, len(text))
		}
		w.out.ack(w.out.next-1, w.dropFileLocked)
		if w.doLater(); len(w.files(t)) > 0 {
			t.Errorf("%q are left", w.files(t))
		}
		if w.out.in.Bytes != 0 || w.out.in.Count != 0 {
			t.Errorf("%d bytes of output count, in %d entries", w.out.in.Bytes, w.out.in.Count)
		}
	}
}

// TestLongLineWithoutRoom checks that a line whose file cannot be made, or whose beginning was
// acknowledged, stays in memory, and that the next line tries again.
func TestLongLineWithoutRoom(t *testing.T) {
	long := strings.Repeat("0123456789", bulk.Min/5) + "\n"
	w := newLongWorker(t)
	dir := w.dir
	w.dir = filepath.Join(dir, "none")
	w.readAs(long, 10_000)
	if got, filed := w.output(t); got != long || filed != 0 {
		t.Errorf("without room: %d bytes, %d entries in files", len(got), filed)
	}
	w.dir = dir
	w.readAs(long, 10_000)
	if _, filed := w.output(t); filed != 1 {
		t.Errorf("with room: %d entries in files", filed)
	}
	w.out.ack(w.out.next-1, w.dropFileLocked)
	w.readAs("0123456789", 10_000)
	w.out.ack(w.out.next-1, w.dropFileLocked)
	w.readAs(long, 10_000)
	if got, filed := w.output(t); got != long || filed != 0 {
		t.Errorf("without its beginning: %d bytes, %d entries in files", len(got), filed)
	}
}

// TestLongLineInSpool checks that a spool has long lines, too, also one that has not ended.
func TestLongLineInSpool(t *testing.T) {
	long := strings.Repeat("0123456789", bulk.Min/5)
	w := newLongWorker(t)
	text := "a\n" + long + "\nb\n" + long
	w.readAs(text, 64<<10)
	w.mu.Lock()
	w.goAloneLocked()
	w.mu.Unlock()
	w.doLater()
	w.readAs("end\n", 64<<10)
	w.doLater()
	b, err := os.ReadFile(filepath.Join(w.dir, process.FileSpool))
	if err != nil || string(b) != text+"end\n" || len(w.files(t)) > 0 {
		t.Errorf("the spool has %d bytes, want %d, %v; left are %q", len(b), len(text)+4, err, w.files(t))
	}
}
