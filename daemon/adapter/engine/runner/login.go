package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/filewatch"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// maxLogin bounds the file of a login, in bytes.
const maxLogin = 256 << 10

// login keeps the file of a program's login and its copy the same while the program runs. A nil login
// does nothing.
type login struct {
	engine.Login

	own, copied filewatch.Stamp // of the files when they were last the same
	failed      bool            // an error was reported
}

// newLogin makes the copy. It returns nil if there is nothing to copy: the program is logged in by
// other means, or the file is not there.
func newLogin(of *engine.Login) (*login, error) {
	if of == nil {
		return nil, nil //nolint:nilnil // a nil login does nothing
	}
	own, err := filewatch.Stat(of.Own)
	if own == (filewatch.Stamp{}) || err != nil {
		return nil, nil //nolint:nilerr,nilnil // the run shows whether the program is logged in
	}
	l := &login{Login: *of}
	if err := os.MkdirAll(filepath.Dir(l.Copy), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the program's login: %w", err)
	}
	return l, l.give(own)
}

// give writes the copy anew. own is the state of the file before it is read.
func (l *login) give(own filewatch.Stamp) error {
	b, err := readLogin(l.Own)
	if err == nil {
		err = statedir.WriteFile(l.Copy, l.Give(b))
	}
	if err != nil {
		return fmt.Errorf("copying the program's login: %w", err)
	}
	l.own = own
	l.copied, err = filewatch.Stat(l.Copy)
	return err
}

// sync takes over a change of one of the two files to the other one. If both have changed, that of
// the user counts. It returns the first error alone: the run goes on with the login that it has.
func (l *login) sync() error {
	if l == nil {
		return nil
	}
	err := l.follow()
	if err == nil || l.failed {
		return nil
	}
	l.failed = true
	return err
}

func (l *login) follow() error {
	own, err := filewatch.Stat(l.Own)
	if err != nil || own == (filewatch.Stamp{}) {
		return err // the user has logged out
	}
	if own != l.own {
		return l.give(own)
	}
	copied, err := filewatch.Stat(l.Copy)
	if err != nil || copied == l.copied || copied == (filewatch.Stamp{}) {
		return err
	}
	changed, err := ownfile.Read(l.Copy, maxLogin) // the program may have put anything in its place
	if err != nil {
		return err
	}
	l.copied = copied
	before, err := readLogin(l.Own)
	if err != nil {
		return err
	}
	after := l.Take(before, changed)
	if after == nil || bytes.Equal(after, before) {
		return nil
	}
	if err := statedir.WriteFile(l.Own, after); err != nil {
		return fmt.Errorf("the program has renewed its login, and the new one cannot be kept: %w", err)
	}
	l.own, err = filewatch.Stat(l.Own)
	return err
}

// readLogin reads the user's file.
func readLogin(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ownfile.ReadBounded(f, maxLogin)
}
