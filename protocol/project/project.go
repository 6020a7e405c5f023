// Package project finds the project of a directory. The proxy links this package, so it
// imports little.
package project

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"holdline/protocol/ownfile"
)

// Root returns the nearest directory with an entry .git that is dir or above it, or else dir.
//
// The search goes no further up than this user's own directories, since servers run with the
// project as their directory and many load code from there. It ends below a directory that
// others can write, such as /tmp, where anybody can make a .git. Below a directory of another
// user it counts only what git itself would trust: directories that safe.directory names. The
// directory dir always counts, since the user has chosen to work there.
func Root(dir string) string {
	if tree := above(dir); tree != "" {
		return tree
	}
	return dir
}

// RootOf returns the [Root] of cwd, or "" if cwd is no absolute path of a directory that exists.
// It follows no links: a proxy and a command give their directory without any, and one that has
// been put in its place since must not make another directory the project.
func RootOf(cwd string) string {
	if info, err := os.Stat(cwd); err != nil || !info.IsDir() || !filepath.IsAbs(cwd) {
		return ""
	}
	return Root(filepath.Clean(cwd))
}

// WorkTree returns the git work tree that the file at path lies in once links are
// followed, or "".
func WorkTree(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	return above(filepath.Dir(path))
}

// above returns the nearest directory with an entry .git that is start or above it and may be a
// project, or "". See [Root].
func above(start string) string {
	own := true // all directories up to dir are this user's
	for dir := start; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		open := err != nil || ownfile.OthersMayWrite(dir, info)
		own = own && err == nil && ownfile.Owner(info) == os.Geteuid()
		_, err = os.Lstat(filepath.Join(dir, ".git"))
		if err == nil && (dir == start || !open && (own || trusted(dir))) {
			return dir
		}
		if open || dir == filepath.Dir(dir) {
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
