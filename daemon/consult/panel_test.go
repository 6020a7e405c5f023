package consult

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// prompts returns what the programs of the world were asked, in the order of their starts.
func (w *world) prompts() (all []string) {
	w.starter.mu.Lock()
	defer w.starter.mu.Unlock()
	for _, p := range w.starter.procs {
		all = append(all, p.params.Prompt)
	}
	return all
}

// ofEngines returns a program that does what programs has for the name of its engine.
func ofEngines(programs map[string]func(*fakeProcess)) func(*fakeProcess) {
	return func(p *fakeProcess) { programs[p.Name](p) }
}

// fails is a program that says something and then ends without an answer.
func fails(p *fakeProcess) {
	<-p.in
	p.say("start", "text half a word")
	p.exit(3)
}

// TestPanel checks that several engines are asked the same at the same time, that their answers
// come side by side, each with an id of its own, and that a judge compares them without their
// names. A call that is repeated finds the same panel.
func TestPanel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Second))
		call := tool.Call{Caller: w.caller("a"), N: 1}
		args := map[string]any{"prompt": "why", "engines": []string{"claude/opus", "codex"}, "judge": "claude/haiku"}
		res, err := w.call(t.Context(), "consult", call, args)
		v, _ := res.Value.(answer.View)
		if err != nil || res.Fault != nil || v.State != answer.Done || *v.Answered != 2 || len(v.Answers) != 2 ||
			v.Judge == nil || v.Engine != panelName || *v.TotalCostUSD != 1.5 {
			t.Fatalf("%v %v %+v", err, res.Fault, v)
		}
		for i, want := range []answer.Part{
			{Label: "A", Engine: "claude/opus", State: answer.Done, Answer: "why"},
			{Label: "B", Engine: "codex", State: answer.Done, Answer: "why"},
		} {
			got := v.Answers[i]
			if got.Label != want.Label || got.Engine != want.Engine || got.State != want.State || got.Answer != want.Answer {
				t.Errorf("%+v, want %+v", got, want)
			}
			if a, err := w.Show(got.ID); err != nil || a.Text != "why" || a.Panel != v.ID || a.Label != want.Label {
				t.Errorf("by its own id: %v %+v", err, a)
			}
		}
		for _, want := range []string{
			"panel " + v.ID + ": 2 of 2 answered, ", "=== A claude/opus, done, ", "=== B codex, done, ", "=== judge claude/haiku, done, ",
		} {
			if !strings.Contains(res.Text, want) {
				t.Errorf("no %q in\n%s", want, res.Text)
			}
		}
		all := w.prompts()
		if len(all) != 3 || all[0] != "why" || all[1] != "why" || !strings.Contains(all[2], "why") ||
			strings.Contains(all[2], "codex") || strings.Count(all[2], "<answer by=") != 2 {
			t.Errorf("the programs were asked %q", all)
		}
		if again, err := w.call(t.Context(), "consult", call, args); err != nil || again.Text != res.Text || len(w.prompts()) != 3 {
			t.Errorf("repeated: %v %q", err, again.Text)
		}
		w.finish()
	})
}

// TestPanel_OneFails checks that a panel has answered if one of its members has, that the other's
// failure stands beside it, and that there is nothing to judge then. If none has answered the
// panel has failed.
func TestPanel_OneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ofEngines(map[string]func(*fakeProcess){Claude: answers(0), Codex: fails}))
		ask := func(n int64, engines ...string) (tool.Result, answer.View) {
			t.Helper()
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n},
				map[string]any{"prompt": "why", "engines": engines, "judge": "claude"})
			if err != nil {
				t.Fatal(err)
			}
			v, _ := res.Value.(answer.View)
			return res, v
		}
		res, v := ask(1, "codex", "claude")
		if *v.Answered != 1 || v.State != answer.Done || v.Judge != nil || v.Answers[0].Code != string(fault.ProcessFailure) ||
			v.Answers[0].Answer != "half a word" || v.Answers[1].Answer != "why" {
			t.Errorf("%+v", v)
		}
		if !strings.Contains(res.Text, "judge was not asked") {
			t.Errorf("nothing about the judge in %q", res.Text)
		}
		if res, _ = ask(2, "codex", "codex"); res.Fault == nil || res.Fault.Fault.Code != fault.DownstreamFailure ||
			strings.Count(res.Fault.Fault.Detail, "codex: process_failure") != 2 {
			t.Errorf("none has answered: %+v", res)
		}
		w.finish()
	})
}

// TestPanel_Refused checks that a member that cannot be asked refuses the whole panel by its
// name, before anything runs or is written.
func TestPanel_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(0))
		w.codex.check = fault.New(fault.SpawnFailure, fault.Engine, operation, "no codex").WithReason(fault.NotInstalled)
		for name, args := range map[string]map[string]any{
			"engines: codex: no codex": {"engines": []string{"claude", "codex"}},
			"engines: gpt":             {"engines": []string{"claude", "gpt"}},
			"neither engine":           {"engines": []string{"claude", "claude"}, "model": "opus"},
			"judge: it judges":         {"judge": "claude"},
			`such as ["claude/opus","codex"]; the answers come side by side (got an array of 1)`: {
				"engines": []string{"claude"},
			},
		} {
			args["prompt"] = "x"
			_, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, args)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v, want %q", err, name)
			}
		}
		if left, _ := os.ReadDir(w.dir); len(left) > 0 || len(w.prompts()) > 0 {
			t.Errorf("left %v, asked %q", left, w.prompts())
		}
		w.finish()
	})
}

// TestPanel_Cancelled checks that the end of a panel ends its members and waits for them, and
// that the end of one member leaves the others alone.
func TestPanel_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ofEngines(map[string]func(*fakeProcess){Claude: hangs(true), Codex: answers(time.Second)}))
		args := map[string]any{"prompt": "x", "engines": []string{"claude", "codex", "claude"}, "judge": "codex", "wait_s": 0}
		if res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, args); err != nil ||
			!strings.Contains(res.Text, "=== B codex") {
			t.Fatalf("%v %q", err, res.Text)
		}
		time.Sleep(2 * time.Second)
		if a, err := w.Cancel(t.Context(), jobdir.MemberID("hash-a", 1, 0)); err != nil || a.State != answer.Cancelled {
			t.Errorf("one member: %v %+v", err, a)
		}
		id := jobdir.ID("hash-a", 1)
		if a, err := w.Show(id); err != nil || a.State != answer.Running || *a.Answered != 1 {
			t.Errorf("the panel has not ended: %v %+v", err, a)
		}
		a, err := w.Cancel(t.Context(), id)
		if err != nil || a.State != answer.Cancelled || *a.Answered != 1 || a.Answers[2].State != answer.Cancelled ||
			a.Answers[2].Answer != "so far" || len(w.prompts()) != 3 {
			t.Errorf("%v %+v, asked %q", err, a, w.prompts())
		}
		w.finish()
	})
}

// TestPanel_LeftByItsClient checks that a client that leaves ends the panel and its members.
func TestPanel_LeftByItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hangs(true))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := w.call(ctx, "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "engines": []string{"claude", "codex"}})
		if err == nil {
			t.Error("an answer")
		}
		a, err := w.Wait(t.Context(), jobdir.ID("hash-a", 1), nil)
		if err != nil || a.State != answer.Cancelled || *a.Answered != 0 || len(a.Answers) != 2 {
			t.Errorf("%v %+v", err, a)
		}
		w.finish()
	})
}

// TestPanel_NextDaemon checks that a daemon that finds a panel makes the members that are
// missing, runs none twice, and asks the judge.
func TestPanel_NextDaemon(t *testing.T) {
	for name, lose := range map[string][]int{"no member written": {0, 1, 2}, "one member written": {1, 2}, "all written": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := defaults()
				cfg.Consult.MaxConcurrent = 1
				with := func(o *Options) { o.Config = cfg }
				free := make(chan struct{})
				w := newWorld(t, func(p *fakeProcess) {
					<-p.in
					p.say("start")
					<-free
					p.exit(0)
				}, with)
				args := map[string]any{
					"prompt": "why", "engines": []string{"claude", "codex", "claude/opus"}, "judge": "codex", "wait_s": 0,
				}
				w.block()
				if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, args); err != nil {
					t.Fatal(err)
				}
				if err := w.Detach(t.Context()); err != nil {
					t.Fatal(err)
				}
				close(free)
				w.starter.wg.Wait()
				for _, i := range lose {
					if err := os.RemoveAll(filepath.Join(w.dir, jobdir.MemberID("hash-a", 1, i))); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.RemoveAll(filepath.Join(w.dir, jobdir.ID("hash-blocks", 1))); err != nil {
					t.Fatal(err)
				}
				w.starter.program, w.starter.procs = answers(time.Second), nil
				var err error
				if w.Manager, err = New(w.opt); err != nil {
					t.Fatal(err)
				}
				a, err := w.Wait(t.Context(), jobdir.ID("hash-a", 1), nil)
				if err != nil || a.State != answer.Done || *a.Answered != 3 || a.Judge == nil {
					t.Errorf("%v %+v", err, a)
				}
				if all := w.prompts(); len(all) != 4 {
					t.Errorf("the programs were asked %q", all)
				}
				w.finish()
			})
		})
	}
}

// block takes the only slot with a consult of another identity.
func (w *world) block() {
	w.t.Helper()
	if _, err := w.call(w.t.Context(), "consult", tool.Call{Caller: w.caller("blocks"), N: 1},
		map[string]any{"prompt": "x", "wait_s": 0}); err != nil {
		w.t.Fatal(err)
	}
}

// TestPanel_Budget checks that members share what is left of a budget, the judge too, that two
// panels at once do not both get it, and that a panel which does not fit the day's consults
// starts nothing.
func TestPanel_Budget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Identities = map[string]config.Identity{
			"a": {Budget: config.Budget{MaxUSDPerDay: 6}}, "b": {Budget: config.Budget{ConsultsPerDay: 2}},
		}
		w := newWorld(t, answers(time.Second), func(o *Options) { o.Config = cfg })
		w.codex.unfit = func(r engine.Request) error {
			if r.MaxUSD > 0 {
				return engine.Invalid("it reports no cost")
			}
			return nil
		}
		args := map[string]any{"prompt": "x", "engines": []string{"claude", "codex"}, "judge": "claude", "wait_s": 0}
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, args); err != nil {
			t.Fatal(err)
		}
		panel, err := jobdir.ReadRecord(filepath.Join(w.dir, jobdir.ID("hash-a", 1)))
		if err != nil || len(panel.Members) != 3 || panel.Members[0].ReservedUSD != 2 || panel.Members[1].ReservedUSD != 0 ||
			panel.Members[2].ReservedUSD != 2 || len(panel.Notes) != 1 {
			t.Errorf("%v %s", err, asJSON(panel))
		}
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 2}, args); err != nil {
			t.Fatal(err)
		}
		panel, err = jobdir.ReadRecord(filepath.Join(w.dir, jobdir.ID("hash-a", 2)))
		if err != nil || panel.Members[0].ReservedUSD > 0.67 || panel.Members[0].ReservedUSD == 0 {
			t.Errorf("the second panel: %v %s", err, asJSON(panel))
		}
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("b"), N: 1}, args); code(tool.Result{}, err) !=
			fault.BudgetExceeded {
			t.Errorf("more than the day has: %v", err)
		}
		if _, err := os.Stat(filepath.Join(w.dir, jobdir.ID("hash-b", 1))); err == nil {
			t.Error("the refused panel is on disk")
		}
		for _, n := range []int64{1, 2} {
			if _, err := w.Wait(t.Context(), jobdir.ID("hash-a", n), nil); err != nil {
				t.Error(err)
			}
		}
		if s := w.Spendings(); len(s) != 1 || s[0].Consults != 6 || s[0].CostUSD != 3 {
			t.Errorf("spent %+v", s)
		}
		w.finish()
	})
}

// TestPanel_ParallelNearBudget asks for two panels at the same time. They reserve no more than there
// is: where there is room for one, the other is refused by name and leaves nothing.
func TestPanel_ParallelNearBudget(t *testing.T) {
	for each, fit := range map[float64]int{0.5: 2, 1: 1} {
		synctest.Test(t, func(t *testing.T) {
			cfg := defaults()
			cfg.Identities = map[string]config.Identity{"a": {Budget: config.Budget{MaxUSDPerDay: 3}}}
			w := newWorld(t, answers(time.Second), func(o *Options) { o.Config = cfg })
			w.engine.slow = time.Second // both pass the first look at the budget
			args := map[string]any{"prompt": "x", "engines": []string{"claude", "claude"}, "judge": "claude", "max_usd": each}
			var refused [2]fault.Code
			var calls sync.WaitGroup
			for i := range refused {
				calls.Go(func() {
					res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: int64(i + 1)}, args)
					refused[i] = code(res, err)
				})
			}
			calls.Wait()
			ran, reserved := 0, 0.0
			for i, c := range refused {
				panel, err := jobdir.ReadRecord(filepath.Join(w.dir, jobdir.ID("hash-a", int64(i+1))))
				if (c == "") != (err == nil) || c != "" && c != fault.BudgetExceeded {
					t.Errorf("panel %d: %q, and on disk: %v", i+1, c, err)
				}
				if c == "" {
					ran++
				}
				for k := range panel.Members {
					reserved += panel.Members[k].ReservedUSD
				}
			}
			if ran != fit || reserved != 3 || len(w.prompts()) != 3*fit {
				t.Errorf("at $%v each: %q, reserved $%v, asked %d times; want %d to run", each, refused, reserved,
					len(w.prompts()), fit)
			}
			w.finish()
		})
	}
}

// asJSON returns v as text, for messages.
func asJSON(v any) string {
	b, _ := json.Marshal(v) // a record can be encoded
	return string(b)
}

// TestPanel_LongAnswers checks that the answer of a large panel stays within what clients take,
// has a part of each answer, and names how the rest is fetched.
func TestPanel_LongAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(p *fakeProcess) {
			<-p.in
			p.say("start", "answer "+strings.Repeat("long ", 200_000))
			p.exit(0)
		})
		engines := []string{"claude", "claude", "claude", "claude", "claude", "claude", "claude", "claude"}
		for n, detail := range []string{"concise", "full"} {
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: int64(n + 1)},
				map[string]any{"prompt": "x", "engines": engines, "detail": detail})
			if err != nil || res.Fault != nil {
				t.Fatal(err, res.Fault)
			}
			v := res.Value.(answer.View)
			value := asJSON(v)
			if len(res.Text) > tool.MaxText || len(value) > tool.MaxText {
				t.Errorf("%d characters of text, %d of JSON", len(res.Text), len(value))
			}
			for _, p := range v.Answers {
				if len(p.Answer) < 3000 || p.NextOffset != len(p.Answer) || p.Length != 1_000_000 ||
					!strings.Contains(res.Text, p.ID) {
					t.Errorf("%s: %d of %d, rest at %d", p.Label, len(p.Answer), p.Length, p.NextOffset)
				}
			}
		}
		w.finish()
	})
}

// TestPanel_Limit checks that a limit in dollars holds the members that report their cost, and
// that a note names the others.
func TestPanel_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(0))
		w.codex.unfit = func(r engine.Request) error {
			if r.MaxUSD > 0 {
				return engine.Invalid("it reports no cost")
			}
			return nil
		}
		res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "engines": []string{"claude", "codex"}, "max_usd": 0.5, "detail": "full"})
		if err != nil {
			t.Fatal(err)
		}
		if v := res.Value.(answer.View); len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "codex") {
			t.Errorf("notes %q", v.Notes)
		}
		for i, want := range []float64{0.5, 0} {
			if a, err := w.Show(jobdir.MemberID("hash-a", 1, i)); err != nil || a.MaxUSD != want {
				t.Errorf("member %d: %v, at most $%v", i, err, a.MaxUSD)
			}
		}
		w.finish()
	})
}

// TestPanel_ShortLivedDaemon checks that a daemon which stops before it has made the members of
// a panel leaves the panel to the next one.
func TestPanel_ShortLivedDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Consult.MaxConcurrent = 1
		free := make(chan struct{})
		w := newWorld(t, func(p *fakeProcess) { <-free }, func(o *Options) { o.Config = cfg })
		w.block()
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "engines": []string{"claude", "codex"}, "wait_s": 0}); err != nil {
			t.Fatal(err)
		}
		if err := w.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(free)
		w.starter.wg.Wait()
		for _, id := range []string{
			jobdir.MemberID("hash-a", 1, 0), jobdir.MemberID("hash-a", 1, 1), jobdir.ID("hash-blocks", 1),
		} {
			if err := os.RemoveAll(filepath.Join(w.dir, id)); err != nil {
				t.Fatal(err)
			}
		}
		// A program that one of these daemons starts does nothing: the stand-in for processes
		// tells the next daemon of none, which starts it again.
		gone := make(chan struct{})
		w.starter.program = func(*fakeProcess) { <-gone }
		var err error
		for range 3 {
			if w.Manager, err = New(w.opt); err != nil {
				t.Fatal(err)
			}
			if err := w.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(gone)
		w.starter.wg.Wait()
		w.starter.program = answers(0)
		if w.Manager, err = New(w.opt); err != nil {
			t.Fatal(err)
		}
		if a, err := w.Wait(t.Context(), jobdir.ID("hash-a", 1), nil); err != nil || *a.Answered != 2 {
			t.Errorf("%v %+v", err, a)
		}
		w.finish()
	})
}

// TestPanel_Pruned checks that all answers of a panel are kept until its client has its own.
func TestPanel_Pruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Consult.Keep.Count = 1
		w := newWorld(t, answers(0), func(o *Options) { o.Config = cfg })
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
			map[string]any{"prompt": "x", "engines": []string{"claude", "codex"}}); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if _, err := w.Show(jobdir.MemberID("hash-a", 1, i)); err != nil {
				t.Error(err)
			}
		}
		w.Confirmed("hash-a", 1)
		if _, _, kept := w.Counts(); kept != 1 {
			t.Errorf("%d answers are kept", kept)
		}
		w.finish()
	})
}

// TestPanel_LongFailures checks that the answer of a large panel of which most have failed, with
// much to tell, stays within what clients take.
func TestPanel_LongFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ofEngines(map[string]func(*fakeProcess){
			Claude: answers(0),
			Codex: func(p *fakeProcess) {
				<-p.in
				p.say("start", "text "+strings.Repeat("\"ü\\\n", 200_000))
				p.exit(3)
			},
		}))
		engines := []string{"claude", "codex", "codex", "codex", "codex", "codex", "codex", "codex"}
		for n, detail := range []string{"concise", "full"} {
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: int64(n + 1)},
				map[string]any{"prompt": strings.Repeat("why ", 50_000), "engines": engines, "detail": detail})
			if err != nil || res.Fault != nil {
				t.Fatal(err, res.Fault)
			}
			text, value := utf8.RuneCountInString(res.Text), utf8.RuneCountInString(asJSON(res.Value))
			if text > tool.MaxText || value > tool.MaxText {
				t.Errorf("%s: %d characters of text, %d of JSON", detail, text, value)
			}
		}
		w.finish()
	})
}

// TestPanel_WaitingJudge checks that a judge which waits for the answers of the others can be
// neither told anything nor cancelled by itself, and that both say so at once. So does what is said
// to the panel, with the ids of its members.
func TestPanel_WaitingJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, answers(time.Hour))
		if _, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{
			"prompt": "x", "engines": []string{"claude", "codex"}, "judge": "claude", "wait_s": 0,
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		judge, begun := jobdir.MemberID("hash-a", 1, 2), time.Now()
		for n, c := range []struct {
			tool string
			args map[string]any
			want string
		}{
			{"consult_say", map[string]any{"consult_id": judge, "text": "x"}, "waits for the answers"},
			{"consult_control", map[string]any{"consult_id": judge, "action": "cancel"}, "waits for the answers"},
			{"consult_say", map[string]any{"consult_id": jobdir.ID("hash-a", 1), "text": "x"}, judge + " (judge claude)"},
		} {
			_, err := w.call(t.Context(), c.tool, tool.Call{Caller: w.caller("a"), N: int64(n) + 2}, c.args)
			if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.InvalidInput ||
				!strings.Contains(f.Fault.Detail, c.want) {
				t.Errorf("%s: %v", c.tool, err)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %v", took)
		}
		w.finish()
	})
}
