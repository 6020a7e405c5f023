package consult

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// spends makes a consult of the fake program, each of which costs 50 cents, and returns its
// fault.
func (w *world) spends(session, identity string, n int64, args map[string]any) (*fault.Record, tool.Result) {
	w.t.Helper()
	if args == nil {
		args = map[string]any{}
	}
	args["prompt"] = "x"
	c := w.caller(identity)
	c.Session = session
	res, err := w.call(w.t.Context(), "consult", tool.Call{Caller: c, N: n}, args)
	f, _ := errors.AsType[*fault.Record](err)
	return f, res
}

// TestBudgets checks that a run may cost what is left of the smallest budget, and that no
// run starts once a budget is used up. Removed answers count, the next daemon counts on,
// and a new day begins at zero.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Consult.Keep.Count, cfg.Consult.MaxUSD = 1, 5
		cfg.Identities = map[string]config.Identity{
			"a": {Budget: config.Budget{MaxUSDPerDay: 1.2, MaxUSDPerSession: 0.7}},
			"b": {Budget: config.Budget{ConsultsPerDay: 2}},
		}
		with := func(o *Options) { o.Config, o.Return = cfg, time.Second }
		w := newWorld(t, answers(0), with)
		caps := func(want float64) {
			t.Helper()
			if got := w.engine.last().MaxUSD; got < want-0.001 || got > want+0.001 {
				t.Errorf("a run may cost %v, want %v", got, want)
			}
		}
		done := func(session string, n int64) {
			t.Helper()
			w.Confirmed(session, n)
		}
		if f, _ := w.spends("one", "a", 1, map[string]any{"max_usd": 0.3}); f != nil {
			t.Fatal(f)
		}
		caps(0.3)
		done("one", 1)
		if f, _ := w.spends("one", "a", 2, nil); f != nil {
			t.Fatal(f)
		}
		caps(0.2) // of the session
		done("one", 2)
		f, _ := w.spends("one", "a", 3, nil)
		if f == nil || f.Fault.Code != fault.BudgetExceeded || f.Limit == nil || f.Limit.Value != 70 ||
			f.Limit.Spent != 100 || f.RetryAfterMS != nil {
			t.Errorf("the session's: %+v", f)
		}
		// The next daemon knows all costs, though only one answer is kept.
		w.finish()
		var err error
		if w.Manager, err = New(w.opt); err != nil {
			t.Fatal(err)
		}
		if f, _ := w.spends("two", "a", 1, nil); f != nil {
			t.Fatal(f)
		}
		caps(0.2) // of the day
		if a, err := w.Show(jobdir.ID("two", 1)); err != nil || a.SessionUSD != 0.5 || a.TodayUSD != 1.5 {
			t.Errorf("spent in the session and today: %+v, %v", a, err)
		}
		done("two", 1)
		f, _ = w.spends("two", "a", 2, nil)
		if f == nil || f.Fault.Code != fault.BudgetExceeded || f.Limit == nil || f.Limit.Value != 120 ||
			f.Limit.Spent != 150 || f.RetryAfterMS == nil {
			t.Errorf("the day's: %+v", f)
		}
		// An identity without a budget of its own has the limit of each consult.
		if f, _ := w.spends("three", "c", 1, nil); f != nil {
			t.Fatal(f)
		}
		caps(5)
		for n := range int64(3) {
			f, _ := w.spends("four", "b", n+1, nil)
			if got := f != nil && f.Fault.Code == fault.BudgetExceeded; got != (n == 2) {
				t.Errorf("consult %d: %v", n+1, f)
			}
		}
		list := w.Spendings()
		if len(list) != 3 || list[0].Identity != "a" || list[0].CostUSD != 1.5 || list[0].Consults != 3 ||
			list[1].Consults != 2 || list[0].MaxUSD != 1.2 {
			t.Errorf("spent %+v", list)
		}
		time.Sleep(24 * time.Hour)
		if f, _ := w.spends("five", "a", 1, nil); f != nil {
			t.Errorf("the next day: %v", f)
		}
		caps(0.7)
		w.finish()
	})
}

// TestParallelNearBudget_OneIsRefusedAndOneRuns asks for two consults at the same time where a
// budget has room for one. That one runs, and the other takes nothing from the budget.
func TestParallelNearBudget_OneIsRefusedAndOneRuns(t *testing.T) {
	for name, b := range map[string]config.Budget{
		"number": {ConsultsPerDay: 1}, "dollars": {MaxUSDPerDay: 0.5}, "session": {MaxUSDPerSession: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := defaults()
				cfg.Identities = map[string]config.Identity{"a": {Budget: b}}
				w := newWorld(t, answers(time.Minute), func(o *Options) { o.Config = cfg })
				w.engine.slow = time.Second // both pass the first look at the budget
				var refused [2]bool
				var calls sync.WaitGroup
				for i := range refused {
					calls.Go(func() {
						f, res := w.spends("one", "a", int64(i+1), map[string]any{"max_usd": 0.5})
						f = cmp.Or(f, res.Fault)
						if refused[i] = f != nil; refused[i] && f.Fault.Code != fault.BudgetExceeded {
							t.Errorf("got %v", f)
						}
					})
				}
				calls.Wait()
				list := w.Spendings()
				if refused[0] == refused[1] || len(list) != 1 || list[0].Consults != 1 || list[0].CostUSD != 0.5 {
					t.Errorf("refused %v, spent %+v; want one of each", refused, list)
				}
				w.finish()
			})
		})
	}
}

// TestReserved checks that a consult which waits keeps its dollars, however many are asked for
// behind it, and gives back what it did not spend.
func TestReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Consult.MaxConcurrent = 1
		cfg.Identities = map[string]config.Identity{"a": {Budget: config.Budget{MaxUSDPerDay: 1.5}}}
		w := newWorld(t, answers(time.Minute), func(o *Options) { o.Config = cfg })
		ask := func(n int64, usd float64) *fault.Record {
			f, _ := w.spends("one", "a", n, map[string]any{"max_usd": usd, "wait_s": 0})
			return f
		}
		for n, usd := range []float64{0.6, 0.6, 0.6} { // the last one gets 0.3
			if f := ask(int64(n+1), usd); f != nil {
				t.Fatalf("consult %d: %v", n+1, f)
			}
		}
		if f := ask(4, 0.1); f == nil || f.Fault.Code != fault.BudgetExceeded {
			t.Errorf("all is reserved: got %v", f)
		}
		if list := w.Spendings(); len(list) != 1 || list[0].CostUSD != 0 {
			t.Errorf("spent %+v before any has ended", list)
		}
		for n, want := range []float64{0.6, 0.6, 0.3} {
			if a, err := w.Wait(t.Context(), jobdir.ID("one", int64(n+1)), nil); err != nil || a.Fault != nil ||
				a.MaxUSD < want-0.001 || a.MaxUSD > want+0.001 {
				t.Errorf("consult %d: %v, %+v; want that it may cost %v", n+1, err, a, want)
			}
		}
		w.finish()
	})
}

// TestBudgetUntold checks that an engine that does not report its cost gets no limit in
// dollars, and that its runs are counted all the same.
func TestBudgetUntold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Consult.MaxUSD, cfg.Consult.MaxTurns, cfg.Consult.Model = 5, 3, "opus"
		cfg.Identities = map[string]config.Identity{"a": {Budget: config.Budget{MaxUSDPerDay: 1, ConsultsPerDay: 1}}}
		w := newWorld(t, answers(0), func(o *Options) { o.Config = cfg })
		w.codex.unfit = func(req engine.Request) error {
			if req.MaxUSD > 0 || req.MaxTurns > 0 {
				return engine.Invalid("max_usd: no")
			}
			return nil
		}
		if f, _ := w.spends("one", "a", 1, map[string]any{"engine": "codex", "max_usd": 1}); f == nil ||
			f.Fault.Code != fault.InvalidInput {
			t.Errorf("asked for: %v", f)
		}
		if f, _ := w.spends("one", "a", 2, map[string]any{"engine": "codex"}); f != nil {
			t.Fatal(f)
		}
		if req := w.codex.last(); req.MaxUSD != 0 || req.MaxTurns != 0 || req.Model != "" {
			t.Errorf("%+v", req)
		}
		if f, _ := w.spends("one", "a", 3, map[string]any{"engine": "codex"}); f == nil ||
			f.Fault.Code != fault.BudgetExceeded {
			t.Errorf("a second one: %v", f)
		}
		w.finish()
	})
}

// TestRemove checks that an answer is removed on request, unless its client may still fetch
// it, and that its cost stays counted.
func TestRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Minute))
		if f, _ := w.spends("one", "a", 1, map[string]any{"wait_s": 0}); f != nil {
			t.Fatal(f)
		}
		id := jobdir.ID("one", 1)
		refused := func(what string, want fault.Code) {
			t.Helper()
			err := w.Remove(id)
			if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != want {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("running", fault.InvalidInput)
		if _, err := w.Wait(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
		refused("owed", fault.Denied)
		w.Confirmed("one", 1)
		synctest.Wait()
		if err := w.Remove(id); err != nil {
			t.Fatal(err)
		}
		refused("removed", fault.InvalidInput)
		if _, err := os.Stat(filepath.Join(w.dir, id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory: %v", err)
		}
		if list := w.Spendings(); len(list) != 1 || list[0].CostUSD != 0.5 {
			t.Errorf("spent %+v", list)
		}
		w.finish()
	})
}

// TestAudit checks that each ended consult has one line in the audit log, without a word of
// its prompt or answer, also if the daemon died before it had written the line.
func TestAudit(t *testing.T) {
	var told []answer.Audit
	w := newWorld(t, answers(0), func(o *Options) { o.Audit = func(a answer.Audit) { told = append(told, a) } })
	if f, _ := w.spends("one", "a", 1, nil); f != nil {
		t.Fatal(f)
	}
	w.finish()
	if len(told) != 1 {
		t.Fatalf("told %+v", told)
	}
	a := told[0]
	const sum = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" // of "x"
	if a.ID != jobdir.ID("one", 1) || a.PromptSHA256 != sum || a.PromptBytes != 1 || len(a.Argv) != 1 ||
		a.State != answer.Done || a.CostUSD == nil ||
		*a.CostUSD != 0.5 || a.Engine != Claude || a.EngineVersion != "1.2.3" || a.Level != "read" ||
		a.Caller != "one" || a.Session != "S" || a.Exit == "" {
		t.Errorf("told %+v", a)
	}
	// A daemon that died before it had written the line has left what it removes
	// afterwards.
	if err := os.Mkdir(filepath.Join(w.dir, a.ID, jobdir.DirTemp), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := New(w.opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 2 || told[1].ID != a.ID || told[1].PromptSHA256 != sum || len(told[1].Argv) != 1 {
		t.Errorf("told again %+v", told[1:])
	}
}

// TestLedgerDamaged_ConsultsWithABudgetWait checks that a daemon which finds both files of costs damaged names one,
// refuses consults that have a budget until midnight or until the file is removed, also after a restart, and
// makes the others.
func TestLedgerDamaged_ConsultsWithABudgetWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Identities = map[string]config.Identity{"a": {Budget: config.Budget{MaxUSDPerDay: 9}}}
		w := newWorld(t, answers(0), func(o *Options) { o.Config, o.Return = cfg, time.Second })
		next := func() {
			t.Helper()
			w.finish()
			var err error
			if w.Manager, err = New(w.opt); err != nil {
				t.Fatal(err)
			}
		}
		n := int64(0)
		refused := func(when string, want bool) {
			t.Helper()
			n++
			f, _ := w.spends("one", "a", n, nil)
			if got := f != nil && f.Fault.Code == fault.BudgetExceeded; got != want || f != nil && !got {
				t.Errorf("%s: %v", when, f)
			}
			if named := w.CostsLost() == w.opt.Ledger; named != want {
				t.Errorf("%s: named is %q", when, w.CostsLost())
			}
		}
		damage := func() {
			t.Helper()
			for _, file := range []string{w.opt.Ledger, w.opt.Ledger + ".copy"} {
				if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			next()
		}
		damage()
		refused("damaged", true)
		if f, _ := w.spends("two", "b", 1, nil); f != nil {
			t.Errorf("a consult without a budget: %v", f)
		}
		next()
		refused("after a restart", true)
		if err := os.Remove(w.opt.Ledger); err != nil {
			t.Fatal(err)
		}
		refused("the file is removed", false)
		damage()
		refused("damaged again", true)
		time.Sleep(24 * time.Hour)
		refused("the next day", false)
		w.finish()
	})
}
