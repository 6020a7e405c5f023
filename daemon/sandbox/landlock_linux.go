package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"holdline/protocol/process"
)

// writing are the rights to change files and directories that the first version of the
// ABI knows. Rights to read and execute are not among them: a confined process sees all
// that it saw before.
const writing = ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeChar |
	ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock |
	ll.AccessFSMakeSym

// ofFiles are those rights that a rule about a single file can grant. The kernel
// refuses a rule with any other.
const ofFiles = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev

// devices are the files that every program writes to and that keep nothing.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty"}

// Landlock returns the version of the kernel's Landlock ABI. It returns 0 if the kernel
// has none or if it is switched off.
func Landlock() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 0 {
		return 0
	}
	return version
}

// rights returns the rights that a kernel with this version of the ABI can take away.
func rights(version int) landlock.AccessFSSet {
	set := landlock.AccessFSSet(writing)
	for _, later := range []struct {
		since int
		right landlock.AccessFSSet
	}{{2, ll.AccessFSRefer}, {3, ll.AccessFSTruncate}, {5, ll.AccessFSIoctlDev}} {
		if version >= later.since {
			set |= later.right
		}
	}
	return set
}

// held opens the paths without following links, and returns paths that lead to what was opened, whatever
// is put in its place. It leaves out files that do not exist. The descriptors stay open until the
// process executes another program.
func held(paths []string, flags uint64) ([]string, error) {
	var out []string
	for _, path := range paths {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_NO_SYMLINKS,
		})
		switch {
		case errors.Is(err, unix.ENOENT) && flags&unix.O_DIRECTORY == 0: // a link could be there in a moment
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		default:
			out = append(out, "/proc/self/fd/"+strconv.Itoa(fd))
		}
	}
	return out, nil
}

// Confine takes from the calling process, from all its threads and from all that it
// will ever start the right to change anything in the file system. Excepted are what is
// below c.Dirs, what is in c.Files, and devices like /dev/null. It cannot be undone, and a
// set-uid program gets no more rights.
//
// Both lists hold absolute paths. Confine follows symbolic links now, once: a link that
// changes later changes nothing. With c.NoLinks it follows none, and returns [syscall.ELOOP] if
// there is one. A directory must exist; a file that does not exist is left out.
//
// If c says so, it also takes away sockets and signals to other processes. The sockets it
// takes from the calling thread and from all that this one starts alone: the caller has
// locked its goroutine to the thread, and executes another program.
//
// What this version of the ABI cannot take away stays possible: see [Gaps]. Without
// Landlock the error is [syscall.EOPNOTSUPP].
func Confine(c *process.Confine) error {
	version := Landlock()
	if version == 0 || c.Sockets == process.SocketsTCP && version < Ports {
		return fmt.Errorf("landlock: %w", syscall.EOPNOTSUPP)
	}
	dirs, files := c.Dirs, c.Files
	if c.NoLinks {
		var err error
		if dirs, err = held(c.Dirs, unix.O_DIRECTORY); err == nil {
			files, err = held(c.Files, 0)
		}
		if err != nil {
			return err
		}
	}
	set := rights(version)
	config := landlock.Config{HandledAccessFS: set}
	rules := []landlock.Rule{
		landlock.PathAccess(set, dirs...),
		landlock.PathAccess(set&ofFiles, files...).IgnoreIfMissing(),
		landlock.PathAccess(set&ofFiles, devices...).IgnoreIfMissing(),
	}
	if c.Sockets == process.SocketsTCP {
		config.HandledAccessNet = ll.AccessNetConnectTCP | ll.AccessNetBindTCP
		for _, port := range c.Ports {
			rules = append(rules, landlock.ConnectTCP(uint16(port)))
		}
	}
	if c.Sockets != process.SocketsAny && version >= Signals {
		config.Scoped = ll.ScopeSignal | ll.ScopeAbstractUnixSocket
	}
	if err := config.Restrict(rules...); err != nil {
		return err
	}
	return filterSockets(c.Sockets)
}
