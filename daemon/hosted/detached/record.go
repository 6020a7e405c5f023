package detached

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
)

// version is the version of the files.
const version = 1

// maxParams bounds the params that are kept of a call, in bytes. A call with more cannot be
// made again by another daemon.
const maxParams = 4 << 20

// A Record is what is kept of a call for which a task was made: enough for another daemon to
// carry it to its end, and for any to tell what it has come to.
type Record struct {
	Version  int             `json:"version"`
	ID       string          `json:"task"`
	Caller   Caller          `json:"caller"`
	N        int64           `json:"n"`          // number of the client's line
	Request  string          `json:"request_id"` // JSON
	Server   string          `json:"server"`
	Tool     string          `json:"tool"`     // as the server knows it
	Shown    string          `json:"shown"`    // as its client does
	Contract tool.Contract   `json:"contract"` // of the tool
	Level    string          `json:"level,omitempty"`
	Sent     int64           `json:"sent_unix_ms"`    // when the client has sent the call
	Created  int64           `json:"created_unix_ms"` // when the task was made
	Updated  int64           `json:"updated_unix_ms"` // when its status has changed
	Status   tasks.Status    `json:"status"`          // Working, or a final one
	Message  string          `json:"message,omitempty"`
	Asked    json.RawMessage `json:"asked,omitempty"`   // what the client was asked last, an object
	Answers  json.RawMessage `json:"answers,omitempty"` // of the client to what was asked, an object

	// SecondSum is the checksum of the second line. That of the first one follows it there.
	SecondSum uint32 `json:"second_sum"`
}

// A Caller is what is kept of a [tool.Caller]: who may ask for the task, and which process
// serves the call.
type Caller struct {
	Session  string `json:"session"`
	Identity string `json:"identity"`
	Project  string `json:"project,omitempty"`
	Root     string `json:"root,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	Client   string `json:"client,omitempty"`
	Only     string `json:"only,omitempty"`
}

// members returns the members of an object, none of nil.
func members(object json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	_ = json.Unmarshal(object, &all) // none, if there are none
	return all
}

// open returns what the client is asked and has not answered; nil if that is nothing.
func (r *Record) open() map[string]json.RawMessage {
	given, open := members(r.Answers), members(r.Asked)
	maps.DeleteFunc(open, func(key string, _ json.RawMessage) bool {
		_, ok := given[key]
		return ok
	})
	if len(open) == 0 {
		return nil
	}
	return open
}

// AskedFor returns the keys of what the client was asked last, answered or not.
func (r *Record) AskedFor() []string { return slices.Collect(maps.Keys(members(r.Asked))) }

// Key returns the key of the first round of the call.
func (r *Record) Key() calls.Key { return calls.Key{Session: r.Caller.Session, N: r.N} }

// RemoteCall returns the call as a session would make it.
func (r *Record) RemoteCall(params json.RawMessage) *tool.RemoteCall {
	c := &r.Caller
	return &tool.RemoteCall{
		Caller: tool.Caller{
			Session: c.Session, Identity: c.Identity, Project: c.Project, Root: c.Root, Cwd: c.Cwd,
			Client: c.Client, Only: c.Only,
		},
		N: r.N, ID: r.Request, Params: params, Modern: true, Replay: true, Sent: time.UnixMilli(r.Sent),
		Level: r.Level, TakesTask: true,
	}
}

// NewRecord returns the record of a call of a tool that becomes a task now.
func NewRecord(rc *tool.RemoteCall, server, own string, contract tool.Contract, shown string) Record {
	c, now := &rc.Caller, time.Now().UnixMilli()
	return Record{
		Version: version, ID: tasks.ID(c.Session, rc.N),
		Caller: Caller{c.Session, c.Identity, c.Project, c.Root, c.Cwd, c.Client, c.Only},
		N:      rc.N, Request: rc.ID, Server: server, Tool: own, Shown: shown, Contract: contract, Level: rc.Level,
		Sent: rc.Sent.UnixMilli(), Created: now, Updated: now, Status: tasks.Working,
	}
}

// path returns the file of a task.
func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".json") }

// encode returns the content of a file: the record, and in a second line the params of the
// call as long as the task works, and then what it has come to.
func (r *Record) encode(second json.RawMessage) ([]byte, error) {
	r.SecondSum = bulk.Sum(second)
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding a task: %w", err)
	}
	return append(append(append(bulk.Seal(r.ID, b), '\n'), second...), '\n'), nil
}

// errDamaged says that a file is not as it was written.
var errDamaged = errors.New("the file is damaged")

// errVersion says that a file is of another version of Holdline.
var errVersion = errors.New("the file is of a version that this Holdline does not read")

// readRecord reads the first line of a file, and returns the size of the file in bytes.
func readRecord(path string) (r Record, size int64, err error) {
	f, err := ownfile.Open(path)
	if err != nil {
		return r, 0, err
	}
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(io.LimitReader(f, ownfile.MaxDocument))
	var first json.RawMessage
	if err := d.Decode(&first); err != nil {
		if ownfile.Passes(err) {
			return r, 0, err
		}
		return r, 0, fmt.Errorf("%s: %w: %w", path, errDamaged, err)
	}
	if err := r.decode(path, first); err != nil {
		return r, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return r, 0, err
	}
	return r, info.Size(), nil
}

// decode decodes the first line of the file at path. It returns an error unless the line is as it was
// written there.
func (r *Record) decode(path string, first []byte) error {
	switch {
	case json.Unmarshal(first, r) != nil, r.ID+".json" != filepath.Base(path):
		return fmt.Errorf("%s: %w", path, errDamaged)
	case r.Version != version:
		return fmt.Errorf("%s: %w", path, errVersion)
	case !bulk.IsSealed(r.ID, first):
		return fmt.Errorf("%s: %w", path, errDamaged)
	}
	return nil
}

// readSecond reads the second line of a file.
func readSecond(path string) (json.RawMessage, error) {
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if err != nil {
		return nil, err
	}
	first, second, _ := bytes.Cut(b, []byte("\n"))
	second = bytes.TrimSuffix(second, []byte("\n"))
	var r Record
	if err := r.decode(path, first); err != nil {
		return nil, err
	}
	if bulk.Sum(second) != r.SecondSum {
		return nil, fmt.Errorf("%s: %w", path, errDamaged)
	}
	return second, nil
}

// Failure returns a fault as the JSON-RPC error of a task.
func Failure(f *fault.Record) json.RawMessage {
	b, _ := jsonrpc.Marshal(struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}{f.JSONRPCCode, f.Fault.Detail, f.JSON()}) // it is JSON
	return b
}

// damaged returns the task whose file, at path, cannot be believed, for why. It has ended, since nobody can
// carry it on. Who may ask for it is not known, and its id is a secret: whoever has that.
func damaged(path string, why error) *task {
	at := time.Now()
	if info, err := os.Lstat(path); err == nil {
		at = info.ModTime()
	}
	return lost(path, at, why)
}

// lost returns the task whose file, at path, is damaged or missing since about at, for why.
func lost(path string, at time.Time, why error) *task {
	now := at.UnixMilli()
	f := fault.New(fault.OutcomeUnknown, fault.Host, mcp.ToolsCall,
		"the record of the task cannot be believed: %v: whether the call had its effect is not known", why)
	return &task{
		Record: Record{
			Version: version, ID: strings.TrimSuffix(filepath.Base(path), ".json"), Created: now, Updated: now,
			Status: tasks.Failed, Message: f.Fault.Detail,
		},
		lost: Failure(f), changed: make(chan struct{}),
	}
}

// remove removes the file of a task.
func (s *Store) remove(id string) {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Warn("the file of a task cannot be removed", "task", id, "err", err)
	}
}
