package question

import (
	"bytes"
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
	"holdline/protocol/bulk"
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
	b = b[:len(b)-1] // the brace
	return statedir.WriteFile(filepath.Join(dir, name), fmt.Appendf(b, "%s%d}", keySum, checksum(name, b)))
}

// keySum begins the last member of a file: the checksum of the file's name and of what stands before it.
const keySum = `,"sum":`

// checksum returns the checksum of the file with that name, whose content begins with b.
func checksum(name string, b []byte) uint32 {
	return bulk.AddSum(bulk.Sum([]byte(name)), b)
}

// errDamaged says that a file is not as it was written.
var errDamaged = errors.New("the file is damaged")

// readFile reads one file of a worker's directory.
func readFile(worker, name string) (k Kept, err error) {
	b, err := ownfile.Read(filepath.Join(worker, process.DirAsks, name), ownfile.MaxDocument)
	if err != nil {
		return k, err
	}
	var d document
	i := bytes.LastIndex(b, []byte(keySum))
	switch {
	case i < 0, string(b[i:]) != fmt.Sprintf("%s%d}", keySum, checksum(name, b[:i])), json.Unmarshal(b, &d) != nil:
		return k, errDamaged
	case d.Worker != filepath.Base(worker):
		return k, fmt.Errorf("%w: it is %q", errWorker, d.Worker)
	}
	k.Shown = d.Shown
	k.Msg, err = jsonrpc.Parse(d.Request)
	return k, err
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
// directory, in the order of the server's output. The requests whose files are damaged are lost, by their
// ids: the worker has probably forgotten their lines. It returns an error for a file that cannot be read now
// and may be read later, see [ownfile.Passes], unless last is set.
func Read(worker string, last bool, log *slog.Logger) (kept []Kept, lost map[string]error, err error) {
	dir := filepath.Join(worker, process.DirAsks)
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if !last && ownfile.Passes(err) {
		return nil, nil, err
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("requests of a server are forgotten", "dir", dir, "err", err)
	}
	lost = map[string]error{}
	for _, e := range entries {
		var seq, nth int64
		if _, err := fmt.Sscanf(e.Name(), "%d.%d", &seq, &nth); err != nil {
			continue
		}
		k, err := readFile(worker, e.Name())
		if !last && ownfile.Passes(err) {
			return nil, nil, err
		}
		if err != nil {
			log.Warn("a request of a server is forgotten", "dir", dir, "file", e.Name(), "err", err)
			lost[ID(filepath.Base(worker), seq, nth)] = fmt.Errorf("%s: %w", filepath.Join(dir, e.Name()), err)
			continue
		}
		k.Seq, k.Nth = seq, nth
		kept = append(kept, k)
	}
	slices.SortFunc(kept, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Nth, b.Nth))
	})
	return kept, lost, nil
}
