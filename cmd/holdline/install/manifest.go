package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// manifestVersion is that of the manifest's form.
const manifestVersion = 1

// Manifest is what was installed.
type Manifest struct {
	Version int     `json:"version"`
	Manager Manager `json:"manager,omitempty"`
	Files   []File  `json:"files"` // in the order in which they were made
	// Dirs were not there before, parents first. They go if nothing is in them.
	Dirs []string `json:"dirs,omitempty"`
}

// File is one file that was installed.
type File struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// SHA256 are the hashes of what was put there: the last one, and while a
	// replacement is under way the one before it.
	SHA256 []string `json:"sha256,omitempty"`
	Link   []string `json:"link,omitempty"` // in place of hashes: where the link leads
}

// Kind of an installed file.
type Kind string

// The kinds.
const (
	Binary Kind = "binary"
	Unit   Kind = "unit"
	Path   Kind = "path" // the captured PATH
)

// ManifestFile is where the manifest of a state directory lies.
func ManifestFile(stateDir string) string { return filepath.Join(stateDir, "install.json") }

// ReadManifest reads the manifest of a state directory. If nothing was
// installed it is empty.
func ReadManifest(stateDir string) (Manifest, error) {
	path := ManifestFile(stateDir)
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if errors.Is(err, os.ErrNotExist) {
		return Manifest{Version: manifestVersion}, nil
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("reading what is installed: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("%s is not what install has written: %w; move it away, then install anew with --force", path, err)
	}
	if m.Version != manifestVersion {
		return Manifest{}, fmt.Errorf("%s is of version %d, and this holdline knows %d: use the holdline that installed", path, m.Version, manifestVersion)
	}
	return m, nil
}

// write puts the manifest into a state directory, or removes it if it is empty.
func (m *Manifest) write(stateDir string) error {
	path := ManifestFile(stateDir)
	if m.Manager == Nobody && len(m.Files) == 0 && len(m.Dirs) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forgetting what was installed: %w", err)
		}
		return nil
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("writing down what is installed: %w", err)
	}
	if err := statedir.WriteFile(path, append(b, '\n')); err != nil {
		return fmt.Errorf("writing down what is installed: %w", err)
	}
	return nil
}

// clone is a copy that shares nothing with m.
func (m *Manifest) clone() Manifest {
	c := *m
	c.Dirs = slices.Clone(m.Dirs)
	c.Files = slices.Clone(m.Files)
	for i := range c.Files {
		c.Files[i].SHA256, c.Files[i].Link = slices.Clone(c.Files[i].SHA256), slices.Clone(c.Files[i].Link)
	}
	return c
}

// file is the record of path, or nil.
func (m *Manifest) file(path string) *File {
	for i := range m.Files {
		if m.Files[i].Path == path {
			return &m.Files[i]
		}
	}
	return nil
}

// settle forgets what stood at the paths before: of each record only what was
// put there last counts.
func (m *Manifest) settle() {
	for i := range m.Files {
		f := &m.Files[i]
		if info, err := os.Lstat(f.Path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			f.SHA256, f.Link = nil, f.Link[max(0, len(f.Link)-1):]
		} else {
			f.SHA256, f.Link = f.SHA256[max(0, len(f.SHA256)-1):], nil
		}
	}
}

// found is what is at a path.
type found struct {
	there bool
	link  string // where it leads; "" for a file
	data  []byte // of a file
	mode  os.FileMode
}

// look sees what is at path. What is neither a file nor a link is an error.
func look(path string) (found, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return found{}, nil
	}
	if err != nil {
		return found{}, err
	}
	f := found{there: true, mode: info.Mode().Perm()}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		f.link, err = os.Readlink(path)
	case info.Mode().IsRegular():
		f.data, err = os.ReadFile(path)
	default:
		err = fmt.Errorf("%s is in the way: it is no file", path)
	}
	return f, err
}

// isOf tells whether what was found is what f says was put there.
func (f *File) isOf(now found) bool {
	if f == nil || !now.there {
		return false
	}
	if now.link != "" {
		return slices.Contains(f.Link, now.link)
	}
	return slices.Contains(f.SHA256, hash(now.data))
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
