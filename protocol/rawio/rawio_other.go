//go:build !linux || !(amd64 || arm64)

package rawio

import (
	"errors"
	"os"
	"syscall"
)

// init leaves all to plain.
func (s *Stream) init(syscall.RawConn) {}

// SendFile can do nothing here.
func (s *Stream) SendFile(*os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

// InMemory is not known here.
func InMemory(*os.File) bool { return false }

// init leaves all to the runtime.
func (f *File) init() {}

// still knows nothing here.
func still(string, os.FileInfo) (same, known bool) { return false, false }
