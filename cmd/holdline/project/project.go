// Package project finds the project of a directory. The proxy links this package, so it
// imports little.
package project

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

// Root returns the nearest directory with a .git that is dir or above it, or else dir.
func Root(dir string) string {
	if tree := above(dir); tree != "" {
		return tree
	}
	return dir
}

// WorkTree returns the git work tree that the file at path lies in once links are
// followed, or "".
func WorkTree(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return above(filepath.Dir(path))
}

// above returns the nearest directory with a .git that is dir or above it, or "".
func above(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// Key returns a key for the project of a directory: the first 16 hex digits of the
// SHA-256 of the real path of its [Root].
func Key(dir string) string {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		root = dir
	}
	sum := sha256.Sum256([]byte(Root(root)))
	return hex.EncodeToString(sum[:8])
}
