package bulk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/protocol"
	"holdline/protocol/rawio"
)

// write makes a file in dir with this content, and returns its path.
func write(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpen checks that nothing but a regular file below the directory is opened, and only if
// it has the bytes.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "run")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := write(t, dir, "secret", []byte("0123456789"))
	write(t, inside, "good", []byte("0123456789"))
	if err := errors.Join(os.Symlink(secret, filepath.Join(inside, "link")),
		syscall.Mkfifo(filepath.Join(inside, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]protocol.Span{
		"outside":           {File: "../secret", Size: 1},
		"absolute":          {File: secret, Size: 1},
		"a link":            {File: "link", Size: 1},
		"a pipe":            {File: "pipe", Size: 1},
		"a directory":       {File: ".", Size: 1},
		"no name":           {Size: 1},
		"missing":           {File: "none", Size: 1},
		"too short":         {File: "good", Offset: 5, Size: 6},
		"before its begin":  {File: "good", Offset: -1, Size: 1},
		"of no size":        {File: "good", Size: -1},
		"of much too large": {File: "good", Offset: 1 << 62, Size: 1 << 62},
	} {
		if f, err := Open(inside, s); !errors.Is(err, ErrSpan) {
			t.Errorf("%s: opened %v, %v", what, f, err)
		}
	}
	if _, err := Open("run", protocol.Span{File: "good", Size: 1}); !errors.Is(err, ErrSpan) {
		t.Errorf("below a directory that is not absolute: %v", err)
	}
	b, err := Read(inside, protocol.Span{File: "good", Offset: 3, Size: 4})
	if err != nil || string(b) != "3456" {
		t.Errorf("%q, %v", b, err)
	}
	path := filepath.Join(inside, "good")
	written := time.Unix(1_700_000_000, 123)
	if err := os.Chtimes(path, written, written); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path) // some file systems keep less of a time
	if err != nil {
		t.Fatal(err)
	}
	span := protocol.Span{File: "good", Size: 4, Changed: info.ModTime().UnixNano()}
	if b, err := Read(inside, span); err != nil || string(b) != "0123" {
		t.Errorf("as it was written: %q, %v", b, err)
	}
	if err := os.WriteFile(path, []byte("0023456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(inside, span); !errors.Is(err, ErrSpan) || !strings.Contains(err.Error(), path) {
		t.Errorf("with one letter changed: %q, %v", b, err)
	}
	span = protocol.Span{File: "good", Offset: 3, Size: 4, Sum: Sum([]byte("3456"))}
	if b, err := Read(inside, span); err != nil || string(b) != "3456" {
		t.Errorf("with its checksum: %q, %v", b, err)
	}
	span.Sum++
	if b, err := Read(inside, span); !errors.Is(err, ErrSpan) || !strings.Contains(err.Error(), path) {
		t.Errorf("with another checksum: %q, %v", b, err)
	}
	if name, ok := Name(inside, filepath.Join(inside, "w", "x")); name != "w/x" || !ok {
		t.Errorf("named %q, %v", name, ok)
	}
	if name, ok := Name(inside, secret); ok {
		t.Errorf("what lies outside is named %q", name)
	}
}

// TestSeal checks that what [Seal] makes is JSON, and that neither with a wrong letter nor under another name it is
// taken for whole.
func TestSeal(t *testing.T) {
	const object = `{"a":"one","sum":7,"b":[1]}`
	sealed := Seal("w1/file", []byte(object))
	var got struct {
		A string
		B []int
	}
	err := json.Unmarshal(sealed, &got)
	if err != nil || got.A != "one" || len(got.B) != 1 || !IsSealed("w1/file", sealed) {
		t.Errorf("%s: %v, %+v", sealed, err, got)
	}
	if IsSealed("w2/file", sealed) || IsSealed("w1/file", []byte(object)) || IsSealed("w1/file", nil) {
		t.Error("what is not sealed, or is another file's, is taken for whole")
	}
	for i := range sealed {
		for _, changed := range [][]byte{bytes.Clone(sealed), sealed[:i]} {
			if len(changed) > i {
				changed[i] ^= 1
			}
			if IsSealed("w1/file", changed) {
				t.Errorf("%s is taken for whole", changed)
			}
		}
	}
}

// TestCopy copies parts of a file to a pipe, to a buffer, and to another file.
func TestCopy(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	path := write(t, t.TempDir(), "long", content)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const off, size = 1234, 1<<20 - 4321
	want := content[off : off+size]
	if err := os.Remove(path); err != nil { // what is open stays readable
		t.Fatal(err)
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		n, err := Copy(rawio.New(w), f, off, size)
		if err == nil && n != size {
			err = io.ErrShortWrite
		}
		done <- errors.Join(err, w.Close())
	}()
	got, err := io.ReadAll(r)
	if err = errors.Join(err, <-done); err != nil || !bytes.Equal(got, want) {
		t.Errorf("of %d bytes %d came through a pipe, %v", size, len(got), err)
	}

	var buf bytes.Buffer
	if n, err := Copy(&buf, f, off, size); n != size || err != nil || !bytes.Equal(buf.Bytes(), want) {
		t.Errorf("of %d bytes %d came into memory, %v", size, n, err)
	}
	if n, err := Copy(io.Discard, f, off, int64(len(content))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("beyond the end: %d bytes, %v", n, err)
	}
}

// TestUse checks that a file's bytes can be read in place.
func TestUse(t *testing.T) {
	f, err := os.Open(write(t, t.TempDir(), "long", []byte("0123456789")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := ""
	if err := Use(f, 4, func(b []byte) { got = string(b) }); err != nil || got != "0123" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestUseOfShortened checks that a program that shortens a file in use makes a panic, which
// can be recovered, and not the end of the process.
func TestUseOfShortened(t *testing.T) {
	path := write(t, t.TempDir(), "long", make([]byte, 1<<20))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := 0
	defer func() {
		if recover() == nil {
			t.Errorf("bytes that are gone were read, their sum is %d", sum)
		}
	}()
	_ = Use(f, 1<<20, func(b []byte) {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		for _, c := range b {
			sum += int(c)
		}
	})
}

// TestCopyNothing checks that no bytes can be copied.
func TestCopyNothing(t *testing.T) {
	f, err := os.Open(write(t, t.TempDir(), "long", []byte("0123456789")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var buf bytes.Buffer
	if n, err := Copy(&buf, f, 5, 0); n != 0 || err != nil || buf.Len() != 0 {
		t.Errorf("%d bytes, %v, %q", n, err, buf.String())
	}
}

// TestPart checks where a part of a line lies in its file, and that copies lie in none.
func TestPart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("..0123456789.."), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ReadLine(dir, protocol.Span{File: "f", Offset: 2, Size: 10})
	if err != nil || string(l.Text) != "0123456789" {
		t.Fatalf("%q, %v", l.Text, err)
	}
	inner := l.File.Part(l.Text, l.Text[2:8])
	if part := inner.Part(l.Text[2:8], l.Text[3:5]); part == nil || part.Offset != 5 || part.Size != 2 {
		t.Errorf("a part of a part: %+v", part)
	}
	for name, part := range map[string]*File{
		"a copy":      l.File.Part(l.Text, []byte("345")),
		"of no file":  (*File)(nil).Part(l.Text, l.Text[1:2]),
		"of a copy":   l.File.Part([]byte("0123456789"), l.Text[1:2]),
		"too long":    inner.Part(l.Text[2:8], l.Text[3:9]),
		"before it":   inner.Part(l.Text[2:8], l.Text[1:3]),
		"without one": l.File.Part(l.Text, nil),
	} {
		if part != nil {
			t.Errorf("%s lies at %+v", name, part)
		}
	}
}
