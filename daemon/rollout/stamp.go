package rollout

import (
	"fmt"
	"os"
	"syscall"
)

// Stamp tells one state of a file from another.
type Stamp struct {
	Inode uint64      `json:"inode"`
	Size  int64       `json:"size"`
	MTime int64       `json:"mtime_ns"` // since 1970
	Mode  os.FileMode `json:"mode"`
	UID   int         `json:"uid"`
}

// Stat is the stamp of the file that path leads to, links followed.
func Stat(path string) (Stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}, fmt.Errorf("looking at the program: %w", err)
	}
	s := Stamp{Size: info.Size(), MTime: info.ModTime().UnixNano(), Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode, s.UID = st.Ino, int(st.Uid)
	}
	return s, nil
}

// Same tells whether both are the same content of the same file: the mode and
// the owner do not count.
func (s Stamp) Same(other Stamp) bool {
	return s.Inode == other.Inode && s.Size == other.Size && s.MTime == other.MTime
}
