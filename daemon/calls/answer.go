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
	"holdline/protocol"
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

// IsZero reports whether the answer is empty: it has neither a result nor an error nor a fault.
func (a *Answer) IsZero() bool { return a.Result == nil && a.Error == nil && a.Fault == nil }

// faultPrefix begins the file of an answer that is a fault.
var faultPrefix = []byte(`{"fault":`)

// line encodes the answer as its file holds it: a fault as its record, anything else as a JSON-RPC
// response whose id is the write id.
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

// AnswerFile returns the path of the file for the answer to a write, in the worker directory dir.
// It does not check whether that file exists.
func AnswerFile(dir string, write int64) string {
	return filepath.Join(dir, DirAnswers, strconv.FormatInt(write, 10))
}

// WriteAnswer writes the answer to a write into its file in the worker directory dir; a reader
// finds the whole answer or none of it. It returns the size of the answer in bytes, with an error,
// too, and its [AnswerSum]. It blocks on the disk, so the caller must not hold hub.Mu.
func WriteAnswer(dir string, write int64, a Answer) (size int64, sum uint32, err error) {
	line := a.line(write)
	return int64(len(line)), AnswerSum(dir, write, line), statedir.WriteFile(AnswerFile(dir, write), line)
}

// AnswerSum returns the checksum of an answer to a write, whose file is in the worker directory dir.
// It is that of this write in this directory alone.
func AnswerSum(dir string, write int64, line []byte) uint32 {
	return checksum(AnswerFile(filepath.Base(dir), write), line)
}

// IsFiled reports whether the file with the answer to a recorded call, in the worker directory dir, is
// as the journal says. If the journal says nothing of a file, it reports whether there is one with a
// fault: that is the daemon's own word, of which the worker has no line. It returns an error only if the
// file cannot be read now and may be read later: see [ownfile.Passes]. It blocks on the disk.
func IsFiled(dir string, r *Record) (bool, error) {
	line, err := ownfile.Read(AnswerFile(dir, r.Write), ownfile.MaxDocument)
	switch {
	case ownfile.Passes(err):
		return false, err
	case err != nil:
		return false, nil //nolint:nilerr // it is not as the journal says
	case r.FileSize > 0:
		return int64(len(line)) >= r.FileSize && AnswerSum(dir, r.Write, line[:r.FileSize]) == r.FileSum, nil
	}
	a, err := parseAnswer(line)
	return err == nil && a.Fault != nil, nil
}

// ReadAnswer reads the answer to a write from its file in the worker directory dir. It returns an
// error, which names the file, if it does not exist, is larger than [ownfile.MaxDocument], or is damaged: its
// first size bytes, those of the answer, have another [AnswerSum] than sum. A sum of 0 is not known. It
// blocks on the disk, so the caller must not hold hub.Mu.
func ReadAnswer(dir string, write, size int64, sum uint32) (a Answer, err error) {
	path := AnswerFile(dir, write)
	line, err := ownfile.Read(path, ownfile.MaxDocument)
	if err != nil {
		return a, err
	}
	if sum != 0 && (int64(len(line)) < size || AnswerSum(dir, write, line[:size]) != sum) {
		return a, fmt.Errorf("%s is %w", path, ErrDamaged)
	}
	if a, err = parseAnswer(line); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// parseAnswer returns the answer that [Answer.line] has encoded as line.
func parseAnswer(line []byte) (a Answer, err error) {
	if bytes.HasPrefix(line, faultPrefix) {
		a.Fault = &fault.Record{}
		return a, json.Unmarshal(line, a.Fault)
	}
	msg, err := jsonrpc.Parse(line)
	return Answer{Result: msg.Result, Error: msg.Error}, err
}

// RemoveAnswers removes the files of the answers to these writes from the worker directory dir. It
// ignores errors, and files that do not exist. It blocks on the disk, so the caller must not hold
// hub.Mu.
func RemoveAnswers(dir string, writes []int64) {
	for _, write := range writes {
		_ = os.Remove(AnswerFile(dir, write)) // the directory goes with its worker in any case
	}
}

// AnswersIn returns the size in bytes of each answer that has a file in the worker directory dir,
// by write id; 0 for a file that it cannot stat. It removes the temporary files that a crash left,
// so no answer may be written meanwhile. If no answer was ever written, it returns an empty map
// and no error; it returns an error if the files cannot be listed.
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

// BeginWriting returns true if the caller must write the answer to a file now: no file of it
// exists, and no other goroutine is writing one. The caller unlocks the lock that guards c
// (hub.Mu) to write, locks it again, and calls [Call.Written]. It must hold that lock now.
func (c *Call) BeginWriting() bool {
	if c.keeping != InMemory {
		return false
	}
	c.keeping = Writing
	return true
}

// Written ends what [Call.BeginWriting] has begun: the caller has tried to write the answer to its
// file. size is the size of that file in bytes, sum its [AnswerSum], and err is the error of the write or nil.
//
// After an error the answer stays in memory, and may be written again. Otherwise the file is the
// answer from now on, and Written drops the result or the error from memory; a fault, which is
// small, stays. It returns by how many bytes the session's files have grown: size, or 0 after an
// error or if the call is Over. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) Written(size int64, sum uint32, err error) (grown int64) {
	if c.keeping = InMemory; err != nil {
		return 0
	}
	c.keeping = InFile
	c.Answer.Result, c.Answer.Error = nil, nil
	if c.phase == Over {
		return 0
	}
	c.size, c.summed, c.sum = size, size, sum
	return size
}

// Filed records that the answer is in its file, although this daemon did not write it there: the
// file was made from the child's line. size is that of the file in bytes, sum its [AnswerSum]; the result lies
// at the offset of result. Filed does not change the phase. It returns size, by which the
// session's files have grown. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) Filed(size int64, sum uint32, result protocol.Span) (grown int64) {
	c.keeping, c.size, c.summed, c.sum, c.result = InFile, size, size, sum, result
	return size
}

// FileSum returns the [AnswerSum] of the first size bytes of the answer's file, which are the answer; 0 if it
// is not known. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) FileSum() (size int64, sum uint32) { return c.summed, c.sum }

// ResultInFile returns where in the answer's file the result lies, without the name of the file. ok
// is false if the answer is in no file, or if its place there is not known. The caller must hold
// the lock that guards c (hub.Mu).
func (c *Call) ResultInFile() (result protocol.Span, ok bool) {
	return c.result, c.keeping == InFile && c.result.Size > 0
}

// AnswerSize returns the size of the answer in bytes, in memory or in its file; 0 if there is
// none, or only a fault. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) AnswerSize() int64 {
	return max(c.size, int64(len(c.Answer.Result)+len(c.Answer.Error)))
}

// RestoreAnswer records that an earlier daemon has written the answer to a file of that size in
// bytes. The call becomes Answered, also if its worker is dead. The caller must hold the lock that
// guards c (hub.Mu).
func (c *Call) RestoreAnswer(size int64) {
	c.Apply(Reply)
	c.keeping, c.size = InFile, size
}

// DropAnswer sets the size of the answer's file to 0. It returns that size before, which the
// session's files lose, and whether there is a file that the caller must remove, or one that is
// being written. It removes nothing. The caller must hold the lock that guards c (hub.Mu).
func (c *Call) DropAnswer() (freed int64, hasFile bool) {
	freed, c.size = c.size, 0
	return freed, c.keeping != InMemory
}
