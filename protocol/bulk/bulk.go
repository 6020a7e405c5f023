// Package bulk is for payloads that lie in a file: processes of Holdline name the file to
// each other instead of sending the bytes, and the last one has the kernel copy them.
//
// A file lies in the runtime directory, below the directory of its maker, and is complete
// and never changed once it is named. A [protocol.Span] names it relative to that directory.
// Whoever cannot open it gets the bytes.
package bulk

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
)

// Min is the size in bytes from which on a payload is worth a file.
const Min = 128 << 10

// minFree is how much room a file system must have for files of payloads, in bytes: on a small
// one they would take the place of records.
const minFree = 128 << 20

// ErrNoRoom is the error of [HasRoom].
var ErrNoRoom = errors.New("the file system has too little room for long lines")

// HasRoom returns nil if the file system of a directory has room for files of payloads.
func HasRoom(dir string) error { return HasRoomFor(dir, 0) }

// HasRoomFor is [HasRoom] with room for so many bytes besides.
func HasRoomFor(dir string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if uint64(st.Bavail)*uint64(st.Bsize) < minFree+uint64(size) { //nolint:unconvert // the types differ by system
		return ErrNoRoom
	}
	return nil
}

// castagnoli is the polynomial that processors compute.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// Sum returns the checksum by which a reader of a file notices that its bytes are not those that
// were written.
func Sum(b []byte) uint32 { return AddSum(0, b) }

// AddSum returns the checksum of what has sum, followed by b.
func AddSum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli(), b) }

// keySum begins the last member of what [Seal] returns.
const keySum = `,"sum":`

// Seal returns a JSON object with a further member, its last one: a checksum of name and of what stands
// before it. With the name of the file for name, the content of another file does not match. It may
// overwrite object.
func Seal(name string, object []byte) []byte {
	b := object[:len(object)-1] // the brace
	return fmt.Appendf(b, "%s%d}", keySum, AddSum(Sum([]byte(name)), b))
}

// IsSealed reports whether b is what [Seal] has returned for that name.
func IsSealed(name string, b []byte) bool {
	i := bytes.LastIndex(b, []byte(keySum))
	return i >= 0 && string(b[i:]) == fmt.Sprintf("%s%d}", keySum, AddSum(Sum([]byte(name)), b[:i]))
}

// File names bytes in a file, which is never changed.
type File struct {
	Path         string
	Offset, Size int64
	Changed      int64 // see [protocol.Span]
}

// Part returns where a part of whole lies, the bytes of f. It returns nil if f is nil, or if part
// is a copy.
func (f *File) Part(whole, part []byte) *File {
	at, size := int64(jsonrpc.Offset(whole, part)), int64(len(part))
	if f == nil || at < 0 || at+size > f.Size {
		return nil
	}
	return &File{Path: f.Path, Offset: f.Offset + at, Size: size, Changed: f.Changed}
}

// Line is a line without its newline.
type Line struct {
	Text []byte
	File *File // in which Text lies, too; nil if in none
}

// Parts are the bytes of a line, in order.
type Parts struct {
	Before, Long, After []byte
	File                *File // has the bytes of Long, too; nil if none does
}

// Size returns how many bytes the line has.
func (p *Parts) Size() int { return len(p.Before) + len(p.Long) + len(p.After) }

// ErrSpan is wrapped by the errors about a span that cannot be used.
var ErrSpan = errors.New("the file with the rest of a line cannot be used")

// Name returns the name by which other processes find the file at path; false if it does not
// lie below the runtime directory dir.
func Name(dir, path string) (name string, ok bool) {
	name, err := filepath.Rel(dir, path)
	return name, err == nil && filepath.IsLocal(name)
}

// Open opens the file of a span below the runtime directory dir, and checks that it is one
// of Holdline's that has these bytes. The bytes stay readable, even if the file is removed.
func Open(dir string, s protocol.Span) (*os.File, error) {
	if !filepath.IsAbs(dir) || !filepath.IsLocal(s.File) || s.Offset < 0 || s.Size < 0 || s.Size > ownfile.MaxDocument {
		return nil, fmt.Errorf("%w: %q, %d bytes from %d on", ErrSpan, s.File, s.Size, s.Offset)
	}
	f, err := ownfile.Open(filepath.Join(dir, s.File))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpan, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Size()-s.Size < s.Offset:
		err = fmt.Errorf("%s has %d bytes, want %d from %d on", f.Name(), info.Size(), s.Size, s.Offset)
	case s.Changed != 0 && info.ModTime().UnixNano() != s.Changed:
		err = fmt.Errorf("%s was changed since it was written", f.Name())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%w: %w", ErrSpan, err)
	}
	return f, nil
}

// Read returns the bytes of a span below the runtime directory dir.
func Read(dir string, s protocol.Span) ([]byte, error) {
	f, err := Open(dir, s)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, s.Size)
	if _, err := f.ReadAt(b, s.Offset); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSpan, f.Name(), err)
	}
	if s.Sum != 0 && Sum(b) != s.Sum {
		return nil, fmt.Errorf("%w: %s is damaged", ErrSpan, f.Name())
	}
	return b, nil
}

// ReadLine is [Read] of a line.
func ReadLine(dir string, s protocol.Span) (Line, error) {
	text, err := Read(dir, s)
	return Line{Text: text, File: &File{Path: filepath.Join(dir, s.File), Offset: s.Offset, Size: s.Size}}, err
}

// sender is a stream to which the kernel copies files; see package rawio.
type sender interface {
	SendFile(f *os.File, off, size int64) (int64, error)
}

// copyBuffer is the size of the buffer through which a file is copied if the kernel cannot.
const copyBuffer = 64 << 10

// Copy writes size bytes of a file to w, from off on. It returns how many were written.
func Copy(w io.Writer, f *os.File, off, size int64) (n int64, err error) {
	if to, ok := w.(sender); ok {
		if n, err = to.SendFile(f, off, size); !errors.Is(err, errors.ErrUnsupported) {
			return n, err
		}
	}
	buf := make([]byte, max(1, min(copyBuffer, size-n))) // an empty one is a panic
	more, err := io.CopyBuffer(struct{ io.Writer }{w}, io.NewSectionReader(f, off+n, size-n), buf)
	if n += more; err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// CopyBetween is [Copy] of a span of f between the first n bytes of data and the others.
func CopyBetween(w io.Writer, data []byte, n int, f *os.File, s protocol.Span) (written int64, err error) {
	begun, err := w.Write(data[:n])
	if written = int64(begun); err != nil {
		return written, err
	}
	copied, err := Copy(w, f, s.Offset, s.Size)
	if written += copied; err != nil {
		return written, err
	}
	rest, err := w.Write(data[n:])
	return written + int64(rest), err
}

// Use calls use with the first size bytes of a file, which are valid until it returns. They
// are mapped where that can be, and else read. A panic in use is that of use: so is one since
// another program has shortened the file meanwhile.
func Use(f *os.File, size int, use func(b []byte)) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var b []byte
	var merr error
	if err := raw.Control(func(fd uintptr) {
		b, merr = unix.Mmap(int(fd), 0, size, unix.PROT_READ, unix.MAP_SHARED|mapAtOnce)
	}); err != nil {
		return err
	}
	if merr != nil {
		b = make([]byte, size)
		if _, err := f.ReadAt(b, 0); err != nil {
			return err
		}
		use(b)
		return nil
	}
	defer func(before bool) {
		debug.SetPanicOnFault(before)
		_ = unix.Munmap(b)
	}(debug.SetPanicOnFault(true))
	use(b)
	return nil
}
