package detached

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"holdline/daemon/tasks"
	"holdline/daemon/tool"
)

// open opens the store of a directory.
func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begin begins the task of line n of the identity's session.
func begin(t *testing.T, s *Store, identity string, n int64, cancel func()) (id string, c *tool.Caller) {
	t.Helper()
	c = &tool.Caller{Session: "s", Identity: identity}
	rc := &tool.RemoteCall{Caller: *c, N: n, ID: "1", Sent: time.Now()}
	r := NewRecord(rc, "tools", "effect", tool.NeverReplay, "tools__effect")
	if err := s.Begin(r, json.RawMessage(`{"name":"x<y"}`), cancel); err != nil {
		t.Fatal(err)
	}
	return r.ID, c
}

// get returns a task, which must be there.
func get(t *testing.T, s *Store, c *tool.Caller, id string) *tasks.Task {
	t.Helper()
	got, err := s.Task(t.Context(), c, id, 0, true)
	if err != nil || got == nil {
		t.Fatalf("Task = %+v, %v", got, err)
	}
	return got
}

// TestStore checks that another daemon finds a task with its call, and then with its end.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id, c := begin(t, s, "a", 1, nil)
	s = open(t, dir)
	if got := get(t, s, c, id); got.Status != tasks.Working || got.Message == "" || s.Working() != 1 {
		t.Errorf("the next daemon has %+v", got)
	}
	if params := s.Resume(id, nil); string(params) != `{"name":"x<y"}` {
		t.Errorf("the params are %s", params)
	}
	if got, err := s.Task(t.Context(), &tool.Caller{Identity: "b"}, id, 0, true); got != nil || err != nil {
		t.Errorf("another identity gets %+v, %v", got, err)
	}
	result := json.RawMessage(`{"content":[],"n":12345678901234567890.10}`)
	if err := s.End(id, Outcome{Result: result}, "m"); err != nil {
		t.Fatal(err)
	}
	if err := s.End(id, Outcome{Error: json.RawMessage(`{}`)}, "later"); err != nil { // the first end counts
		t.Fatal(err)
	}
	for range 2 {
		got := get(t, s, c, id)
		if got.Status != tasks.Completed || string(got.Result) != string(result) || got.Message != "m" || s.Working() != 0 {
			t.Errorf("the task ends as %+v, result %s", got, got.Result)
		}
		s = open(t, dir)
	}
}

// TestStoreCancel checks that a cancellation is on disk before the call hears of it.
func TestStoreCancel(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	told := 0
	var id string
	id, c := begin(t, s, "a", 1, func() {
		if told++; open(t, dir).Records()[0].Status != tasks.Cancelled {
			t.Error("the call ends before the file says so")
		}
	})
	for range 2 {
		if known, err := s.CancelTask(t.Context(), c, id); !known || err != nil {
			t.Errorf("CancelTask = %v, %v", known, err)
		}
	}
	if got := get(t, s, c, id); got.Status != tasks.Cancelled || told != 1 {
		t.Errorf("the task is %+v, its call was told %d times", got, told)
	}
	if known, err := s.CancelTask(t.Context(), c, "x"); known || err != nil {
		t.Errorf("CancelTask of no task = %v, %v", known, err)
	}
}

// TestStoreAsks checks that answers are on disk before the client hears that they were taken,
// that partial ones count, and that a key is not asked twice.
func TestStoreAsks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id, c := begin(t, s, "a", 1, nil)
	requests := map[string]json.RawMessage{"0/x": json.RawMessage(`{"method":"m"}`), "0/y": json.RawMessage(`{"method":"n"}`)}
	given := make(chan map[string]json.RawMessage, 1)
	ask := func(ctx context.Context) {
		answers, err := s.Ask(ctx, id, requests)
		if err == nil {
			given <- answers
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { ask(ctx); close(ended) }()
	until := func(status tasks.Status, open string) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			got := get(t, s, c, id)
			if got.Status == status && strings.Contains(string(got.Requests), open) {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("the task is %+v, asks %s", got, got.Requests)
			}
		}
	}
	update := func(answers string) {
		t.Helper()
		if known, err := s.UpdateTask(t.Context(), c, id, json.RawMessage(answers)); !known || err != nil {
			t.Fatalf("UpdateTask = %v, %v", known, err)
		}
	}
	until(tasks.InputRequired, `"0/x"`)
	update(`{"0/x":{"a":1},"1/x":{"never":"asked"}}`)
	until(tasks.InputRequired, `{"0/y":`)
	stop()
	<-ended
	s = open(t, dir)
	s.Resume(id, nil)
	go ask(t.Context())
	until(tasks.InputRequired, `{"0/y":`)
	update(`{"0/x":{"a":2},"0/y":{"b":1}}`)
	if got := <-given; string(got["0/x"]) != `{"a":1}` || string(got["0/y"]) != `{"b":1}` || len(got) != 2 {
		t.Errorf("the answers are %s", got)
	}
	until(tasks.Working, "")
	if params := s.Resume(id, nil); string(params) != `{"name":"x<y"}` {
		t.Errorf("the params are %s", params)
	}
}

// TestDaemonKilledWhileTaskAsks_AnswerBeforeItAsksAgainIsGiven checks that the next daemon shows what
// the client was asked before it knows that the server still asks it, and keeps an answer until it
// asks; that this holds over a second death; and that of two answers the first one counts.
func TestDaemonKilledWhileTaskAsks_AnswerBeforeItAsksAgainIsGiven(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id, c := begin(t, s, "a", 1, nil)
	requests := map[string]json.RawMessage{
		"w:1.0": json.RawMessage(`{"method":"m"}`), "w:2.0": json.RawMessage(`{"method":"n"}`),
	}
	ctx, die := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _, _ = s.Ask(ctx, id, requests); close(ended) }()
	for limit := time.Now().Add(time.Minute); get(t, s, c, id).Status != tasks.InputRequired; {
		if time.Now().After(limit) {
			t.Fatal("the client is not asked")
		}
		time.Sleep(time.Millisecond)
	}
	die()
	<-ended
	for life, answers := range []string{
		`{"w:1.0":{"a":1},"other":{}}`, `{"w:1.0":{"a":2}}`, `{"w:1.0":{"a":3},"w:2.0":{"b":1}}`,
	} {
		s = open(t, dir)
		s.Resume(id, nil)
		got := get(t, s, c, id)
		open := strings.Count(string(got.Requests), "method")
		if got.Status != tasks.InputRequired || open != 2-min(life, 1) {
			t.Errorf("in life %d the task is %s, asks %s", life, got.Status, got.Requests)
		}
		if known, err := s.UpdateTask(t.Context(), c, id, json.RawMessage(answers)); !known || err != nil {
			t.Errorf("UpdateTask = %v, %v", known, err)
		}
	}
	if got := get(t, s, c, id); got.Status != tasks.Working {
		t.Errorf("the task that has its answers is %+v, asks %s", got, got.Requests)
	}
	s = open(t, dir)
	if keys := s.Records()[0].AskedFor(); len(keys) != 2 {
		t.Errorf("the client was asked %v", keys)
	}
	s.Resume(id, nil)
	got, err := s.Ask(t.Context(), id, requests)
	if err != nil || string(got["w:1.0"]) != `{"a":1}` || string(got["w:2.0"]) != `{"b":1}` || len(got) != 2 {
		t.Errorf("the answers are %s, %v", got, err)
	}
}

// TestServerAsksNoMore_TaskWorks checks that a task shows no longer what its client need not answer,
// also at the next daemon.
func TestServerAsksNoMore_TaskWorks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id, c := begin(t, s, "a", 1, nil)
	if err := s.setAsked(id, map[string]json.RawMessage{"w:1.0": json.RawMessage(`{"method":"m"}`)}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, c, id); got.Status != tasks.InputRequired {
		t.Fatalf("the task is %+v", got)
	}
	s.Unask(id)
	for range 2 {
		if got := get(t, s, c, id); got.Status != tasks.Working || got.Requests != nil {
			t.Errorf("the task is %s, asks %s", got.Status, got.Requests)
		}
		s = open(t, dir)
	}
}

// TestStoreBounds checks that the oldest ended tasks go first if an identity has too much, that
// those of others stay, and that all go in time.
func TestStoreBounds(t *testing.T) {
	defer func(most int64, keep time.Duration) { MaxBytes, KeepTime = most, keep }(MaxBytes, KeepTime)
	dir := t.TempDir()
	s := open(t, dir)
	large := json.RawMessage(`{"x":"` + strings.Repeat("x", 80) + `"}`)
	var ids []string
	for n := range int64(4) {
		id, _ := begin(t, s, "a", n, nil)
		ids = append(ids, id)
	}
	other, b := begin(t, s, "b", 9, nil)
	for i, id := range append([]string{other}, ids...) {
		s.mu.Lock()
		s.all[id].Created -= int64(i)
		s.mu.Unlock()
		if err := s.End(id, Outcome{Result: large}, ""); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		MaxBytes = s.all[id].size * 5 / 2
		s.mu.Unlock()
		time.Sleep(2 * time.Millisecond) // so that the ends have an order
	}
	c := &tool.Caller{Identity: "a"}
	for range 2 {
		for i, id := range ids {
			got, err := s.Task(t.Context(), c, id, 0, true)
			if err != nil || (got != nil) != (i >= 2) {
				t.Errorf("task %d is %+v, %v", i, got, err)
			}
		}
		get(t, s, b, other)
		s = open(t, dir)
	}
	KeepTime = 0
	s.prune()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 || len(s.Records()) > 0 {
		t.Errorf("too old, and kept: %v, %v", files, err)
	}
}

// TestStoreFull checks that a task whose end cannot be written down goes on.
func TestStoreFull(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id, c := begin(t, s, "a", 1, nil)
	if err := os.Remove(s.path(id)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.path(id)+"/x", 0o700); err != nil { // nothing can take its place
		t.Fatal(err)
	}
	if err := s.End(id, Outcome{Result: json.RawMessage(`{}`)}, ""); err == nil {
		t.Error("End succeeds without a file")
	}
	if got := get(t, s, c, id); got.Status != tasks.Working {
		t.Errorf("the task is %+v", got)
	}
	if _, err := s.CancelTask(t.Context(), c, id); err == nil {
		t.Error("CancelTask succeeds without a file")
	}
}

// TestFileOfTaskDamaged_OutcomeIsUnknown changes the file of a task, which works or has ended, between two
// daemons. The client that asks for it is told that its outcome is unknown, and which file that is, never
// something else; a file of another task's is not taken for it; and nobody goes on with its call.
func TestFileOfTaskDamaged_OutcomeIsUnknown(t *testing.T) {
	bit := func(at string) func([]byte) []byte {
		return func(b []byte) []byte {
			i := bytes.Index(b, []byte(at)) + len(at)
			b[i] ^= 1
			return b
		}
	}
	for name, damage := range map[string]func(b []byte) []byte{
		"emptied":            func([]byte) []byte { return nil },
		"halved":             func(b []byte) []byte { return b[:len(b)/2] },
		"other JSON":         func([]byte) []byte { return []byte("{}\n{}\n") },
		"a bit of its tool":  bit(`"tool":"`),
		"a bit of its state": bit(`"status":"`),
		"a bit of the rest":  bit("\n{\""),
		"another task's":     nil,
	} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ended %t", name, ended), func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir)
				id, c := begin(t, s, "a", 1, nil)
				other, _ := begin(t, s, "a", 2, nil)
				if ended {
					for _, id := range []string{id, other} {
						if err := s.End(id, Outcome{Result: json.RawMessage(`{"content":[]}`)}, "done"); err != nil {
							t.Fatal(err)
						}
					}
				}
				from := s.path(id)
				if damage == nil {
					from = s.path(other)
				}
				b, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				if damage != nil {
					b = damage(b)
				}
				if err := os.WriteFile(s.path(id), b, 0o600); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir)
				if !ended && name == "a bit of the rest" { // the params: the call is not made again with others
					if params := s.Resume(id, nil); params != nil {
						t.Errorf("the params are %s", params)
					}
					return
				}
				got := get(t, s, c, id)
				if got.Status != tasks.Failed || got.Result != nil || !strings.Contains(string(got.Error), "outcome_unknown") ||
					!strings.Contains(string(got.Error), s.path(id)) {
					t.Errorf("the task: %+v, %s", got, got.Error)
				}
				if wasEnded := name == "a bit of the rest"; s.Has(id) != wasEnded || !s.Has(other) {
					t.Errorf("there is the task: %t, and the other one: %t", s.Has(id), s.Has(other))
				}
			})
		}
	}
}
