package ownfile

import (
	"os"
	"path/filepath"
	"slices"
)

// MissingDirs returns those of dir and its parents that do not exist, outermost first.
func MissingDirs(dir string) []string {
	var missing []string
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	return missing
}

// RemoveEmptyDirs removes those of the directories that are empty, the last one first,
// and returns them.
func RemoveEmptyDirs(dirs []string) []string {
	var removed []string
	for _, dir := range slices.Backward(dirs) {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && os.Remove(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed
}
