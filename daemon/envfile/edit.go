package envfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// editWait is how long an edit waits for another one.
const editWait = 10 * time.Second

// Set gives a variable a value in the file at path, in place of any that it had. The rest of the file stays. A file
// that does not exist is created for this user alone, with its directory. The file must be one that [Read] can read.
// Concurrent edits wait for each other, but for no server that locks the directory.
func Set(ctx context.Context, path, name, value string) error {
	if strings.ContainsAny(value, "\r\n\x00") {
		return fmt.Errorf("the value of %s has line breaks, which a file of variables cannot keep", name)
	}
	if n := len(value); value != strings.TrimSpace(value) || n > 0 && strings.ContainsAny(value[:1], `"'`) {
		value = `"` + value + `"` // a reader takes off spaces, and one pair of quotes
	}
	return change(ctx, path, func(lines [][]byte) [][]byte {
		return append(without(lines, name), []byte(name+"="+value+"\n"))
	})
}

// Unset removes a variable from the file at path, and reports whether it was there.
func Unset(ctx context.Context, path, name string) (had bool, err error) {
	err = change(ctx, path, func(lines [][]byte) [][]byte {
		rest := without(lines, name)
		had = len(rest) < len(lines)
		return rest
	})
	return had && err == nil, err
}

// without returns the lines that do not set a variable.
func without(lines [][]byte, name string) (rest [][]byte) {
	for _, line := range lines {
		text := strings.TrimPrefix(strings.TrimSpace(string(line)), "export ")
		if before, _, ok := strings.Cut(text, "="); !ok || before != name {
			rest = append(rest, line)
		}
	}
	return rest
}

// change replaces the lines of the file at path, through links.
func change(ctx context.Context, path string, edit func(lines [][]byte) [][]byte) error {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, editWait, errors.New("another command is editing it for too long"))
	defer cancel()
	unlock, err := statedir.LockDir(ctx, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unlock()
	var data []byte
	switch _, err := Read(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if data, _, err = config.ReadSafe(path); err != nil {
			return err
		}
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	var lines [][]byte
	for line := range bytes.Lines(data) {
		lines = append(lines, line)
	}
	after := bytes.Join(edit(lines), nil)
	if len(after) > config.MaxFile {
		return fmt.Errorf("%s would have more than %d bytes", path, config.MaxFile)
	}
	if len(after) == 0 { // nothing is left to keep
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := ownfile.Replace(path, "."+filepath.Base(path)+".*", after, 0o600, true, nil); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
