package sandbox

import (
	"fmt"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// writing are the rights by which a process changes what is there, of the
// first version of the ABI. Reading and executing are not among them: a
// confined process sees all that it saw before.
const writing = ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeChar |
	ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock |
	ll.AccessFSMakeSym

// ofFiles are those of them that a rule about a single file can grant.
const ofFiles = ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev

// devices are what every program writes to, and nothing is kept of.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty"}

// Landlock is the version of the kernel's Landlock ABI, or 0 if it has none,
// or it is switched off.
func Landlock() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 0 {
		return 0
	}
	return version
}

// rights are those that a kernel of this version of the ABI can take away.
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

// Confine takes from the calling process, all its threads and all that it
// will ever start the right to change anything in the file system but what
// is below dirs, and what is in files; devices like /dev/null stay. It cannot
// be undone, and no program that it starts gets more rights by being set-uid.
// Both lists hold absolute paths without symbolic links to be trusted: where
// they lead now is what is meant. A directory must exist, a file that does not
// is left out.
//
// What the kernel's version of the ABI cannot take away ([Gaps]) stays
// possible. Without Landlock the error is [syscall.EOPNOTSUPP].
func Confine(dirs, files []string) error {
	version := Landlock()
	if version == 0 {
		return fmt.Errorf("landlock: %w", syscall.EOPNOTSUPP)
	}
	set := rights(version)
	config, err := landlock.NewConfig(set)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return config.RestrictPaths(
		landlock.PathAccess(set, dirs...),
		landlock.PathAccess(set&ofFiles, files...).IgnoreIfMissing(),
		landlock.PathAccess(set&ofFiles, devices...).IgnoreIfMissing(),
	)
}
