package rawio

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// end is one end of a pipe or of a connection.
type end interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// connect returns both ends of a connection.
func connect(t *testing.T) (to, from *net.UnixConn) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	to, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: ln.Addr().String(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	from, err = ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	return to, from
}

// each runs test with a pipe and with sockets: what is written to one end is read at the
// other.
func each(t *testing.T, test func(t *testing.T, to, from end, closed error)) {
	t.Helper()
	t.Run("pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		test(t, w, r, os.ErrClosed)
	})
	t.Run("socket", func(t *testing.T) {
		to, from := connect(t)
		test(t, to, from, net.ErrClosed)
	})
	t.Run("quiet socket", func(t *testing.T) {
		to, from := connect(t)
		test(t, Quiet(to), Quiet(from), net.ErrClosed)
	})
}

// TestCarries writes more than a pipe or socket holds, and reads all of it and the end.
func TestCarries(t *testing.T) {
	each(t, func(t *testing.T, to, from end, _ error) {
		t.Helper()
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		done := make(chan error, 1)
		go func() {
			n, err := New(to).Write(want)
			if err == nil && n != len(want) {
				err = io.ErrShortWrite
			}
			done <- errors.Join(err, to.Close())
		}()
		got, err := io.ReadAll(New(from))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes of %d, %v", len(got), len(want), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestGathers writes several pieces with one call.
func TestGathers(t *testing.T) {
	each(t, func(t *testing.T, to, from end, _ error) {
		t.Helper()
		n, err := New(to).Gather(&net.Buffers{[]byte("ab"), []byte("cd")})
		if n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(New(from), got); err != nil || string(got) != "abcd" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestDeadlines checks that a wait ends at its deadline, and returns how much was done
// before it.
func TestDeadlines(t *testing.T) {
	each(t, func(t *testing.T, to, from end, _ error) {
		t.Helper()
		in, out := New(from), New(to)
		if err := from.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := in.Read(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %d, %v", n, err)
		}
		if err := from.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		type end struct {
			n   int
			err error
		}
		wrote := make(chan end)
		go func() {
			n, err := out.Write(make([]byte, 8<<20))
			wrote <- end{n, err}
		}()
		if _, err := io.ReadFull(in, make([]byte, 1)); err != nil { // some of it was written
			t.Error(err)
		}
		if err := to.SetWriteDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		w := <-wrote
		if w.n == 0 || w.n == 8<<20 || !errors.Is(w.err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %d, %v", w.n, w.err)
		}
		if got, err := io.CopyN(io.Discard, in, int64(w.n-1)); err != nil {
			t.Errorf("%d more bytes of %d can be read, %v", got, w.n, err)
		}
	})
}

// TestClose checks that Close ends a waiting call, and that all later calls fail.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, to, from end, closed error) {
		t.Helper()
		in, out := New(from), New(to)
		done := make(chan error)
		go func() {
			_, err := in.Read(make([]byte, 8))
			done <- err
		}()
		if err := from.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, closed) {
			t.Errorf("Read that waits: %v, want %v", err, closed)
		}
		if _, err := in.Read(make([]byte, 8)); !errors.Is(err, closed) {
			t.Errorf("Read: %v, want %v", err, closed)
		}
		if _, err := out.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write to nobody: %v", err)
		}
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("x")); !errors.Is(err, closed) {
			t.Errorf("Write: %v, want %v", err, closed)
		}
	})
}

// TestWouldWait checks that descriptors whose calls could block in the kernel, such as a
// blocking pipe or a file, are left to package os.
func TestWouldWait(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	defer w.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, f := range []*os.File{r, w, file} {
		if New(f).raw != nil {
			t.Errorf("%s is read and written without the runtime", f.Name())
		}
	}
	done := make(chan string)
	go func() {
		b := make([]byte, 8)
		n, _ := New(r).Read(b)
		done <- string(b[:n])
	}()
	if _, err := New(w).Write([]byte("late")); err != nil {
		t.Error(err)
	}
	if got := <-done; got != "late" {
		t.Errorf("read %q", got)
	}
}

// TestSteady checks that reading and writing do not allocate.
func TestSteady(t *testing.T) {
	each(t, func(t *testing.T, to, from end, _ error) {
		t.Helper()
		in, out := New(from), New(to)
		b := make([]byte, 64)
		if n := testing.AllocsPerRun(100, func() {
			_, errOut := out.Write(b)
			_, errIn := in.Read(b)
			if errOut != nil || errIn != nil {
				t.Fatal(errOut, errIn)
			}
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
