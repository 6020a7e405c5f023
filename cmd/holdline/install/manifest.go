package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// manifestVersion is the version of the manifest's format.
const manifestVersion = 1

// Manifest says what was installed. Without a purge, uninstall removes only these
// files, and the links by which systemd has enabled the units.
type Manifest struct {
	Version int     `json:"version"`
	Manager Manager `json:"manager,omitempty"`
	Files   []File  `json:"files"` // in the order in which they were made
	// Dirs did not exist before, parents first. They are removed once they are empty.
	Dirs []string `json:"dirs,omitempty"`
}

// File is one file that was installed.
type File struct {
	Path string `json:"path"`
	Kind Kind   `json:"kind"`
	// Content identifies what was put there, as [content.id] does. While the file is
	// being replaced, the id of the old content stands before that of the new one; while it
	// is being removed, before [removed].
	Content []string `json:"content"`
}

// removed is the id of no content.
const removed = ""

// Kind is the kind of an installed file.
type Kind string

// The kinds.
const (
	Binary Kind = "binary"
	Unit   Kind = "unit"
	Path   Kind = "path" // the captured PATH
	Page   Kind = "page" // a [Document]
)

// manifestFile returns where the manifest of a state directory is.
func manifestFile(stateDir string) string { return filepath.Join(stateDir, "install.json") }

// ReadManifest reads the manifest of a state directory. It is empty if nothing was
// installed. A manifest that cannot be read, or has another version, is an error:
// install and uninstall must not guess which files are theirs.
func ReadManifest(stateDir string) (Manifest, error) {
	path := manifestFile(stateDir)
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if errors.Is(err, os.ErrNotExist) {
		return Manifest{Version: manifestVersion}, nil
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("reading what is installed: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf(
			"%s is not what install has written: %w; move it away, then install anew with --force", path, err)
	}
	if m.Version != manifestVersion {
		return Manifest{}, fmt.Errorf(
			"%s is of version %d, and this holdline knows %d: use the holdline that installed",
			path, m.Version, manifestVersion)
	}
	return m, nil
}

// store writes the manifest into a state directory, which must exist. A manifest that
// is empty is removed there.
func (m *Manifest) store(stateDir string) error {
	path := manifestFile(stateDir)
	if m.Manager == Nobody && len(m.Files) == 0 && len(m.Dirs) == 0 {
		if err := removeFile(path); err != nil {
			return fmt.Errorf("forgetting what was installed: %w", err)
		}
		return nil
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = statedir.WriteFile(path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing down what is installed: %w", err)
	}
	return nil
}

// clone returns a copy that shares nothing with m.
func (m *Manifest) clone() Manifest {
	c := *m
	c.Dirs, c.Files = slices.Clone(m.Dirs), slices.Clone(m.Files)
	for i := range c.Files {
		c.Files[i].Content = slices.Clone(c.Files[i].Content)
	}
	return c
}

// file returns the record of path, or nil.
func (m *Manifest) file(path string) *File {
	for i := range m.Files {
		if m.Files[i].Path == path {
			return &m.Files[i]
		}
	}
	return nil
}

// forgetReplaced removes the ids of contents that were replaced, and files that were removed.
func (m *Manifest) forgetReplaced() {
	for i := range m.Files {
		f := &m.Files[i]
		f.Content = f.Content[max(0, len(f.Content)-1):]
	}
	m.Files = slices.DeleteFunc(m.Files, func(f File) bool { return slices.Contains(f.Content, removed) })
}

// isOurs reports whether a path has what f says was put there; f may be nil.
func (f *File) isOurs(now content) bool {
	return f != nil && now.exists && slices.Contains(f.Content, now.id())
}
