package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name string // within the archive's directory
	mode int64
	data []byte
}

// pack makes a gzipped tar archive of files under one directory. Its bytes are
// a function of the arguments, whatever the order of the files.
func pack(dir string, files []entry, at time.Time) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // no name and no time in its header
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zip)
	made := map[string]bool{}
	for _, f := range files {
		name := path.Join(dir, filepath.ToSlash(f.name))
		if err := directories(w, made, path.Dir(name), at); err != nil {
			return nil, err
		}
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatUSTAR,
		})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// directories writes those of dir and its parents that were not yet.
func directories(w *tar.Writer, made map[string]bool, dir string, at time.Time) error {
	if dir == "." || made[dir] {
		return nil
	}
	if err := directories(w, made, path.Dir(dir), at); err != nil {
		return err
	}
	made[dir] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR})
}
