package ownfile

import (
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Where Linux and macOS keep the names of local users and groups. Tests set others.
var (
	passwdFile = "/etc/passwd"
	groupFile  = "/etc/group"
)

// Owner returns the user id of the owner of the file that info describes, or -1 if info does not
// say it.
func Owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// OthersMayWrite reports whether the permissions of the file or directory at path, which info describes,
// let any user write it but its owner and root. A sticky directory counts: others can add entries to
// it. The right of a group does not count if the group is root's, or is the private group of the
// user of this process, of which nobody else is a member. With an access control list the mode shows
// what it grants at most, to whomever, as the right of the group.
func OthersMayWrite(path string, info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	switch {
	case mode&0o002 != 0:
		return true
	case mode&0o020 == 0:
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Gid != 0 && !privateGroup(os.Geteuid(), int(st.Gid)) || listLetsWrite(path)
}

// privateGroup reports whether gid is the private group of the user uid: it has the user's name or
// number, and no other user is a member of it. A group that the local files do not have is not
// known to be private, unless the user is unknown there, too, and has the same number.
func privateGroup(uid, gid int) bool {
	var name string
	known := false
	for _, user := range records(passwdFile) { // name:password:uid:gid:…
		if len(user) < 4 {
			continue
		}
		switch own := user[2] == strconv.Itoa(uid); {
		case own && !known:
			name, known = user[0], true
		case !own && user[3] == strconv.Itoa(gid):
			return false // the group is the first one of another user
		}
	}
	for _, group := range records(groupFile) { // name:password:gid:members
		if len(group) < 4 || group[2] != strconv.Itoa(gid) {
			continue
		}
		if group[0] != name && gid != uid {
			return false
		}
		return !slices.ContainsFunc(strings.Split(group[3], ","), func(member string) bool {
			return member != "" && member != name
		})
	}
	return !known && gid == uid
}

// records returns the fields of each line of a file such as /etc/passwd. It returns nil if the
// file cannot be read.
func records(path string) [][]string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var all [][]string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, strings.Split(line, ":"))
		}
	}
	return all
}
