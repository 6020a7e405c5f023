package proxy

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pollable is f as a file that the runtime's poller waits for, so that no
// thread is held while nothing comes; nil if f cannot be had so. undo puts
// back what was changed.
//
// A pipe is opened a second time: the new open file has flags of its own, so
// that nobody who shares f sees it become non-blocking (proc(5), "fd/"). A
// socket cannot be; who hands one over as a standard stream gives its end away.
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
		again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags&unix.O_ACCMODE|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
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
