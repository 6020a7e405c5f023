package rawio

import (
	"os"
	"syscall"

	"holdline/protocol/lockcheck"
)

// File is a file of which each WriteAt of one that lies in memory (tmpfs(5)),
// where no disk is waited for, is made without telling the runtime. One
// goroutine at a time may write.
type File struct {
	*os.File
	raw  syscall.RawConn // nil if all is left to the runtime
	off  int64
	out  transfer
	step func(fd uintptr)
}

// NewFile makes a [File] of f, and owns it from then on.
func NewFile(f *os.File) *File {
	one := &File{File: f}
	if InMemory(f) {
		one.init()
	}
	return one
}

// WriteAt is what [io.WriterAt] says.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	lockcheck.Blocking("write file")
	if f.raw == nil || len(p) == 0 {
		return f.File.WriteAt(p, off)
	}
	t := &f.out
	t.buf, t.n, t.err, f.off = p, 0, nil, off
	gone := f.raw.Control(f.step)
	n, err := t.n, t.err
	t.buf = nil
	if gone != nil {
		return f.File.WriteAt(p, off)
	}
	return n, err
}

// Still reports whether path names the file that info is of, and is no symbolic
// link. The runtime is not told if the file lies in memory.
func Still(path string, info os.FileInfo, memory bool) bool {
	if memory {
		if same, known := still(path, info); known {
			return same
		}
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(info, there)
}
