package leaf

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"holdline/daemon/filewatch"
)

// file is a file on which a record depends, as it was when the record was made.
type file struct {
	Path  string          `json:"path"`
	To    string          `json:"to,omitempty"` // the path without links; "" if there was no such file
	Stamp filewatch.Stamp `json:"stamp,omitzero"`
}

// look returns a file as it is.
func look(path string) file {
	f := file{Path: path}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		f.To = to
		f.Stamp, _ = filewatch.Stat(to)
	}
	return f
}

// holds reports whether the file is what it was.
func (f file) holds() bool { return look(f.Path) == f }

// maxManifest bounds a package.json that is read, in bytes.
const maxManifest = 1 << 20

// manifest is what a package.json says.
type manifest struct {
	path string
	name string
}

// manifestAbove returns the nearest package.json with a name in dir or above it, and the zero one without any.
func manifestAbove(dir string) manifest {
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "package.json")
		var text struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(readRegular(path, maxManifest), &text) == nil && text.Name != "" {
			return manifest{path, text.Name}
		}
		if dir == filepath.Dir(dir) {
			return manifest{}
		}
	}
}

// readRegular returns what a regular file has, at most so many bytes of it, and nil if it cannot be read. The file is a
// project's: a pipe in its place must not stop the start of a server.
func readRegular(path string, most int64) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil
	}
	return b
}

// settingsFile is the name of a file that may tell a launcher where packages come from, and where they are kept.
const settingsFile = ".npmrc"

// rivals returns the paths that decide whether a launcher that starts in dir runs the program of a package from
// where it ran it last: a project may bring its own, under any of the names, or settings of its own. launcher is the
// path of the launcher; programs that are installed for all are beside it.
func rivals(dir, launcher string, names []string, pkg string) (paths []string) {
	for ; ; dir = filepath.Dir(dir) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, "node_modules", ".bin", name))
		}
		paths = append(paths, filepath.Join(dir, "node_modules", pkg, "package.json"), filepath.Join(dir, settingsFile))
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, name := range names {
		paths = append(paths, filepath.Join(filepath.Dir(launcher), name))
	}
	return paths
}

// isFile reports whether a path leads to a regular file.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
