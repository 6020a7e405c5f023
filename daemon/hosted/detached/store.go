// Package detached keeps the tasks of calls of hosted servers: calls that were detached from
// their clients, which ask for them later. It makes no calls; package dispatch does, and
// tells the [Store] what they come to.
//
// Each task is a file of the state directory, so it outlives daemons, workers and the
// machine's boot. The file of a task that works has the call; whether the server got that is
// in the journal of its worker alone. The file of one that has ended has the answer.
package detached

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/ownfile"
)

// Bounds of what is kept of tasks that have ended. Tests lower them.
var (
	MaxBytes int64 = jsonrpc.MaxFrame // of all tasks of one identity; the newest one stays in any case
	KeepTime       = time.Hour        // after the end
)

// A Store has the tasks of hosted servers. It implements [tasks.Store]. It is safe for
// concurrent use.
type Store struct {
	dir string
	log *slog.Logger

	mu  lockcheck.Mutex
	all map[string]*task // by id; guarded by mu
}

// task is one task. Its fields are guarded by the store's mutex, but for writing.
type task struct {
	Record
	size    int64         // of its file, once it has ended; bytes
	open    asks          // what the client is asked and has not answered: [Record.open]
	changed chan struct{} // closed when its status changes, or what it asks
	cancel  func()        // ends the call; nil if no call is under way here

	lost json.RawMessage // JSON-RPC error of a task whose file cannot be believed; else nil

	writing sync.Mutex      // orders the writes of its file
	params  json.RawMessage // of the call, as long as it works; guarded by writing
}

// asks is what a client is asked: requests by key.
type asks map[string]json.RawMessage

// status returns the status as clients see it.
func (t *task) status() tasks.Status {
	if t.Status == tasks.Working && t.open != nil {
		return tasks.InputRequired
	}
	return t.Status
}

// changedLocked wakes those who wait for a change.
func (t *task) changedLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// errNoTask says that a task has gone meanwhile.
var errNoTask = errors.New("there is no such task")

// Open reads the tasks in the directory dir, which need not exist. It leaves alone files of another
// version. A task whose file is damaged has ended, and its outcome is unknown. While a file cannot be read for an
// error that passes, Open waits, for [ownfile.PassingTime] over all.
func Open(ctx context.Context, dir string, log *slog.Logger) (*Store, error) {
	s := &Store{dir: dir, log: log, all: map[string]*task{}}
	statedir.Sweep(dir, true)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("files of tasks: %w", err)
	}
	begun := time.Now()
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		var r Record
		var size int64
		err := ownfile.Patiently(ctx, begun, func() (err error) {
			r, size, err = readRecord(path)
			return err
		})
		if ownfile.Passes(err) && ctx.Err() != nil {
			return nil, context.Cause(ctx) // the next daemon reads it
		}
		if errors.Is(err, errVersion) {
			log.WarnContext(ctx, "the file of a task cannot be read, and is left alone", "err", err)
			continue
		}
		if err != nil {
			log.ErrorContext(ctx, "the record of a task cannot be believed: its outcome is unknown", "err", err)
			t := damaged(path, err)
			s.all[t.ID] = t
			continue
		}
		s.all[r.ID] = &task{Record: r, size: size, open: r.open(), changed: make(chan struct{})}
	}
	s.prune()
	return s, nil
}

// Records returns the records of all tasks.
func (s *Store) Records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Record
	for _, t := range s.all {
		all = append(all, t.Record)
	}
	return all
}

// Working returns the number of tasks that have not ended.
func (s *Store) Working() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, t := range s.all {
		if !t.Status.IsFinal() {
			n++
		}
	}
	return n
}

// Record returns the record of a task. A nil store has none.
func (s *Store) Record(id string) (r Record, ok bool) {
	if s == nil {
		return r, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[id]
	if t == nil {
		return r, false
	}
	return t.Record, true
}

// Has reports whether there is a task whose record can be believed. A nil store has none.
func (s *Store) Has(id string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id] != nil && s.all[id].lost == nil
}

// Miss records that the file of a task is missing, if nothing is known of the task: its outcome is unknown.
func (s *Store) Miss(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] != nil {
		return
	}
	err := fmt.Errorf("%s: %w", s.path(id), os.ErrNotExist)
	s.log.Error("the record of a task is missing: its outcome is unknown", "err", err)
	s.all[id] = lost(s.path(id), time.Now(), err)
}

// Begin writes down a task. cancel ends its call; it must not block. The caller records that
// the call is detached next, and drops the task by [Store.Forget] if it cannot.
func (s *Store) Begin(r Record, params json.RawMessage, cancel func()) error {
	if err := statedir.MakeDir(s.dir); err != nil {
		return fmt.Errorf("files of tasks: %w", err)
	}
	t := &task{Record: r, changed: make(chan struct{}), cancel: cancel}
	if len(params) <= maxParams {
		t.params = slices.Clone(params)
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if _, err := s.write(&t.Record, t.params); err != nil {
		return err
	}
	faultpoint.At("task.begun")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[r.ID] = t
	return nil
}

// write writes the file of a task, and returns its size in bytes.
func (s *Store) write(r *Record, second json.RawMessage) (size int64, err error) {
	b, err := r.encode(second)
	if err != nil {
		return 0, err
	}
	return int64(len(b)), statedir.WriteDurable(s.path(r.ID), b)
}

// Forget removes a task of which no client knows.
func (s *Store) Forget(id string) {
	s.mu.Lock()
	delete(s.all, id)
	s.mu.Unlock()
	s.remove(id)
}

// Resume returns the params of a task of an earlier daemon, nil if they are not kept. cancel
// is as in [Store.Begin].
func (s *Store) Resume(id string, cancel func()) json.RawMessage {
	s.mu.Lock()
	t := s.all[id]
	if t != nil {
		t.cancel = cancel
	}
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	params, err := readSecond(s.path(id))
	if err != nil || len(params) == 0 {
		return nil
	}
	t.params = params
	return slices.Clone(params)
}

// Say changes the message of a task that works.
func (s *Store) Say(id, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.all[id]; t != nil && !t.Status.IsFinal() {
		t.Message = message
	}
}

// An Outcome is what a call has come to: one of Result and Error, or neither if it was
// cancelled.
type Outcome struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"` // a JSON-RPC error object
}

// status returns the status that follows.
func (o *Outcome) status() tasks.Status {
	switch {
	case o.Error != nil:
		return tasks.Failed
	case o.Result != nil:
		return tasks.Completed
	}
	return tasks.Cancelled
}

// End writes down what a task has come to. The first end counts. After an error the task is
// what it was.
func (s *Store) End(id string, o Outcome, message string) error {
	s.mu.Lock()
	t := s.all[id]
	s.mu.Unlock()
	if t == nil {
		return nil // cancelled, and gone since
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	s.mu.Lock()
	r := t.Record
	s.mu.Unlock()
	if r.Status.IsFinal() {
		return nil
	}
	r.Status, r.Message, r.Updated = o.status(), message, time.Now().UnixMilli()
	r.Asked, r.Answers = nil, nil
	second, err := jsonrpc.Marshal(o)
	var size int64
	if err == nil {
		size, err = s.write(&r, second)
	}
	if err != nil {
		return err
	}
	faultpoint.At("task.ended")
	t.params = nil
	s.mu.Lock()
	t.Record, t.size, t.open = r, size, nil
	t.changedLocked()
	s.mu.Unlock()
	s.prune()
	return nil
}

// endsAt returns until when a task that has ended is kept.
func (t *task) endsAt() time.Time { return time.UnixMilli(t.Updated).Add(KeepTime) }

// prune removes tasks that have ended long ago, and the oldest ones of identities that have
// too much.
func (s *Store) prune() {
	now := time.Now()
	s.mu.Lock()
	ended := slices.DeleteFunc(slices.Collect(maps.Values(s.all)), func(t *task) bool { return !t.Status.IsFinal() })
	slices.SortFunc(ended, func(a, b *task) int { return cmp.Compare(b.Updated, a.Updated) })
	kept := map[string]int64{}
	var gone []string
	for _, t := range ended {
		newer := kept[t.Caller.Identity]
		kept[t.Caller.Identity] += t.size
		if now.After(t.endsAt()) || newer > 0 && newer+t.size > MaxBytes {
			delete(s.all, t.ID)
			gone = append(gone, t.ID)
		}
	}
	s.mu.Unlock()
	for _, id := range gone {
		s.remove(id)
	}
}

// prunePause is the pause between two looks for tasks that are too old to be kept.
const prunePause = time.Minute

// Run removes tasks that are too old, until ctx is done.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(prunePause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.prune()
		case <-ctx.Done():
			return
		}
	}
}

// seenLocked returns a task that a caller may see, or nil.
func (s *Store) seenLocked(c *tool.Caller, id string) *task {
	if t := s.all[id]; t != nil && (t.Caller.Identity == c.Identity || t.lost != nil) {
		return t
	}
	return nil
}

// viewLocked returns a task as its client sees it, but for the answer.
func (t *task) viewLocked(now time.Time) *tasks.Task {
	created, updated := time.UnixMilli(t.Created), time.UnixMilli(t.Updated)
	took := now.Sub(created)
	if t.Status.IsFinal() {
		took = updated.Sub(created)
	} else {
		updated = now
	}
	v := tasks.New(t.ID, t.Message, created, updated, max(took, 0)+KeepTime)
	if v.Status = t.status(); v.Message == "" {
		v.Message = "server " + t.Server + " works on " + t.Shown
	}
	if v.Status == tasks.InputRequired {
		v.Requests, _ = jsonrpc.Marshal(t.open) // they are JSON
	}
	return v
}

// Task implements [tasks.Store].
//
// The second of two calls of one waiter returns a change between them once wait is over.
func (s *Store) Task(ctx context.Context, c *tool.Caller, id string, wait time.Duration, _ bool) (*tasks.Task, error) {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	s.mu.Lock()
	t := s.seenLocked(c, id)
	if t == nil {
		s.mu.Unlock()
		return nil, nil //nolint:nilnil // there is no such task
	}
	if changed := t.changed; wait > 0 && !t.Status.IsFinal() {
		s.mu.Unlock()
		select {
		case <-changed:
		case <-limit.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
	}
	v := t.viewLocked(time.Now())
	s.mu.Unlock()
	if v.Error = t.lost; v.Error != nil {
		return v, nil
	}
	if v.Status != tasks.Completed && v.Status != tasks.Failed {
		return v, nil
	}
	second, err := readSecond(s.path(id))
	var o Outcome
	if err == nil {
		err = json.Unmarshal(second, &o)
	}
	switch {
	case errors.Is(err, os.ErrNotExist): // it is too old by now
		return nil, nil //nolint:nilnil // there is no such task any more
	case err != nil:
		if errors.Is(err, errDamaged) {
			v.Status, v.Error = tasks.Failed, damaged(s.path(id), err).lost
			return v, nil
		}
		return nil, fault.New(fault.InternalFailure, fault.Host, "tasks", "the kept answer cannot be read: %v", err)
	}
	v.Result, v.Error = o.Result, o.Error
	return v, nil
}

// Told returns the task for which a call was made, as its client has first seen it; nil if there
// is none.
func (s *Store) Told(c *tool.Caller, id string) *tasks.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seenLocked(c, id)
	if t == nil {
		return nil
	}
	v := t.viewLocked(time.Now())
	v.Status, v.Requests = tasks.Working, nil
	return v
}

// CancelTask implements [tasks.Store]. The file says that the task is cancelled before the
// server hears of it: should this daemon die, the next one tells the server.
func (s *Store) CancelTask(_ context.Context, c *tool.Caller, id string) (known bool, err error) {
	s.mu.Lock()
	t := s.seenLocked(c, id)
	s.mu.Unlock()
	if t == nil {
		return false, nil
	}
	if err := s.End(id, Outcome{}, "cancelled by "+c.Identity); err != nil {
		return true, fault.New(fault.ResourceExhausted, fault.Host, "tasks/cancel",
			"the cancellation cannot be written down, so the call goes on: %v", err)
	}
	s.mu.Lock()
	cancel := t.cancel
	cancelled := t.Status == tasks.Cancelled
	t.cancel = nil
	s.mu.Unlock()
	if cancel != nil && cancelled {
		cancel()
	}
	return true, nil
}
