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

// An index names the files of requests in a worker's directory, so that a missing one is noticed. Where there is
// none, the files that are there count.
type index struct {
	Worker string   `json:"worker"`
	Names  []string `json:"names"`
}

// readIndex returns the names in the index of a worker's directory, and reports whether there is an index
// that can be believed. It returns an error for one that may be read later: see [ownfile.Passes].
func readIndex(worker string) (names []string, ok bool, err error) {
	b, err := ownfile.Read(filepath.Join(worker, process.FileAsks), ownfile.MaxDocument)
	if ownfile.Passes(err) {
		return nil, false, err
	}
	var x index
	ok = err == nil && bulk.IsSealed(process.FileAsks, b) && json.Unmarshal(b, &x) == nil &&
		x.Worker == filepath.Base(worker)
	return x.Names, ok, nil
}

// writeIndex replaces the index of a worker's directory; without names it removes it.
func writeIndex(worker string, names []string) error {
	path := filepath.Join(worker, process.FileAsks)
	if len(names) == 0 {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.Marshal(index{filepath.Base(worker), names})
	if err != nil {
		return fmt.Errorf("encoding the names of requests: %w", err)
	}
	return statedir.WriteFile(path, bulk.Seal(process.FileAsks, b))
}

// listed returns the names of the files of requests in a worker's directory, by its index if that can be
// believed, which indexed reports.
func listed(worker string) (names []string, indexed bool) {
	names, ok, err := readIndex(worker)
	if ok && err == nil {
		return names, true
	}
	names = nil
	entries, _ := os.ReadDir(filepath.Join(worker, process.DirAsks)) // none, if it cannot be read
	for _, e := range entries {
		if _, _, ok := place(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	return names, false
}

// place returns the place in the output of the request whose file has that name; false if no request has.
func place(name string) (seq, nth int64, ok bool) {
	_, err := fmt.Sscanf(name, "%d.%d", &seq, &nth)
	return seq, nth, err == nil
}

// Write writes a request of a server to its file in a worker's directory. After that the
// worker need not keep its line, and the next daemon knows whose client was told of it. It must not be called
// while another Write or a Remove for that directory runs.
func Write(worker, name string, line []byte, shown Shown) error {
	dir := filepath.Join(worker, process.DirAsks)
	if err := statedir.MakeDir(dir); err != nil {
		return err
	}
	b, err := jsonrpc.Marshal(document{Worker: filepath.Base(worker), Shown: shown, Request: line})
	if err != nil {
		return fmt.Errorf("encoding a request of a server: %w", err)
	}
	if err := statedir.WriteFile(filepath.Join(dir, name), bulk.Seal(name, b)); err != nil {
		return err
	}
	names, indexed := listed(worker)
	switch known := slices.Contains(names, name); {
	case known && indexed:
		return nil
	case !known:
		names = append(names, name)
	}
	return writeIndex(worker, names)
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
	switch {
	case !bulk.IsSealed(name, b), json.Unmarshal(b, &d) != nil:
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

// Remove removes the files of requests from a worker's directory, and logs failures. An index that cannot be
// written, as on a full disk, is removed: the next daemon must not miss what was removed.
func Remove(worker string, names []string, log *slog.Logger) {
	left, _ := listed(worker)
	left = slices.DeleteFunc(left, func(one string) bool { return slices.Contains(names, one) })
	if err := writeIndex(worker, left); err != nil {
		log.Warn("the names of the open requests of a server cannot be written down", "dir", worker, "err", err)
		_ = writeIndex(worker, nil)
	}
	for _, name := range names {
		err := os.Remove(filepath.Join(worker, process.DirAsks, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the file of a request that has its answer cannot be removed", "err", err)
		}
	}
}

// Read reads the requests that an earlier daemon has written to files of a worker's
// directory, in the order of the server's output. The requests whose files are damaged or missing are lost,
// by their ids: the worker has probably forgotten their lines. It returns an error for a file that cannot be read now
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
	names, known, err := readIndex(worker)
	if !last && err != nil {
		return nil, nil, err
	}
	lost = map[string]error{}
	for _, name := range names {
		seq, nth, ok := place(name)
		if !ok || !known || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }) {
			continue
		}
		log.Warn("a request of a server is forgotten", "dir", dir, "file", name, "err", fs.ErrNotExist)
		lost[ID(filepath.Base(worker), seq, nth)] = fmt.Errorf("%s: %w", filepath.Join(dir, name), fs.ErrNotExist)
	}
	for _, e := range entries {
		seq, nth, ok := place(e.Name())
		if !ok {
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
