package stream

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
)

// TestStream writes and reads more than a pipe holds, and checks that Close wakes blocked
// reads and writes.
func TestStream(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	in, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	out, err := New(w)
	if err != nil {
		t.Fatal(err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 20000)
	wrote := make(chan error, 1)
	go func() {
		_, err := out.Write(big)
		wrote <- err
	}()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, big) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	// Close must wake a writer whose pipe is full, and a reader whose pipe is empty.
	go func() {
		_, err := out.Write(big)
		wrote <- err
	}()
	if _, err := io.ReadFull(in, make([]byte, 100)); err != nil { // the writer has begun
		t.Fatal(err)
	}
	out.Close()
	out.Close()
	if err := <-wrote; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write, closed = %v, want %v", err, os.ErrClosed)
	}
	empty, full, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	defer full.Close()
	waiting, err := New(empty)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := waiting.Read(make([]byte, 1))
		read <- err
	}()
	waiting.Close()
	if err := <-read; !errors.Is(err, io.EOF) {
		t.Errorf("Read, closed = %v, want %v", err, io.EOF)
	}
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read after Close = %v, want %v", err, io.EOF)
	}
}

// TestStdioEnds checks the end of input, a pipe without a reader, and files.
func TestStdioEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := New(w)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w2, err := syscall.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	out.Close() // out may have a descriptor of its own
	syscall.Write(w2, []byte("last"))
	syscall.Close(w2)
	if b, err := io.ReadAll(in); err != nil || string(b) != "last" {
		t.Errorf("read %q, %v", b, err)
	}
	r.Close()
	r, w, err = os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	broken, err := New(w)
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	if _, err := broken.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write to a pipe without reader = %v, want %v", err, syscall.EPIPE)
	}
	// Files are always ready.
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write([]byte("line\n")); err != nil {
		t.Error(err)
	}
	f.Seek(0, io.SeekStart)
	if b, err := io.ReadAll(file); err != nil || string(b) != "line\n" {
		t.Errorf("read %q, %v", b, err)
	}
}
