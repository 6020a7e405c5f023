package detached

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
)

// What the client of a task is asked is in the file of the task before the client can see it, and
// the client's answers are before it hears that they were taken. So a daemon takes an answer to
// what an earlier one has asked, though it has yet to read that again, and no key is asked twice.

// askRetry is the pause after which the client is to be asked what could not be written down.
const askRetry = time.Second

// Ask asks the client of a task, and waits for the answers to all requests, which it returns
// by key. A key is used once in the life of a task: what the client has answered, perhaps at
// an earlier daemon, is returned at once, and not asked again.
func (s *Store) Ask(ctx context.Context, id string, requests map[string]json.RawMessage) (
	answers map[string]json.RawMessage, err error,
) {
	for {
		changed, answers, err := s.given(id, requests)
		if answers != nil || err != nil {
			return answers, err
		}
		var again <-chan time.Time
		if err := s.setAsked(id, requests); err != nil {
			s.log.ErrorContext(ctx, "the client of a task cannot be asked yet", "task", id, "err", err)
			again = time.After(askRetry)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// given returns the client's answers to all requests. It returns nil if it has not answered all, and
// a channel that is closed when that may have changed.
func (s *Store) given(id string, requests map[string]json.RawMessage) (
	changed chan struct{}, answers map[string]json.RawMessage, err error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.all[id]
	if t == nil || t.Status.IsFinal() {
		return nil, nil, errNoTask
	}
	answers = members(t.Answers)
	maps.DeleteFunc(answers, func(key string, _ json.RawMessage) bool { return requests[key] == nil })
	if len(answers) < len(requests) {
		answers = nil
	}
	return t.changed, answers, nil
}

// Unask records that the client of a task is asked nothing any more.
func (s *Store) Unask(id string) {
	if err := s.setAsked(id, nil); err != nil {
		s.log.Warn("a task still shows what its client need not answer", "task", id, "err", err)
	}
}

// setAsked makes requests what the client of a task is asked, on disk first. It does nothing if the
// client is asked just that already.
func (s *Store) setAsked(id string, requests map[string]json.RawMessage) error {
	s.mu.Lock()
	t := s.all[id]
	s.mu.Unlock()
	if t == nil {
		return nil
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	s.mu.Lock()
	r := t.Record
	s.mu.Unlock()
	same := func(_, _ json.RawMessage) bool { return true } // a key stands for one request alone
	switch {
	case r.Status.IsFinal(), maps.EqualFunc(members(r.Asked), requests, same):
		return nil
	case requests == nil && r.open() == nil: // it shows nothing
		return nil
	}
	if r.Asked = nil; requests != nil {
		b, err := jsonrpc.Marshal(requests)
		if err != nil {
			return fmt.Errorf("encoding what is asked: %w", err)
		}
		r.Asked = b
	}
	return s.rewrite(t, r)
}

// UpdateTask implements [tasks.Store]. The first answer to a request counts.
func (s *Store) UpdateTask(
	_ context.Context, c *tool.Caller, id string, answers json.RawMessage,
) (known bool, err error) {
	s.mu.Lock()
	t := s.seenLocked(c, id)
	s.mu.Unlock()
	if t == nil {
		return false, nil
	}
	var brought map[string]json.RawMessage
	if err := json.Unmarshal(answers, &brought); err != nil {
		return true, fault.New(fault.InvalidInput, fault.Protocol, "tasks/update", "params.inputResponses: %v", err)
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	s.mu.Lock()
	r := t.Record
	maps.DeleteFunc(brought, func(key string, _ json.RawMessage) bool { return t.open[key] == nil })
	s.mu.Unlock()
	if len(brought) == 0 || r.Status != tasks.Working {
		return true, nil
	}
	all := members(r.Answers)
	maps.Copy(all, brought)
	if r.Answers, err = jsonrpc.Marshal(all); err != nil { // they are JSON
		return true, err
	}
	if err := s.rewrite(t, r); err != nil {
		return true, fault.New(fault.ResourceExhausted, fault.Host, "tasks/update",
			"the answers cannot be written down: %v", err)
	}
	faultpoint.At("task.answered")
	return true, nil
}

// rewrite makes r, which differs in what the client was asked and has answered, the record of a task
// that works, on disk first. The caller must hold t.writing.
func (s *Store) rewrite(t *task, r Record) error {
	if _, err := s.write(&r, t.params); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Asked, t.Answers, t.open = r.Asked, r.Answers, r.open()
	t.changedLocked()
	return nil
}
