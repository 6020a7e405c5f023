package detached

import (
	"context"
	"encoding/json"
	"maps"

	"holdline/daemon/tasks"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Ask asks the client of a task, and waits for the answers to all requests, which it returns
// by key. A key is used once in the life of a task: what the client has answered, perhaps at
// an earlier daemon, is returned at once, and not asked again.
func (s *Store) Ask(ctx context.Context, id string, requests map[string]json.RawMessage) (
	answers map[string]json.RawMessage, err error,
) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t := s.all[id]; t != nil && t.asks != nil {
			t.asks = nil
			t.changedLocked()
		}
	}()
	for {
		s.mu.Lock()
		t := s.all[id]
		if t == nil || t.Status.IsFinal() {
			s.mu.Unlock()
			return nil, errNoTask
		}
		given := t.answers()
		open := asks{}
		answers = map[string]json.RawMessage{}
		for key, request := range requests {
			if a, ok := given[key]; ok {
				answers[key] = a
			} else {
				open[key] = request
			}
		}
		if len(open) == 0 {
			s.mu.Unlock()
			return answers, nil
		}
		if len(open) != len(t.asks) {
			t.asks = open
			t.changedLocked()
		}
		changed := t.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// answers returns what the client has answered so far.
func (r *Record) answers() map[string]json.RawMessage {
	given := map[string]json.RawMessage{}
	_ = json.Unmarshal(r.Answers, &given) // none, if there are none
	return given
}

// UpdateTask implements [tasks.Store].
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
	maps.DeleteFunc(brought, func(key string, _ json.RawMessage) bool { return t.asks[key] == nil })
	s.mu.Unlock()
	if len(brought) == 0 || r.Status != tasks.Working {
		return true, nil
	}
	all := r.answers()
	maps.Copy(all, brought)
	if r.Answers, err = jsonrpc.Marshal(all); err != nil { // they are JSON
		return true, err
	}
	if _, err := s.write(&r, t.params); err != nil {
		return true, fault.New(fault.ResourceExhausted, fault.Host, "tasks/update",
			"the answers cannot be written down: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Answers = r.Answers
	t.changedLocked()
	return true, nil
}
