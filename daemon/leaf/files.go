package leaf

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"holdline/daemon/filewatch"
)

// file is a file on which a record depends, as it was when the record was made.
type file struct {
	Path  string          `json:"path"`
	To    string          `json:"to,omitempty"` // the path without links; "" if there was no such file
	Stamp filewatch.Stamp `json:"stamp,omitzero"`
}

// look returns a file as it is. Of a directory it counts that it is there: what is in it has paths of its own.
func look(path string) file {
	f := file{Path: path}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		f.To = to
		if f.Stamp, _ = filewatch.Stat(to); f.Stamp.Mode.IsDir() {
			f.Stamp.Size, f.Stamp.MTime = 0, 0
		}
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
	bins map[string]string // the programs of the package: their names, and their paths from its directory
}

// nameOf returns the name of a program of the package, by its path; "" if it is none.
func (m *manifest) nameOf(program string) string {
	for _, name := range slices.Sorted(maps.Keys(m.bins)) {
		if linkless(filepath.Join(filepath.Dir(m.path), m.bins[name])) == linkless(program) {
			return name
		}
	}
	return ""
}

// manifestAbove returns the nearest package.json with a name in dir or above it, and the zero one without any.
func manifestAbove(dir string) manifest {
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "package.json")
		var text struct {
			Name string          `json:"name"`
			Bin  json.RawMessage `json:"bin"`
		}
		if json.Unmarshal(readRegular(path, maxManifest), &text) == nil && text.Name != "" {
			m, one := manifest{path: path, name: text.Name}, ""
			if json.Unmarshal(text.Bin, &one) == nil {
				m.bins = map[string]string{filepath.Base(text.Name): one}
			} else if json.Unmarshal(text.Bin, &m.bins) != nil {
				m.bins = nil
			}
			return m
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

// Names of files that may tell launchers where packages come from, and where they are kept.
var settingsFiles = []string{".npmrc", "bunfig.toml", ".bunfig.toml", "pnpm-workspace.yaml"}

// installed are the names of files in node_modules that are others after each change of what is installed there.
var installed = []string{".package-lock.json", ".modules.yaml", ".yarn-integrity", ".yarn-state.yml"}

// rivals returns the paths that decide whether a launcher that starts in dir runs the program of a package from
// where it ran it last, and with which variables: a project may bring its own, under any of the names, or settings of its
// own, and programs may be installed for all. env is the environment of the program; npm says there which files it reads.
func rivals(dir, launcher string, names []string, pkg string, env map[string]string) (paths []string) {
	for at := dir; ; at = filepath.Dir(at) {
		modules := filepath.Join(at, "node_modules")
		paths = append(paths, modules, filepath.Join(modules, pkg, "package.json"), filepath.Join(at, "package.json"))
		for _, name := range names {
			paths = append(paths, filepath.Join(modules, ".bin", name))
		}
		for _, name := range installed {
			paths = append(paths, filepath.Join(modules, name))
		}
		for _, name := range settingsFiles {
			paths = append(paths, filepath.Join(at, name))
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	for _, prefix := range []string{filepath.Dir(filepath.Dir(launcher)), env["npm_config_prefix"]} {
		if !filepath.IsAbs(prefix) {
			continue
		}
		paths = append(paths, filepath.Join(prefix, "lib/node_modules", pkg, "package.json"))
		for _, name := range names {
			paths = append(paths, filepath.Join(prefix, "bin", name))
		}
	}
	for _, path := range []string{env["npm_config_userconfig"], env["npm_config_globalconfig"]} {
		if filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	if home := env["HOME"]; filepath.IsAbs(home) {
		for _, name := range append([]string{".config/pnpm/rc"}, settingsFiles...) {
			paths = append(paths, filepath.Join(home, name))
		}
	}
	return paths
}

// isFile reports whether a path leads to a regular file.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
