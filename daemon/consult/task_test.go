package consult

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/tasks"
	"holdline/daemon/tool"
)

// TestTaskKept checks that a task is one consult however often its call comes, that it is kept
// until its client has it although no answers are, and no longer than its time.
func TestTaskKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Minute), func(o *Options) {
			cfg := *o.Config
			cfg.Consult.Keep = config.Keep{Count: 0, Age: 0}
			o.Config = &cfg
		})
		ask := func(n int64) string {
			t.Helper()
			c := tool.Call{Caller: w.caller("a"), N: n, Task: true, Render: tool.JSON}
			res, err := w.call(t.Context(), "consult", c, map[string]any{"prompt": "x", "wait_s": 60})
			id := tasks.ID(c.Caller.Session, n)
			begin := `{"resultType":"task","taskId":"` + id + `","status":"working",`
			if err != nil || !strings.HasPrefix(string(res.Task), begin) {
				t.Fatalf("the call returns %s, %v", res.Task, err)
			}
			return id
		}
		get := func(who, id string, fetched bool) *tasks.Task {
			t.Helper()
			task, err := w.Task(t.Context(), w.who(who), id, 0, fetched)
			if err != nil {
				t.Fatal(err)
			}
			return task
		}
		first, again, second := ask(1), ask(1), ask(2)
		if first != again || first == second || len(w.List(nil)) != 2 {
			t.Errorf("tasks %s, %s, %s of %d consults", first, again, second, len(w.List(nil)))
		}
		if get("b", first, true) != nil {
			t.Error("another identity sees the task")
		}
		w.Confirmed(w.caller("a").Session, 1)
		w.Confirmed(w.caller("a").Session, 2)
		time.Sleep(5 * time.Minute)
		for range 2 { // a notification is no fetch
			if got := get("a", first, false); got == nil || got.Status != tasks.Completed ||
				!strings.Contains(string(got.Result), `"structuredContent"`) {
				t.Fatalf("the task ends as %+v", got)
			}
		}
		if get("a", first, true) == nil || get("a", first, true) != nil {
			t.Error("a task that its client has is kept although no answers are, or was not kept until then")
		}
		time.Sleep(50 * time.Minute)
		if get("a", second, false) == nil {
			t.Error("the other task is gone before its time")
		}
		time.Sleep(time.Hour)
		if get("a", second, false) != nil {
			t.Error("the other task is there after its time")
		}
		w.finish()
	})
}
