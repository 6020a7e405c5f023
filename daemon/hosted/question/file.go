package question

import (
	"cmp"
	"encoding/json"
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
	Shown
}

// Shown says whose client was told of a request: that of the call of a write, by the answer to
// the client's line N. It is zero if none was.
type Shown struct {
	Call int64 `json:"call,omitempty"`
	N    int64 `json:"n,omitempty"`
}

// document is the content of a file.
type document struct {
	Worker string `json:"worker"` // id of the worker in whose directory the file is
	Shown
	Request json.RawMessage `json:"request"`
}

// Write writes a request of a server to its file in a worker's directory. After that the
// worker need not keep its line, and the next daemon knows whose client was told of it.
func Write(worker, name string, line []byte, shown Shown) error {
	dir := filepath.Join(worker, process.DirAsks)
	if err := statedir.MakeDir(dir); err != nil {
		return err
	}
	b, err := jsonrpc.Marshal(document{Worker: filepath.Base(worker), Shown: shown, Request: line})
	if err != nil {
		return fmt.Errorf("encoding a request of a server: %w", err)
	}
	return statedir.WriteFile(filepath.Join(dir, name), b)
}

// errWorker says that a file lies in the directory of another worker than that which it names.
var errWorker = errors.New("the file is of another worker")

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
// directory, in the order of the server's output. It skips files that are damaged. It returns an error for
// one that cannot be read now and may be read later, see [ownfile.Passes], unless last is set.
func Read(worker string, last bool, log *slog.Logger) ([]Kept, error) {
	dir := filepath.Join(worker, process.DirAsks)
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if !last && ownfile.Passes(err) {
		return nil, err
	}
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
		if !last && ownfile.Passes(err) {
			return nil, err
		}
		var d document
		if err == nil {
			err = json.Unmarshal(b, &d)
		}
		if err == nil && d.Worker != filepath.Base(worker) {
			err = fmt.Errorf("%w: it is %q", errWorker, d.Worker)
		}
		if err == nil {
			k.Shown = d.Shown
			k.Msg, err = jsonrpc.Parse(d.Request)
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
	return kept, nil
}
