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

func (f *File) init() {}

func still(string, os.FileInfo) (same, known bool) { return false, false }
