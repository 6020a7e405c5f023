package ownfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// owned is a file of which only mode and owners matter.
type owned struct {
	mode     fs.FileMode
	uid, gid int
}

func (o owned) Name() string       { return "" }
func (o owned) Size() int64        { return 0 }
func (o owned) Mode() fs.FileMode  { return o.mode }
func (o owned) ModTime() time.Time { return time.Time{} }
func (o owned) IsDir() bool        { return true }
func (o owned) Sys() any           { return &syscall.Stat_t{Uid: uint32(o.uid), Gid: uint32(o.gid)} }

func TestOthersMayWrite(t *testing.T) {
	me := os.Geteuid()
	user, group := filepath.Join(t.TempDir(), "passwd"), filepath.Join(t.TempDir(), "group")
	defer func(p, g string) { passwdFile, groupFile = p, g }(passwdFile, groupFile)
	passwdFile, groupFile = user, group
	const ada, bob, staff, shared, first = 70001, 70002, 70003, 70004, 70005
	number := func(text string) string { return strings.ReplaceAll(text, "ME", strconv.Itoa(me)) }
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(number(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(user, "# users\nada:x:ME:70001::/home/ada:/bin/sh\nbob:x:79999:70005::/home/bob:/bin/sh\n")
	write(group, "ada:x:70001:\nbob:x:70002:bob\nstaff:x:70003:ada\nsh:x:70004:ada,bob\nada2:x:70005:\n")
	for _, c := range []struct {
		about string
		mode  fs.FileMode
		gid   int
		want  bool
	}{
		{"the owner alone", 0o755, ada, false},
		{"everybody", 0o757, ada, true},
		{"everybody, sticky", 0o777 | fs.ModeSticky, 0, true},
		{"root's group", 0o775, 0, false},
		{"the user's private group", 0o775, ada, false},
		{"the private group of another", 0o775, bob, true},
		{"a group with another name", 0o775, staff, true},
		{"a group of two", 0o775, shared, true},
		{"the first group of another user", 0o775, first, true},
		{"a group that nobody knows", 0o775, 79998, true},
	} {
		if got := OthersMayWrite("", owned{c.mode, me, c.gid}); got != c.want {
			t.Errorf("%s: others may write: %t, want %t", c.about, got, c.want)
		}
	}
	write(group, "ada:x:70001:bob\n")
	if !OthersMayWrite("", owned{0o775, me, ada}) {
		t.Error("a group with the user's name that has another member counts as private")
	}
	if got := Owner(owned{0o755, 42, 0}); got != 42 {
		t.Errorf("owner %d, want 42", got)
	}
}
