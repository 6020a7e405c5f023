package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"path"
	"time"
)

// pack returns a gzipped tar archive of files, under the directory dir. The result
// depends on the arguments alone. Files that their owner may execute get mode 0755, and
// all others 0644.
func pack(files fs.FS, dir string, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // no name and no time in its header
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zip)
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		h := tar.Header{Name: path.Join(dir, name), Mode: 0o755, ModTime: at, Format: tar.FormatUSTAR}
		if d.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
			return w.WriteHeader(&h)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Size = tar.TypeReg, int64(len(data))
		if info.Mode()&0o100 == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
