//go:build amd64 || arm64

package rawio

import (
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"holdline/protocol/lockcheck"
)

// maxTransfer bounds what one system call is given, in bytes: no other
// goroutine runs on this processor meanwhile.
const maxTransfer = 256 << 10

// init has the stream make its own system calls, if none of them can wait: for
// a socket each says so (recv(2), MSG_DONTWAIT), a pipe has to be non-blocking.
func (s *Stream) init(raw syscall.RawConn) {
	socket, fit := false, false
	err := raw.Control(func(fd uintptr) {
		var st unix.Stat_t
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil || unix.Fstat(int(fd), &st) != nil {
			return
		}
		socket = st.Mode&unix.S_IFMT == unix.S_IFSOCK
		fit = flags&unix.O_NONBLOCK != 0 && (socket || st.Mode&unix.S_IFMT == unix.S_IFIFO)
	})
	if err != nil || !fit {
		return
	}
	s.raw = raw
	s.in.step, s.out.step, s.socket = s.in.readPipe, s.out.writePipe, socket
	if socket {
		s.in.step, s.out.step = s.in.receive, s.out.sendSocket
	}
	s.try = func(fd uintptr) bool {
		s.out.step(fd)
		return true
	}
}

// readPipe makes one read(2) of a pipe; see [transfer].
func (t *transfer) readPipe(fd uintptr) bool {
	for {
		p := t.rest()
		n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		if errno != unix.EINTR {
			return t.took("read", int(n), errno)
		}
	}
}

// receive makes one recv(2) of a socket.
func (t *transfer) receive(fd uintptr) bool {
	for {
		p := t.rest()
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd,
			uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return t.took("recvfrom", int(n), errno)
		}
	}
}

// writePipe makes write(2) on a pipe until all is written or the pipe is full.
func (t *transfer) writePipe(fd uintptr) bool {
	if t.pipe > 0 {
		t.narrow(fd)
	}
	for t.n < len(t.buf) {
		p := t.rest()
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		if !t.wrote("write", int(n), errno) {
			return errno != unix.EAGAIN
		}
	}
	return true
}

// sendSocket makes send(2) on a socket until all is written or its buffer is full.
func (t *transfer) sendSocket(fd uintptr) bool {
	for t.n < len(t.buf) {
		p := t.rest()
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd,
			uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		if !t.wrote("sendto", int(n), errno) {
			return errno != unix.EAGAIN
		}
	}
	return true
}

// rest returns the bytes for the next system call.
func (t *transfer) rest() []byte { return t.buf[t.n:min(len(t.buf), t.n+maxTransfer)] }

// wrote records the result of a system call that writes, and reports whether the caller
// must make the next one at once.
func (t *transfer) wrote(call string, n int, errno syscall.Errno) bool {
	switch {
	case errno == unix.EINTR:
		return true
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		t.err = os.NewSyscallError(call, errno)
		return false
	case n == 0: // which nothing does that can be written to
		t.err = io.ErrUnexpectedEOF
		return false
	}
	t.n += n
	return true
}

// took notes what became of a system call that reads, and reports whether it is
// over.
func (t *transfer) took(call string, n int, errno syscall.Errno) bool {
	switch errno {
	case 0:
		t.n += n
	case unix.EAGAIN:
		return false
	default:
		t.err = os.NewSyscallError(call, errno)
	}
	return true
}

// InMemory reports whether a file lies in memory: to write it waits for no disk.
func InMemory(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	memory := false
	err = raw.Control(func(fd uintptr) {
		var st unix.Statfs_t
		memory = unix.Fstatfs(int(fd), &st) == nil && st.Type == unix.TMPFS_MAGIC
	})
	return memory && err == nil
}

// init has the file write by itself.
func (f *File) init() {
	raw, err := f.SyscallConn()
	if err == nil {
		f.raw, f.step = raw, f.writeAll
	}
}

// writeAll makes pwrite(2) until all is written.
func (f *File) writeAll(fd uintptr) {
	t := &f.out
	for t.n < len(t.buf) {
		p := t.rest()
		n, _, errno := unix.RawSyscall6(unix.SYS_PWRITE64, fd,
			uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(f.off+int64(t.n)), 0, 0)
		if !t.wrote("pwrite", int(n), errno) {
			return
		}
	}
}

// still is [Still] for a file in memory. known is false if it cannot tell.
func still(path string, info os.FileInfo) (same, known bool) {
	mine, ok := info.Sys().(*syscall.Stat_t)
	name, err := unix.BytePtrFromString(path)
	if !ok || err != nil {
		return false, false
	}
	var st unix.Statx_t
	at := unix.AT_FDCWD
	_, _, errno := unix.RawSyscall6(unix.SYS_STATX, uintptr(at), uintptr(unsafe.Pointer(name)),
		unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, uintptr(unsafe.Pointer(&st)), 0)
	return st.Ino == mine.Ino && unix.Mkdev(st.Dev_major, st.Dev_minor) == mine.Dev, errno == 0
}

// maxSplice bounds what one system call is to copy from a file, in bytes.
const maxSplice = 1 << 20

// maxPipe is the size in bytes to which SendFile enlarges a pipe: it then need not wait for the
// reader after each 64 KiB. A process without privileges may not have larger ones (pipe(7)).
const maxPipe = 1 << 20

// widen enlarges a pipe to maxPipe until the next Write. It leaves the pipe as it is if it is
// larger, or if the user has too many large ones.
func (t *transfer) widen(fd uintptr) {
	size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
	if err != nil || size >= maxPipe {
		return
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, maxPipe); err == nil {
		t.pipe = size
	}
}

// narrow gives a pipe its usual size again, unless too much is in it: the pages that all pipes of
// a user may have are counted by their sizes.
func (t *transfer) narrow(fd uintptr) {
	if _, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, t.pipe); err == nil {
		t.pipe = 0
	}
}

// sending is a SendFile under way.
type sending struct {
	socket   bool // else to a pipe, which gets the pages of the file
	from     int  // descriptor of the file
	off, end int64
	err      error // of the last system call
}

// send copies until all is written or nothing more is taken.
func (t *sending) send(fd uintptr) bool {
	for t.off < t.end {
		off, most := t.off, int(min(t.end-t.off, maxSplice))
		var n int64
		var err error
		if t.socket {
			var sent int
			sent, err = unix.Sendfile(int(fd), t.from, &off, most)
			n = int64(sent)
		} else {
			n, err = unix.Splice(t.from, &off, int(fd), nil, most, unix.SPLICE_F_NONBLOCK)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			t.err = os.NewSyscallError("splice", err)
			return true
		case n == 0: // the file has become shorter
			t.err = io.ErrUnexpectedEOF
			return true
		default:
			t.off += n
		}
	}
	return true
}

// SendFile has the kernel write size bytes of a regular file, from off on, and returns how
// many were written. The error is [errors.ErrUnsupported] if the rest cannot be written so.
func (s *Stream) SendFile(f *os.File, off, size int64) (int64, error) {
	lockcheck.Blocking("write")
	if s.raw == nil {
		return 0, errors.ErrUnsupported
	}
	file, err := f.SyscallConn()
	if err != nil {
		return 0, errors.ErrUnsupported
	}
	t := sending{socket: s.socket, off: off, end: off + size}
	var waited error
	err = file.Control(func(fd uintptr) {
		t.from = int(fd)
		if !s.socket {
			_ = s.raw.Control(s.out.widen) // the pipe works as it is, too
		}
		waited = s.raw.Write(t.send)
	})
	n := t.off - off
	switch {
	case n == size:
		return n, nil
	case errors.Is(t.err, unix.EINVAL), errors.Is(t.err, unix.ENOSYS), errors.Is(t.err, unix.EOPNOTSUPP):
		return n, errors.ErrUnsupported
	}
	return n, errors.Join(err, waited, t.err)
}
