package ownfile

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListLetsAnotherUserWrite_OthersMayWrite checks that a right of another user or group counts which
// only the access control list of a directory has: the mode shows it as one of the directory's own group.
func TestListLetsAnotherUserWrite_OthersMayWrite(t *testing.T) {
	const none = 0xffffffff
	const owner, user, group, named, mask, other = 1, listOfUser, 4, listOfGroup, 16, 32
	type entry struct {
		kind, rights uint16
		who          uint32
	}
	for _, c := range []struct {
		about string
		more  []entry // besides what each list has
		want  bool
	}{
		{"no names", nil, false},
		{"another user may write", []entry{{user, 7, 70002}}, true},
		{"another user may read", []entry{{user, 5, 70002}}, false},
		{"root may write", []entry{{user, 7, 0}}, false},
		{"this user may write", []entry{{user, 7, uint32(os.Geteuid())}}, false},
		{"a group may write", []entry{{named, 7, 70002}}, true},
		{"the second name may write", []entry{{user, 5, 70001}, {user, 6, 70002}}, true},
	} {
		dir := t.TempDir()
		if err := os.Chown(dir, -1, os.Getegid()); err != nil {
			t.Fatal(err)
		}
		before, after := []entry{{owner, 7, none}}, []entry{{group, 7, none}, {mask, 7, none}, {other, 5, none}}
		for _, e := range c.more { // in the order of their kinds, as the kernel wants them
			if e.kind == user {
				before = append(before, e)
			} else {
				after = append(after[:1], append([]entry{e}, after[1:]...)...)
			}
		}
		list := []byte{2, 0, 0, 0}
		for _, e := range append(before, after...) {
			list = binary.LittleEndian.AppendUint16(list, e.kind)
			list = binary.LittleEndian.AppendUint16(list, e.rights)
			list = binary.LittleEndian.AppendUint32(list, e.who)
		}
		if err := unix.Setxattr(dir, listName, list, 0); errors.Is(err, unix.ENOTSUP) {
			t.Skip("the file system has no access control lists")
		} else if err != nil {
			t.Fatalf("%s: %v", c.about, err)
		}
		if got := listLetsWrite(dir); got != c.want {
			t.Errorf("%s: the list lets others write: %t, want %t", c.about, got, c.want)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o020 == 0 {
			t.Fatalf("%s: mode %v, %v, want that of a group that may write", c.about, info.Mode(), err)
		}
		if c.want && !OthersMayWrite(dir, info) {
			t.Errorf("%s: only its group counts", c.about)
		}
	}
}
