package question

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"holdline/daemon/statedir"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// A Kept is a request of a server that an earlier daemon has written to a file.
type Kept struct {
	Seq, Nth int64 // its place in the output of the process
	Msg      jsonrpc.Message
}

// Write writes a request of a server to its file in a worker's directory. After that the
// worker need not keep its line.
func Write(worker, name string, line []byte) error {
	dir := filepath.Join(worker, process.DirAsks)
	if err := statedir.MakeDir(dir); err != nil {
		return err
	}
	return statedir.WriteFile(filepath.Join(dir, name), line)
}

// Remove removes the files of requests from a worker's directory, and logs failures.
func Remove(worker string, names []string, log *slog.Logger) {
	for _, name := range names {
		err := os.Remove(filepath.Join(worker, process.DirAsks, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the file of a request that has its answer cannot be removed", "err", err)
		}
	}
}

// Read reads the requests that an earlier daemon has written to files of a worker's
// directory, in the order of the server's output. It skips files that it cannot read.
func Read(worker string, log *slog.Logger) []Kept {
	dir := filepath.Join(worker, process.DirAsks)
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("requests of a server are forgotten", "dir", dir, "err", err)
	}
	var kept []Kept
	for _, e := range entries {
		var k Kept
		if _, err := fmt.Sscanf(e.Name(), "%d.%d", &k.Seq, &k.Nth); err != nil {
			continue
		}
		b, err := ownfile.Read(filepath.Join(dir, e.Name()), ownfile.MaxDocument)
		if err == nil {
			k.Msg, err = jsonrpc.Parse(b)
		}
		if err != nil {
			log.Warn("a request of a server is forgotten", "dir", dir, "file", e.Name(), "err", err)
			continue
		}
		kept = append(kept, k)
	}
	slices.SortFunc(kept, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Nth, b.Nth))
	})
	return kept
}
