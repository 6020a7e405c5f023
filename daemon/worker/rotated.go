package worker

import (
	"os"

	"holdline/protocol/ownfile"
)

// logMax is the size at which a log is moved aside, in bytes.
const logMax = 1 << 20

// rotated is a log of at most two files of logMax. It is made with the first
// byte, and a disk that takes nothing more costs only the log. It is for one
// goroutine.
type rotated struct {
	path string
	f    *os.File
	size int64
}

func newRotated(path string) *rotated { return &rotated{path: path} }

func (r *rotated) write(b []byte) {
	if r.f != nil && r.size+int64(len(b)) > logMax {
		r.close()
		_ = os.Rename(r.path, r.path+".1")
	}
	if r.f == nil {
		f, err := ownfile.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
		if err != nil {
			return
		}
		r.f, r.size = f, 0
		if info, err := f.Stat(); err == nil {
			r.size = info.Size()
		}
	}
	n, _ := r.f.Write(b)
	r.size += int64(n)
}

func (r *rotated) close() {
	if r.f != nil {
		_ = r.f.Close()
		r.f = nil
	}
}
