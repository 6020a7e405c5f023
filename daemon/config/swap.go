package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"holdline/protocol/ownfile"
)

// ErrChanged is returned by [Swap] for a file that is not what it was.
var ErrChanged = errors.New("the file was changed meanwhile")

// Swap replaces the bytes of the configuration file at path, which must be
// before, by after: at once or not at all, and only by a valid file. A file
// that is not there is an empty one; it is made with mode 0600.
func Swap(ctx context.Context, path string, before, after []byte) error {
	return locked(ctx, path, func(path string) error {
		data, mode, err := read(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, before) {
			return fmt.Errorf("%s: %w", path, ErrChanged)
		}
		if _, err := Parse(path, after); err != nil {
			return err
		}
		return replaceFile(path, after, mode)
	})
}

// Withdraw removes the configuration file at path if its bytes are still those
// that it was made with; else [ErrChanged].
func Withdraw(ctx context.Context, path string, made []byte) error {
	return locked(ctx, path, func(path string) error {
		data, _, err := read(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, made) {
			return fmt.Errorf("%s: %w", path, ErrChanged)
		}
		return os.Remove(path)
	})
}

// locked calls f with where path leads once no other edit is under way there.
func locked(ctx context.Context, path string, f func(path string) error) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("editing the configuration: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, editWait, errors.New("another command is editing it for too long"))
	defer cancel()
	unlock, err := ownfile.LockDir(ctx, dir)
	if err != nil {
		return fmt.Errorf("editing the configuration: %w", err)
	}
	defer unlock()
	return f(path)
}
