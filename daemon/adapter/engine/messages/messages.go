// Package messages knows the file of a consult's directory that has what was said to the
// consult since it was asked for.
//
// The daemon adds a message, and the engine process reads it: the file is the way between
// them, so that a message survives the death of each, and is taken once. The engine process
// closes the file when its run takes no more. Both do so under the lock of the file: a message
// is in the run, or is refused.
package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/bulk"
	"holdline/protocol/ownfile"
)

// File is the name of the file, which has a line for each message.
const File = "say.jsonl"

// Limits of what may be said to a consult.
const (
	MaxText  = 256 << 10 // bytes of a message
	MaxCount = 32        // messages of a consult
)

// Errors of [Add].
var (
	ErrLate = errors.New("the run takes no more messages")
	ErrFull = errors.New("the consult has as many messages as it may have")
)

// A Message is one line of the file.
type Message struct {
	ID     string `json:"id,omitempty"` // the same for a call that is made again
	Text   string `json:"text,omitempty"`
	From   string `json:"from,omitempty"` // name of the client, for people
	UnixMS int64  `json:"at"`
	Closed bool   `json:"closed,omitempty"` // not a message: the run takes no more
}

// Add adds a message to the file in dir, on the disk, unless the file has its id already. It
// returns ErrLate if the file is closed, and ErrFull if it has too many messages.
func Add(dir string, m Message) error {
	f, list, whole, err := lock(dir, os.O_CREATE)
	if err != nil {
		return err
	}
	defer f.Close()
	closed := false
	for _, old := range list {
		if old.ID == m.ID {
			return nil
		}
		closed = closed || old.Closed
	}
	switch {
	case closed:
		return ErrLate
	case len(list) >= MaxCount:
		return ErrFull
	}
	return write(f, whole, m)
}

// Close closes the file in dir, so that nothing can be added, unless it has more than the first
// n messages, which the caller knows. It returns the others.
func Close(dir string, n int) (more []Message, err error) {
	f, list, whole, err := lock(dir, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if len(list) > 0 && list[len(list)-1].Closed {
		return nil, nil
	}
	if len(list) > n {
		return list[n:], nil
	}
	return nil, write(f, whole, Message{Closed: true})
}

// Read returns the messages in dir behind the first n, and none if there is no file. It needs no lock: a
// line that is being written counts when it is whole.
func Read(dir string, n int) ([]Message, error) {
	f, err := ownfile.OpenFile(filepath.Join(dir, File), os.O_RDWR|os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, _, err := read(f)
	if err != nil {
		return nil, err
	}
	if last := len(list) - 1; last >= 0 && list[last].Closed {
		list = list[:last]
	}
	return list[min(n, len(list)):], nil
}

// Limits of the wait for the lock: who may hold it unlocks it within milliseconds, if the disk is not slow.
const (
	lockLimit = 5 * time.Second
	lockPause = 5 * time.Millisecond
)

// lock opens the file, takes its lock, which ends with the file, and reads it. whole reports
// whether the last line is whole: it is not, if a daemon has died while it wrote. The file is no secret
// to the run's own program, which may lock it for ever: the error names that.
func lock(dir string, flag int) (f *os.File, list []Message, whole bool, err error) {
	path := filepath.Join(dir, File)
	f, err = ownfile.OpenFile(path, os.O_RDWR|os.O_APPEND|flag)
	if err != nil {
		return nil, nil, false, err
	}
	for begin := time.Now(); ; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		late := time.Since(begin) > lockLimit
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EWOULDBLOCK) || late {
			break
		}
		<-time.After(lockPause)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s holds the lock of %s: end it", statedir.WhoHolds(path), path)
	}
	if err == nil {
		list, whole, err = read(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, false, fmt.Errorf("the messages of a consult: %w", err)
	}
	return f, list, whole, nil
}

// read reads the lines of the file. whole reports whether the last one is whole.
func read(f *os.File) (list []Message, whole bool, err error) {
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, false, err
	}
	for line := range bytes.Lines(b) {
		var m Message // of the last line, no more than its end may be missing; what is no message is not said
		if bulk.IsSealed(sealName(f), bytes.TrimSuffix(line, []byte("\n"))) && json.Unmarshal(line, &m) == nil {
			list = append(list, m)
		}
	}
	return list, len(b) == 0 || b[len(b)-1] == '\n', nil
}

// sealName returns the name to which the checksums of the lines of the open file are bound.
func sealName(f *os.File) string { return filepath.Base(filepath.Dir(f.Name())) + "/" + File }

// write appends a line to the disk. A line that is not whole ends in front of it.
func write(f *os.File, whole bool, m Message) error {
	m.UnixMS = time.Now().UnixMilli()
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b = bulk.Seal(sealName(f), b)
	if !whole {
		b = append([]byte{'\n'}, b...)
	}
	if _, err = f.Write(append(b, '\n')); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing a message to a consult: %w", err)
	}
	return nil
}
