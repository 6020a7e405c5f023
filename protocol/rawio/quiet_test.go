package rawio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestQuiet checks what a quiet socket has besides a stream: its own Read and Write, addresses, and
// that each direction can be closed.
func TestQuiet(t *testing.T) {
	a, b := connect(t)
	path := b.LocalAddr().String()
	to, from := Quiet(a), Quiet(b)
	defer to.Close()
	defer from.Close()
	if got := from.LocalAddr().String(); got != path {
		t.Errorf("local address %s", got)
	}
	if got := to.RemoteAddr().String(); got != path {
		t.Errorf("remote address %s", got)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // more than a socket holds
	done := make(chan error, 1)
	go func() {
		n, err := to.Write(want)
		if n != len(want) {
			err = errors.Join(err, io.ErrShortWrite)
		}
		done <- errors.Join(err, to.CloseWrite())
	}()
	got, err := io.ReadAll(from)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes of %d, %v", len(got), len(want), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := from.Write([]byte("back")); err != nil {
		t.Error("the other direction:", err)
	}
	if err := to.CloseRead(); err != nil {
		t.Error(err)
	}
}

// TestQuietDeadline checks that a read and a write after their deadline do nothing, and another
// deadline lets writes through again.
func TestQuietDeadline(t *testing.T) {
	a, b := connect(t)
	to, from := Quiet(a), Quiet(b)
	defer to.Close()
	defer from.Close()
	if err := to.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write = %d, %v", n, err)
	}
	if n, err := to.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %d, %v", n, err)
	}
	_, err := to.Write([]byte("x"))
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Errorf("%v is no time-out of package net", err)
	}
	if err := to.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Write([]byte("y")); err != nil {
		t.Error(err)
	}
	got := make([]byte, 2)
	if n, err := from.Read(got); err != nil || string(got[:n]) != "y" {
		t.Errorf("read %q, %v", got[:n], err)
	}
}

// TestQuietClose checks that Close ends a Write that waits, and that nothing of a closed socket is
// usable.
func TestQuietClose(t *testing.T) {
	a, b := connect(t)
	to, from := Quiet(a), Quiet(b)
	defer from.Close()
	done := make(chan error)
	go func() {
		_, err := to.Write(make([]byte, 8<<20))
		done <- err
	}()
	if _, err := io.ReadFull(from, make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write that waits: %v", err)
	}
	raw, err := to.SyscallConn()
	if err == nil {
		err = raw.Control(func(uintptr) { t.Error("a closed socket was used") })
	}
	for op, err := range map[string]error{
		"Close": to.Close(), "CloseWrite": to.CloseWrite(), "Control": err,
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", op, err)
		}
	}
}
