package stream

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pollable returns f as a file that the runtime's poller can wait for: then no thread blocks
// while no bytes come. It returns a nil file if f is of another kind. undo restores the flags
// of f. The caller must close the file and call undo.
//
// A pipe is opened a second time: the new open file has flags of its own, so that other
// processes that share f do not see it become non-blocking (proc(5), "fd/"). A socket cannot
// be opened again. Its flag is changed: a client that hands over a socket as a standard
// stream does not use that end itself.
func pollable(f *os.File, fd int) (file *os.File, undo func()) {
	nothing := func() {}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil, nothing
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, nothing
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd),
			flags&unix.O_ACCMODE|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, nothing
		}
		return os.NewFile(uintptr(again), f.Name()), nothing
	case unix.S_IFSOCK:
		again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, nothing
		}
		if flags&unix.O_NONBLOCK == 0 {
			if unix.SetNonblock(fd, true) != nil {
				_ = unix.Close(again)
				return nil, nothing
			}
			nothing = func() { _ = unix.SetNonblock(fd, false) }
		}
		return os.NewFile(uintptr(again), f.Name()), nothing
	}
	return nil, nothing
}
