package socket

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxPath is sun_path's 104 bytes less its final zero.
const maxPath = 103

// temporary is the last fall-back directory: TMPDIR is the user's own here.
func temporary(env func(string) string, uid string) string {
	if dir := env("TMPDIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, dirName)
	}
	return filepath.Join("/tmp", dirName+"-"+uid)
}

// peerOf returns the process at the other end of the connection fd.
func peerOf(fd int) (Peer, error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	// Absent for a peer that is gone; nothing but a label depends on it.
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		pid = 0
	}
	return Peer{UID: int(cred.Uid), PID: pid}, nil
}
