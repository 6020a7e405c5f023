// Package verdict keeps in a file of each server what outlives all its processes: that the
// user has stopped it, and for which scopes it was ejected.
package verdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
)

// A Verdict says why a server gets no processes. The zero value is that of a server that
// may have them.
type Verdict struct {
	Stopped bool          // by a user, as far as is known; stays so until the server is started
	Damaged string        // path of the file, if it is damaged, so that the server counts for stopped
	Ejected []string      // scopes whose processes ended, or did not start, too often
	Fault   *fault.Record // of the last process that ended or did not start
	FaultAt time.Time
	Over    bool // a process has served since
}

// file is the content of a server's file.
type file struct {
	Version int      `json:"version"`
	Key     string   `json:"key,omitempty"` // of the entry that was ejected
	Stopped bool     `json:"stopped,omitempty"`
	Ejected []string `json:"ejected,omitempty"`

	Fault   *fault.Record `json:"fault,omitempty"` // with Ejected
	FaultMS int64         `json:"fault_unix_ms,omitempty"`
}

// version is the version of the file's format.
const version = 1

// errDamaged says that the file is not as [Verdict.Write] has written it.
var errDamaged = errors.New("it is damaged")

// Read reads the file at path, for a server whose entry has that key. If the entry has
// changed since, the server is not ejected any more: it is fixed, as far as is known.
// Without a file the verdict is zero. There is one only of a server that gets no processes, or of one that
// a user has stopped: so a file that cannot be read makes the server count for stopped, with an error.
func Read(path, key string) (Verdict, error) {
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return Verdict{}, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err == nil && (f.Version != version || !f.Stopped && len(f.Ejected) == 0) {
		err = errDamaged
	}
	if err != nil {
		return Verdict{Stopped: true, Damaged: path}, fmt.Errorf("%s: %w", path, err)
	}
	v := Verdict{Stopped: f.Stopped}
	if f.Key == "" || f.Key == key {
		v.Ejected = f.Ejected
	}
	if len(v.Ejected) > 0 && f.Fault != nil {
		v.Fault, v.FaultAt = f.Fault, time.UnixMilli(f.FaultMS)
	}
	return v, nil
}

// Blame records the fault of a process that ended or did not start.
func (v *Verdict) Blame(f *fault.Record) { v.Fault, v.FaultAt, v.Over = f, time.Now(), false }

// Write writes the file at path for an entry with that key, or removes it if there is
// nothing to remember. Only one goroutine may write a path at a time.
func (v *Verdict) Write(path, key string) error {
	if !v.Stopped && len(v.Ejected) == 0 {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	f := file{Version: version, Key: key, Stopped: v.Stopped, Ejected: slices.Sorted(slices.Values(v.Ejected))}
	if len(v.Ejected) > 0 && v.Fault != nil {
		f.Fault, f.FaultMS = v.Fault, v.FaultAt.UnixMilli()
	}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return statedir.WriteFile(path, append(b, '\n'))
}
