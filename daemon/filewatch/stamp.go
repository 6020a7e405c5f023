// Package filewatch recognises when a file has changed, and when the change is
// complete. It is for the daemon's own program and for its configuration.
package filewatch

import (
	"os"
	"syscall"
	"time"
)

// Stamp is a state of a file. Two stamps are equal if the file has not changed in
// between. The zero stamp stands for a file that is not there.
type Stamp struct {
	Inode uint64      `json:"inode"`
	Size  int64       `json:"size"`
	MTime int64       `json:"mtime_ns"` // since 1970
	Mode  os.FileMode `json:"mode"`
	UID   int         `json:"uid"`
}

// Stat returns the stamp of the file that path leads to, links followed. With an error
// the stamp is the zero one.
func Stat(path string) (Stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}, err
	}
	s := Stamp{Size: info.Size(), MTime: info.ModTime().UnixNano(), Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode, s.UID = st.Ino, int(st.Uid)
	}
	return s, nil
}

// Same reports whether both are the same content of the same file. Mode and owner
// do not count.
func (s Stamp) Same(other Stamp) bool {
	return s.Inode == other.Inode && s.Size == other.Size && s.MTime == other.MTime
}

// Settler decides when a changed file is complete. Editors and installers write a
// file in several steps, or put another in its place; only a file that stays
// unchanged for a while is complete.
type Settler struct {
	After time.Duration // for which the file must stay unchanged

	next  Stamp     // the state that is waited for
	since time.Time // when next was seen first; zero if the file has not changed
}

// Reset forgets a change that was not complete yet: the file is as it was before.
func (s *Settler) Reset() { s.since = time.Time{} }

// Settled reports whether a file that is in state now has been so for s.After. If
// it has, s is reset.
func (s *Settler) Settled(now Stamp, at time.Time) bool {
	switch {
	case s.since.IsZero() || now != s.next:
		s.next, s.since = now, at
	case at.Sub(s.since) >= s.After:
		s.Reset()
		return true
	}
	return false
}
