package socket

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxPath is sun_path's 108 bytes less its final zero.
const maxPath = 107

// temporary is the last fall-back directory.
func temporary(_ func(string) string, uid string) string {
	return filepath.Join("/tmp", dirName+"-"+uid)
}

// peerOf returns the process at the other end of the connection fd.
func peerOf(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
