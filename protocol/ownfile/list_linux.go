package ownfile

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// The access control list of a file, as the kernel gives it: a version, and for each entry its kind, its
// rights and its user or group.
const (
	listName    = "system.posix_acl_access"
	listHead    = 4
	listEntry   = 8
	listOfUser  = 2 // entries that name a user
	listOfGroup = 8 // and a group
	listWrite   = 2
)

// listLetsWrite reports whether the access control list of the file at path names a user or a group,
// other than root and the user of this process, that may write it. The mode of the file bounds what a list grants.
func listLetsWrite(path string) bool {
	size, err := unix.Getxattr(path, listName, nil)
	if err != nil || size <= listHead { // there is none, or the file system has none
		return false
	}
	list := make([]byte, size)
	if size, err = unix.Getxattr(path, listName, list); err != nil {
		return true // it has changed meanwhile
	}
	for list = list[min(listHead, size):size]; len(list) >= listEntry; list = list[listEntry:] {
		kind, rights := binary.LittleEndian.Uint16(list), binary.LittleEndian.Uint16(list[2:])
		who := int(binary.LittleEndian.Uint32(list[4:]))
		if (kind == listOfUser && who != os.Geteuid() || kind == listOfGroup) && who != 0 && rights&listWrite != 0 {
			return true
		}
	}
	return false
}
