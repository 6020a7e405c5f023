package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
)

// SpoolAfter is how long an answer may stay unconfirmed before it is written to a
// file, so that the worker's later output can be acknowledged.
const SpoolAfter = 100 * time.Millisecond

// Keeping says where an answer is kept until its owner has it:
//
//	InMemory  the worker retains its line, which is not acknowledged
//	Writing   the same, and a file of it is being written
//	InFile    the file counts as the answer after any death; the line can be acknowledged
//
// A file that cannot be written makes it InMemory again: the line stays
// unacknowledged, so the server is held up and nothing is lost.
type Keeping int8

// Where an answer is kept.
const (
	InMemory Keeping = iota
	Writing
	InFile
)

// Answer is what a call came to: one of the three.
type Answer struct {
	Result json.RawMessage
	Error  json.RawMessage // a JSON-RPC error object
	Fault  *fault.Record   // the daemon's own word, not the child's
}

// IsZero reports whether there is none.
func (a *Answer) IsZero() bool { return a.Result == nil && a.Error == nil && a.Fault == nil }

// faultPrefix begins the file of an answer that is a fault.
var faultPrefix = []byte(`{"fault":`)

// line encodes the answer to a write as it is kept in a file.
func (a *Answer) line(write int64) []byte {
	switch id := jsonrpc.IntID(write); {
	case a.Fault != nil:
		return a.Fault.JSON()
	case a.Error != nil:
		return jsonrpc.AppendFailure(nil, id, a.Error)
	default:
		return jsonrpc.AppendResult(nil, id, a.Result)
	}
}

// AnswerFile returns the file of the answer to a write.
func AnswerFile(dir string, write int64) string {
	return filepath.Join(dir, DirAnswers, strconv.FormatInt(write, 10))
}

// WriteAnswer writes the answer to a write into the worker directory dir, and
// returns its size in bytes. It blocks on the disk.
func WriteAnswer(dir string, write int64, a Answer) (size int64, err error) {
	line := a.line(write)
	return int64(len(line)), statedir.WriteFile(AnswerFile(dir, write), line)
}

// ReadAnswer reads the answer to a write from the worker directory dir.
func ReadAnswer(dir string, write int64) (a Answer, err error) {
	line, err := ownfile.Read(AnswerFile(dir, write), ownfile.MaxDocument)
	if err != nil {
		return a, err
	}
	if bytes.HasPrefix(line, faultPrefix) {
		a.Fault = &fault.Record{}
		return a, json.Unmarshal(line, a.Fault)
	}
	msg, err := jsonrpc.Parse(line)
	return Answer{Result: msg.Result, Error: msg.Error}, err
}

// RemoveAnswers removes the files of the answers to these writes.
func RemoveAnswers(dir string, writes []int64) {
	for _, write := range writes {
		_ = os.Remove(AnswerFile(dir, write)) // the directory goes with its worker in any case
	}
}

// AnswersIn returns the sizes in bytes of the answers that lie in the worker
// directory dir, by write. It removes what a crash left half written, so no answer may be
// written meanwhile. If none was ever kept the map is empty, without an error.
func AnswersIn(dir string) (map[int64]int64, error) {
	dir = filepath.Join(dir, DirAnswers)
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("kept answers: %w", err)
	}
	sizes := map[int64]int64{}
	for _, e := range entries {
		write, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil {
			continue
		}
		sizes[write] = 0
		if info, err := e.Info(); err == nil {
			sizes[write] = info.Size()
		}
	}
	return sizes, nil
}

// BeginWriting returns true if the caller must write the answer to a file now. It
// does that without its lock, and then calls [Call.Written].
func (c *Call) BeginWriting() bool {
	if c.keeping != InMemory {
		return false
	}
	c.keeping = Writing
	return true
}

// Written notes whether the answer of so many bytes is in its file. It returns
// by how many bytes the files of the call's session have grown. The answer leaves
// memory, but for a fault, which is small.
func (c *Call) Written(size int64, err error) (grown int64) {
	if c.keeping = InMemory; err != nil {
		return 0
	}
	c.keeping = InFile
	c.Answer.Result, c.Answer.Error = nil, nil
	if c.phase == Over {
		return 0
	}
	c.size = size
	return size
}

// Filed notes that the answer's line is in its file, which has so many bytes, and the result
// at offset in it. It returns by how many bytes the files of the call's session have grown.
func (c *Call) Filed(size, offset int64, result int) (grown int64) {
	c.keeping, c.size = InFile, size
	c.resultAt, c.resultSize = offset, int64(result)
	return size
}

// ResultInFile returns where in the answer's file the result is; ok is false if that is not
// known.
func (c *Call) ResultInFile() (offset, size int64, ok bool) {
	return c.resultAt, c.resultSize, c.keeping == InFile && c.resultSize > 0
}

// AnswerSize returns the size of the answer in bytes, in memory or in its file; 0 if
// there is none.
func (c *Call) AnswerSize() int64 {
	return max(c.size, int64(len(c.Answer.Result)+len(c.Answer.Error)))
}

// RestoreAnswer records that the answer lies in a file of that size in bytes, which
// an earlier daemon has written. It is the answer even if its worker is dead.
func (c *Call) RestoreAnswer(size int64) {
	c.Apply(Reply)
	c.keeping, c.size = InFile, size
}

// DropAnswer forgets the answer's size, and returns how many bytes of files that
// frees and whether there is a file to be removed, or one on its way.
func (c *Call) DropAnswer() (freed int64, hasFile bool) {
	freed, c.size = c.size, 0
	return freed, c.keeping != InMemory
}
