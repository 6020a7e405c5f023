//go:build !linux || !(amd64 || arm64)

package rawio

import (
	"os"
	"syscall"
)

// init leaves all to plain.
func (s *Stream) init(syscall.RawConn) {}

// InMemory is not known here.
func InMemory(*os.File) bool { return false }

// init leaves all to the runtime.
func (f *File) init() {}

// still knows nothing here.
func still(string, os.FileInfo) (same, known bool) { return false, false }
