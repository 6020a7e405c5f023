package calls

import (
	"fmt"
	"os"
	"testing"
)

// This model is of what a server asks during calls. Two calls of one modern client are under way, and
// the server asks one question in each. It does not say in which: a question belongs to the call by
// which the client was told of it. The client answers by another line, which continues that call. The
// daemon writes down by which call it tells the client of a question, then tells it; what it writes
// down goes when the server has the answer. [Claim] decides what becomes of the calls.

// askRules is the law that the model follows.
type askRules struct {
	claim  func(Claim, Demand) Claim
	broken map[string]bool
}

// Where a client's call stands.
const (
	aUncalled  = iota
	aCalled    // its line is pending
	aAsked     // its line was answered with questions
	aContinued // the line that continues it, with the answers, is pending
	aDone      // the client has the result
)

// askWorld is a state of all.
type askWorld struct {
	line  [mCalls]int8         // as above
	has   [mCalls][mCalls]bool // by call: the questions of which it has told the client
	told  [mCalls]int8         // how often the client was told of a question
	given [mCalls]int8         // how often the server was given the answer
	asked [mCalls]bool         // the server has asked the question
	disk  [mCalls]int8         // the call by which the client was told of a question, from 1; 0 for none
	kills int8
	// The daemon.
	alive, back bool // back: the client's proxy has said what is pending
	claim       [mCalls]Claim
	with        [mCalls]int8 // as disk, in memory
	out         [mCalls]bool // the questions of the call are on their way to the client
	lost        [mCalls]bool // the call was given up
}

// pends reports whether a line of the client waits for the call.
func (s *askWorld) pends(n int) bool { return s.line[n] == aCalled || s.line[n] == aContinued }

// toAsk returns the questions of which a call may tell the client.
func (r *askRules) toAsk(s *askWorld, n int) (all []int) {
	oldest := -1
	for c := range s.claim {
		if s.claim[c] == Awaited && oldest < 0 {
			oldest = c
		}
	}
	for q := range s.asked {
		of := int(s.with[q]) - 1
		free := of < 0 || s.line[of] == aDone || r.broken["Own"] && s.claim[of] != Suspended
		if s.asked[q] && s.given[q] == 0 && (int(s.with[q]) == n+1 || free && n == oldest) {
			all = append(all, q)
		}
	}
	return all
}

// steps returns all states that may follow, and what leads to them.
func (r *askRules) steps(s askWorld, kills int8) (all []askWorld, names []string) {
	add := func(t askWorld, format string, args ...any) {
		all, names = append(all, t), append(names, fmt.Sprintf(format, args...))
	}
	for n := range s.line {
		t := s
		switch s.line[n] {
		case aUncalled:
			t.line[n] = aCalled
			if s.back {
				t.claim[n] = r.claim(s.claim[n], Ask)
			}
			add(t, "the client calls %d", n)
		case aAsked:
			t.line[n] = aContinued
			if s.back {
				t.claim[n] = r.claim(s.claim[n], Ask)
			}
			add(t, "the client continues %d", n)
		}
		if s.line[n] != aUncalled && !s.asked[n] {
			t := s
			t.asked[n] = true
			add(t, "the server asks %d", n)
		}
	}
	switch {
	case !s.alive:
		t := s
		t.alive, t.with = true, s.disk
		for q, n := range s.disk {
			if n > 0 && s.given[q] == 0 {
				t.claim[n-1] = r.claim(t.claim[n-1], Suspend)
			}
		}
		add(t, "a daemon starts")
		return all, names
	case !s.back:
		t := s
		t.back = true
		for n := range s.line {
			switch {
			case s.pends(n):
				t.claim[n] = r.claim(s.claim[n], Ask)
			case s.line[n] == aAsked:
				t.claim[n] = r.claim(s.claim[n], Confirm)
				t.lost[n] = !t.claim[n].Wanted()
			}
		}
		add(t, "the proxy resumes")
	default:
		for n := range s.line {
			r.call(s, n, add)
		}
	}
	if s.kills < kills {
		t := s
		t.alive, t.back, t.kills = false, false, s.kills+1
		t.claim, t.with, t.out = [mCalls]Claim{}, [mCalls]int8{}, [mCalls]bool{}
		add(t, "the daemon dies")
	}
	return all, names
}

// call adds what the daemon does about a call.
func (r *askRules) call(s askWorld, n int, add func(t askWorld, format string, args ...any)) {
	t := s
	answers := false // the client's line has some that the server does not have
	for q := range s.has[n] {
		answers = answers || s.has[n][q]
	}
	switch {
	case s.claim[n] == Suspended && s.out[n]:
		t.out[n] = false
		for q := range s.with {
			if int(s.with[q]) == n+1 && s.given[q] == 0 {
				t.has[n][q] = true
				t.told[q]++
			}
		}
		t.line[n] = aAsked
		add(t, "the client has the questions of %d", n)
	case s.claim[n] == Suspended && s.pends(n):
		t.out[n] = true
		add(t, "the questions of %d go to the client", n)
	case s.claim[n] == Awaited && answers:
		for q := range s.has[n] {
			if s.has[n][q] {
				t.given[q]++
				t.with[q], t.disk[q] = 0, 0
			}
		}
		t.has[n] = [mCalls]bool{}
		add(t, "the server has the answers of %d", n)
	case s.claim[n] == Awaited && s.given[n] > 0:
		t.line[n], t.claim[n] = aDone, r.claim(s.claim[n], Confirm)
		add(t, "the client has the result of %d", n)
	case s.claim[n] == Awaited:
		asks := r.toAsk(&s, n)
		if len(asks) == 0 {
			break
		}
		for _, q := range asks {
			if t.with[q] = int8(n + 1); !r.broken["RecordFirst"] {
				t.disk[q] = int8(n + 1)
			}
		}
		t.claim[n] = r.claim(s.claim[n], Suspend)
		add(t, "it is written down what %d asks", n)
	}
	if r.broken["RecordFirst"] && s.disk != s.with {
		t := s
		t.disk = s.with
		add(t, "it is written down at last what calls ask")
	}
}

// wrong returns what is wrong with a state, or "".
func (s *askWorld) wrong() string {
	for n := range s.line {
		switch {
		case s.told[n] > 1:
			return fmt.Sprintf("the client was told of question %d %d times", n, s.told[n])
		case s.given[n] > 1:
			return fmt.Sprintf("the server was given the answer to %d %d times", n, s.given[n])
		case s.lost[n]:
			return fmt.Sprintf("call %d was given up, and its client has its question", n)
		}
	}
	return ""
}

// explore walks all states. It returns the number of states, and the way to the first wrong one.
func (r *askRules) explore(kills int8) (states int, trace []string) {
	first := askWorld{alive: true, back: true}
	came := map[askWorld]struct {
		from askWorld
		name string
	}{first: {}}
	way := func(s askWorld, last string) []string {
		trace := []string{last}
		for ; s != first; s = came[s].from {
			trace = append([]string{came[s].name}, trace...)
		}
		return trace
	}
	for queue := []askWorld{first}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		next, names := r.steps(s, kills)
		for i, t := range next {
			if _, seen := came[t]; seen {
				continue
			}
			came[t] = struct {
				from askWorld
				name string
			}{s, names[i]}
			queue = append(queue, t)
			if wrong := t.wrong(); wrong != "" {
				return len(came), way(t, wrong)
			}
		}
		if s.kills == kills && len(next) == 0 && s.line != [mCalls]int8{aDone, aDone} {
			return len(came), way(s, "a call has no result")
		}
	}
	return len(came), nil
}

// TestAskModel checks that a client is told of each question once, by one call, that its answer goes to
// the server once, and that both calls come to their results.
func TestAskModel(t *testing.T) {
	kills := int8(2)
	if os.Getenv("HOLDLINE_LONG") != "" {
		kills = 4
	}
	r := askRules{claim: Claim.After}
	states, trace := r.explore(kills)
	for _, step := range trace {
		t.Error(step)
	}
	t.Logf("%d states", states)
	if states < 500 {
		t.Errorf("%d states: the model does not get far", states)
	}
}

// TestAskModelBroken breaks each rule in turn. The model must notice each time.
func TestAskModelBroken(t *testing.T) {
	for name, r := range map[string]askRules{
		"a question belongs to no call":       {claim: Claim.After, broken: map[string]bool{"Own": true}},
		"the client is told before the disk":  {claim: Claim.After, broken: map[string]bool{"RecordFirst": true}},
		"a daemon suspends no earlier call":   {claim: claimBut(Suspend, Unclaimed, Unclaimed)},
		"the client's confirmation ends it":   {claim: claimBut(Confirm, Suspended, Unwanted)},
		"a line of the client continues none": {claim: claimBut(Ask, Suspended, Suspended)},
	} {
		t.Run(name, func(t *testing.T) {
			states, trace := r.explore(2)
			if trace == nil {
				t.Fatalf("nothing wrong in %d states", states)
			}
			t.Logf("%d states, %d steps: %s", states, len(trace), trace[len(trace)-1])
		})
	}
}
