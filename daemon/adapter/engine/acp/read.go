package acp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Bounds of what an agent reads through us, in bytes.
const (
	maxRead    = 1 << 20  // of a file
	maxReadAll = 64 << 20 // in a run
)

// readFile answers fs/read_text_file: a regular file below one of the run's directories, or some
// of its lines. It follows no link out of them. It keeps no agent from reading elsewhere by
// itself, and nothing claims so: this process is not confined, and must not read for the agent
// what the user has not named.
func (r *Run) readFile(params json.RawMessage) (string, error) {
	var p struct {
		Path  string `json:"path"`
		Line  int    `json:"line"` // of the first line, from 1
		Limit *int   `json:"limit"`
	}
	decode(params, &p)
	var data []byte
	err := fmt.Errorf("%q is not below the directories of this session", p.Path)
	for _, dir := range append([]string{r.req.Cwd}, r.req.AddDirs...) {
		rel, outside := filepath.Rel(dir, p.Path)
		if outside != nil || !filepath.IsLocal(rel) || !filepath.IsAbs(p.Path) {
			continue
		}
		if data, err = readBelow(dir, rel); err == nil {
			break
		}
	}
	if err != nil {
		return "", err
	}
	if r.bytesRead += len(data); r.bytesRead > maxReadAll {
		return "", errors.New("too much was read")
	}
	lines := strings.SplitAfter(strings.ToValidUTF8(string(bytes.ReplaceAll(data, []byte{0}, nil)), "\uFFFD"), "\n")
	lines = lines[min(max(p.Line-1, 0), len(lines)):]
	if p.Limit != nil {
		lines = lines[:min(max(*p.Limit, 0), len(lines))]
	}
	return strings.Join(lines, ""), nil
}

// readBelow reads a regular file below dir. It opens nothing else, not even for a moment: opening
// a device or a fifo does something.
func readBelow(dir, rel string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	irregular := errors.New("not a regular file")
	if at, err := root.Stat(rel); err != nil || !at.Mode().IsRegular() {
		return nil, errors.Join(err, irregular)
	}
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) // it may be another one now
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !at.Mode().IsRegular():
		return nil, irregular
	case at.Size() > maxRead:
		return nil, fmt.Errorf("it has more than %d bytes", maxRead)
	}
	return io.ReadAll(io.LimitReader(f, maxRead))
}
