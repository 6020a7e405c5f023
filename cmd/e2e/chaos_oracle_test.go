package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// history is all that was seen of a run: what the clients sent and received, which
// processes were killed, and what the children noted. Times are since its beginning.
type history struct {
	Sessions []*sessionLog
	Kills    []kill
	Ledger   []note
}

// sessionLog is one client's view of one proxy's life.
type sessionLog struct {
	Name     string
	Identity string
	Era      string
	Events   []event
	End      sessionEnd
	How      string // how a proxy ended that should not have ended
}

// sessionEnd says how a session ended.
type sessionEnd string

const (
	sessionLeft   sessionEnd = "left"   // in order, with no answer due
	sessionHurry  sessionEnd = "hurry"  // end of input with answers still due
	sessionKilled sessionEnd = "killed" // its proxy was killed
	sessionLost   sessionEnd = "lost"   // its proxy ended by itself
)

// eventKind says what happened.
type eventKind string

const (
	evSent      eventKind = "sent"
	evCancelled eventKind = "cancelled" // the client cancelled a request
	evAnswer    eventKind = "answer"
	evProgress  eventKind = "progress"
	evAsked     eventKind = "asked" // a request of a server
	evLeft      eventKind = "left"  // the client has closed its side
)

// Operations of the clients.
const (
	opHandshake = "handshake"
	opHealth    = "health"
	opList      = "list"
	opConsult   = "consult"    // the client waits for its answer
	opBack      = "background" // only begun
	opResult    = "result"     // of a consult in the background
	opControl   = "control"    // its cancellation
	opEffect    = "effect"
	opLook      = "look"
	opBig       = "big"
	opAsk       = "ask"
	opRelay     = "relay"   // an ask that the client itself answers
	opHostile   = "hostile" // a call of a server that misbehaves
)

// event is one thing that a client did or saw.
type event struct {
	At   time.Duration
	Kind eventKind
	ID   string // JSON-RPC id as it was written; for progress its token

	// Of a request.
	Op    string
	Token string        // names the effect; for a result or control that of the consult
	Takes time.Duration // time that the tool itself takes

	// Of an answer.
	Code    string // fault code; "" if it is no fault
	Text    string // its beginning
	Size    int    // bytes of the whole text
	State   string // of a consult
	Value   float64
	Unasked bool // an answer that is neither a result nor a fault
}

// kill is a process that the test killed.
type kill struct {
	At     time.Duration
	What   string // daemon, worker, child or proxy
	PID    int
	Server string // name of the hosted server, if it is one of that
	Child  int    // pid of the server; 0 if there was none
	Token  string // of the consult, if it is one of that
}

// note is a line of the ledger.
type note struct {
	Verb, Token string
	PID         int
}

// violation is a promise that was not kept.
type violation struct {
	Rule    string
	Session string
	Token   string
	Detail  string
}

func (v violation) String() string {
	return fmt.Sprintf("%s: session %s, %s: %s", v.Rule, v.Session, cmp.Or(v.Token, "-"), v.Detail)
}

// Rules, by which the tests of broken variants distinguish violations.
const (
	ruleOnce     = "answered once"
	ruleAnswered = "every request is answered"
	ruleRight    = "the answer is the request's own"
	ruleAtMost   = "an effect happens at most once"
	ruleExactly  = "an effect that was answered has happened"
	ruleUnknown  = "a fault is true"
	ruleProxy    = "the line holds"
	ruleProgress = "progress is the request's own"
	ruleAsked    = "a server asks once"
	ruleStays    = "a server lives until it is killed"
)

// unknownSlack is how long before a request was sent its child may have been killed without
// being noticed yet.
const unknownSlack = 3 * time.Second

// judge returns the violations that the history shows. It uses nothing but the history.
func judge(h *history) []violation {
	j := &judgement{h: h, notes: map[string]map[string]int{}, ran: map[string]map[int]bool{}, done: map[string]bool{}}
	for _, n := range h.Ledger {
		if j.notes[n.Token] == nil {
			j.notes[n.Token], j.ran[n.Token] = map[string]int{}, map[int]bool{}
		}
		j.notes[n.Token][n.Verb]++
		j.ran[n.Token][n.PID] = true
	}
	for _, s := range h.Sessions {
		j.session(s)
	}
	j.servers()
	return j.found
}

// servers checks that the hosted server had no more processes than its kills explain.
func (j *judgement) servers() {
	processes, killed := map[int]bool{}, 0
	for _, s := range j.h.Sessions {
		for _, e := range s.Events {
			if e.Kind == evSent && (e.Op == opEffect || e.Op == opLook || e.Op == opAsk) {
				maps.Copy(processes, j.ran[e.Token])
			}
		}
	}
	for _, k := range j.h.Kills {
		if k.Server != "" {
			killed++
		}
	}
	if len(processes) > killed+1 {
		j.found = append(j.found,
			violation{Rule: ruleStays, Detail: fmt.Sprintf("%d processes, and %d were killed", len(processes), killed)})
	}
}

type judgement struct {
	h     *history
	notes map[string]map[string]int // by token and verb
	ran   map[string]map[int]bool   // processes by token
	done  map[string]bool           // tokens whose effects were checked
	left  bool                      // the client of the session has closed its side
	found []violation
}

// dueRequest is a request that is due.
type dueRequest struct {
	event
	cancelled bool
	closed    bool    // cancelled, and a later request was answered
	progress  float64 // the last one seen
}

func (j *judgement) violated(rule string, s *sessionLog, token, format string, args ...any) {
	j.found = append(j.found, violation{rule, s.Name, token, fmt.Sprintf(format, args...)})
}

// session checks all that a client saw, in order.
func (j *judgement) session(s *sessionLog) {
	j.left = false
	open := map[string]*dueRequest{}
	order := []*dueRequest{}
	serverAsked := map[string]bool{}
	stopped := map[string]bool{} // tokens of consults that the client has ended
	var begun []event            // in the background
	for _, e := range s.Events {
		switch e.Kind {
		case evSent:
			a := &dueRequest{event: e, progress: -1}
			open[e.ID] = a
			order = append(order, a)
			if e.Op == opControl {
				stopped[e.Token] = true
			}
		case evCancelled:
			if a := open[e.ID]; a != nil {
				a.cancelled = true
			}
		case evAnswer:
			a := open[e.ID]
			if a == nil || a.closed {
				j.violated(ruleOnce, s, "", "an answer to %s, which waits for none, after %v: %s", e.ID, e.At, e.Text)
				continue
			}
			delete(open, e.ID)
			for _, other := range order { // the proxy has seen cancellations before this request
				if other.cancelled && other.At < a.At && cancelledBefore(s, other, a) {
					other.closed = true
				}
			}
			if a.Op == opBack && e.Code == "" {
				begun = append(begun, a.event)
			}
			j.answer(s, a, &e, stopped[a.Token])
		case evProgress:
			a := open[e.ID]
			switch {
			case a == nil || a.closed:
				j.violated(ruleProgress, s, "", "progress of %s, which waits for none, after %v", e.ID, e.At)
			case e.Value <= a.progress:
				j.violated(ruleProgress, s, a.Token, "progress of %s goes from %v to %v", e.ID, a.progress, e.Value)
			default:
				a.progress = e.Value
			}
		case evAsked:
			if serverAsked[e.ID] {
				j.violated(ruleAsked, s, "", "the request %s came twice", e.ID)
			}
			serverAsked[e.ID] = true
		case evLeft:
			j.left = true
		}
	}
	j.end(s, open, order)
	for _, b := range begun {
		j.background(s, &b, stopped[b.Token])
	}
}

// cancelledBefore reports whether the client cancelled a before it sent b.
func cancelledBefore(s *sessionLog, a, b *dueRequest) bool {
	for _, e := range s.Events {
		if e.Kind == evCancelled && e.ID == a.ID && e.At >= a.At {
			return e.At <= b.At
		}
	}
	return false
}

// end checks what is due at the end, and each effect.
func (j *judgement) end(s *sessionLog, open map[string]*dueRequest, order []*dueRequest) {
	if s.End == sessionLost {
		j.violated(ruleProxy, s, "", "the proxy ended by itself: %s", s.How)
	}
	for _, a := range order {
		if open[a.ID] == a && !a.cancelled && (s.End == sessionLeft || s.End == sessionLost) {
			j.violated(ruleAnswered, s, a.Token, "%s %s, sent after %v, has no answer", a.Op, a.ID, a.At)
		}
		switch a.Op {
		case opConsult, opBack, opEffect, opRelay:
			j.atMostOnce(s, a.Token)
		}
	}
}

// atMostOnce checks an effect that must not be repeated.
func (j *judgement) atMostOnce(s *sessionLog, token string) {
	if j.done[token] {
		return
	}
	j.done[token] = true
	n := j.notes[token]
	if n["begin"] > 1 || n["end"] > 1 || n["asked"] > 1 || len(j.ran[token]) > 1 {
		j.violated(ruleAtMost, s, token, "begun %d times, ended %d times, by %d processes", n["begin"]+n["asked"],
			n["end"], len(j.ran[token]))
	}
}

// killed reports whether the process that worked for a request was killed while the request
// was due.
func (j *judgement) killed(a *event, until time.Duration) bool {
	for _, k := range j.h.Kills {
		if k.What != "worker" && k.What != "child" || k.At > until {
			continue
		}
		switch a.Op {
		case opConsult, opBack, opResult, opControl:
			if k.Token == a.Token {
				return true
			}
		case opEffect, opLook, opBig, opAsk, opRelay:
			// The ledger shows the process of a call that has begun.
			ran := j.ran[a.Token]
			if k.Server != "" && k.At >= a.At-unknownSlack && (k.Child == 0 || len(ran) == 0 || ran[k.Child]) {
				return true
			}
		}
	}
	return false
}

// answer checks one answer. stopped says that the client has ended the consult in the
// background that the answer is about.
func (j *judgement) answer(s *sessionLog, a *dueRequest, e *event, stopped bool) {
	if e.Unasked {
		j.violated(ruleRight, s, a.Token, "%s %s was answered by neither a result nor a fault: %s", a.Op, a.ID, e.Text)
		return
	}
	if e.Code != "" && a.Op == opHostile {
		return // whatever its server did to it
	}
	if e.Code != "" {
		j.fault(s, a, e, stopped)
		return
	}
	n := j.notes[a.Token]
	switch a.Op {
	case opConsult:
		if e.State == "queued" || e.State == "running" {
			j.violated(ruleRight, s, a.Token, "a consult that is waited for is answered by %q", e.State)
			return
		}
		fallthrough
	case opEffect:
		if !strings.Contains(e.Text, a.Token) {
			j.violated(ruleRight, s, a.Token, "%s %s was answered by %q", a.Op, a.ID, e.Text)
		}
		if n["begin"] != 1 || n["end"] != 1 {
			j.violated(ruleExactly, s, a.Token, "%s %s has its answer, and was begun %d times and ended %d times", a.Op,
				a.ID, n["begin"], n["end"])
		}
	case opResult:
		switch {
		case e.State == "done" && !strings.Contains(e.Text, a.Token):
			j.violated(ruleRight, s, a.Token, "the consult's result is %q", e.Text)
		case e.State == "cancelled" && !stopped:
			j.violated(ruleUnknown, s, a.Token, "the consult was cancelled, and not by its client: %s", e.Text)
		}
	case opHostile:
		if !strings.Contains(e.Text, a.Token) {
			j.violated(ruleRight, s, a.Token, "%s %s was answered by %q", a.Op, a.ID, e.Text)
		}
	case opLook, opAsk, opRelay:
		if !strings.Contains(e.Text, a.Token) || a.Op == opRelay && !strings.Contains(e.Text, `"roots":[]`) {
			j.violated(ruleRight, s, a.Token, "%s %s was answered by %q", a.Op, a.ID, e.Text)
		}
		if verb := map[string]string{opLook: "look", opAsk: "told", opRelay: "told"}[a.Op]; n[verb] == 0 {
			j.violated(ruleExactly, s, a.Token, "%s %s has its answer, and the ledger has no %q", a.Op, a.ID, verb)
		}
	case opBig:
		var want int
		if _, err := fmt.Sscanf(a.Token[strings.LastIndexByte(a.Token, '-')+1:], "%d", &want); err != nil ||
			e.Size != len(a.Token)+1+want || !strings.HasPrefix(e.Text, a.Token) {
			j.violated(ruleRight, s, a.Token, "the answer has %d bytes and begins with %q", e.Size, e.Text)
		}
	}
}

// fault checks an answer that is a fault: it must be true.
func (j *judgement) fault(s *sessionLog, a *dueRequest, e *event, stopped bool) {
	lie := func(why string) {
		j.violated(ruleUnknown, s, a.Token, "%s %s, sent after %v, was answered by %s after %v, %s: %s", a.Op, a.ID,
			a.At, e.Code, e.At, why, e.Text)
	}
	switch e.Code {
	case "outcome_unknown", "process_failure", "transport_failure":
		if j.left && e.Code != "process_failure" {
			return // its proxy no longer waits for a daemon
		}
		if !j.killed(&a.event, e.At) {
			lie("and nobody had killed what worked for it")
		}
		if a.Op == opEffect && e.Code == "transport_failure" && j.notes[a.Token]["begin"] > 0 {
			lie("which means that it was not begun, and it was")
		}
	case "cancelled":
		if !stopped {
			lie("and its client had not cancelled it")
		}
	default:
		lie("which nothing accounts for")
	}
}

// background checks a consult whose id was handed out: it continues whatever happens to its
// client.
func (j *judgement) background(s *sessionLog, a *event, stopped bool) {
	n := j.notes[a.Token]
	if stopped || j.killed(a, time.Duration(1<<62)) {
		return
	}
	if n["begin"] != 1 || n["end"] != 1 {
		j.violated(ruleExactly, s, a.Token, "the consult in the background was begun %d times and ended %d times",
			n["begin"], n["end"])
	}
}

// rules returns the rules that were violated, sorted.
func rules(found []violation) []string {
	var all []string
	for _, v := range found {
		all = append(all, v.Rule)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestOracle gives the oracle small histories, each with what it must find.
func TestOracle(t *testing.T) {
	for _, c := range oracleCases() {
		h := &history{
			Sessions: []*sessionLog{{Name: "a", Events: c.events, End: c.end}}, Kills: c.kills, Ledger: c.ledger,
		}
		if found := judge(h); !slices.Equal(rules(found), c.want) {
			t.Errorf("%s: judge = %v, want violations of %q", c.name, found, c.want)
		}
	}
}

// An oracleCase is a history of one session and what the oracle must find in it.
type oracleCase struct {
	name   string
	end    sessionEnd
	events []event
	kills  []kill
	ledger []note
	want   []string
}

func oracleCases() []oracleCase {
	const s = time.Second
	sent := func(at time.Duration, id, op, token string) event {
		return event{At: at, Kind: evSent, ID: id, Op: op, Token: token}
	}
	good := func(at time.Duration, id, text string) event {
		return event{At: at, Kind: evAnswer, ID: id, Text: text, Size: len(text), State: "done"}
	}
	bad := func(at time.Duration, id, code string) event {
		return event{At: at, Kind: evAnswer, ID: id, Code: code}
	}
	state := func(at time.Duration, id, word string) event {
		return event{At: at, Kind: evAnswer, ID: id, State: word}
	}
	cancel := func(at time.Duration, id string) event { return event{At: at, Kind: evCancelled, ID: id} }
	progress := func(at time.Duration, id string, v float64) event {
		return event{At: at, Kind: evProgress, ID: id, Value: v}
	}
	once := []note{{"begin", "t", 7}, {"end", "t", 7}}
	return []oracleCase{
		{name: "nothing", end: sessionLeft},
		{name: "one answer", end: sessionLeft, events: []event{sent(1*s, "1", opHealth, ""), good(2*s, "1", "ready")}},
		{
			name: "no answer", end: sessionLeft, events: []event{sent(1*s, "1", opHealth, "")},
			want: []string{ruleAnswered},
		},
		{name: "no answer, the proxy was killed", end: sessionKilled, events: []event{sent(1*s, "1", opHealth, "")}},
		{
			name: "no answer, the client was in a hurry", end: sessionHurry,
			events: []event{sent(1*s, "1", opHealth, "")},
		},
		{name: "the proxy went", end: sessionLost, want: []string{ruleProxy}},
		{
			name: "two answers", end: sessionLeft,
			events: []event{sent(1*s, "1", opHealth, ""), good(2*s, "1", ""), good(3*s, "1", "")},
			want:   []string{ruleOnce},
		},
		{
			name: "two answers, then the proxy was killed", end: sessionKilled,
			events: []event{sent(1*s, "1", opHealth, ""), good(2*s, "1", ""), good(3*s, "1", "")},
			want:   []string{ruleOnce},
		},
		{
			name: "an id used again", end: sessionLeft,
			events: []event{
				sent(1*s, "1", opHealth, ""), good(2*s, "1", ""), sent(3*s, "1", opHealth, ""), good(4*s, "1", ""),
			},
		},
		{
			name: "an id used again has no answer", end: sessionLeft,
			events: []event{sent(1*s, "1", opHealth, ""), good(2*s, "1", ""), sent(3*s, "1", opHealth, "")},
			want:   []string{ruleAnswered},
		},
		{name: "an answer to nothing", end: sessionLeft, events: []event{good(2*s, "1", "")}, want: []string{ruleOnce}},
		{
			name: "neither result nor fault", end: sessionLeft,
			events: []event{sent(1*s, "1", opHealth, ""), {At: 2 * s, Kind: evAnswer, ID: "1", Unasked: true}},
			want:   []string{ruleRight},
		},

		{
			name: "cancelled", end: sessionLeft, events: []event{sent(1*s, "1", opEffect, "t"), cancel(2*s, "1")},
			ledger: once[:1],
		},
		{
			name: "cancelled too late", end: sessionLeft,
			events: []event{sent(1*s, "1", opEffect, "t"), cancel(2*s, "1"), good(3*s, "1", "t")}, ledger: once,
		},
		{
			name: "cancelled, answered twice", end: sessionLeft,
			events: []event{sent(1*s, "1", opEffect, "t"), cancel(2*s, "1"), good(3*s, "1", "t"), good(4*s, "1", "t")},
			ledger: once, want: []string{ruleOnce},
		},
		{
			name: "cancelled, and answered behind a later request", end: sessionLeft, ledger: once,
			want: []string{ruleOnce},
			events: []event{
				sent(1*s, "1", opEffect, "t"), cancel(2*s, "1"), sent(3*s, "2", opHealth, ""), good(4*s, "2", ""),
				good(5*s, "1", "t"),
			},
		},
		{
			name: "cancelled, and answered behind an earlier request", end: sessionLeft, ledger: once,
			events: []event{
				sent(1*s, "1", opEffect, "t"), sent(2*s, "2", opHealth, ""), cancel(3*s, "1"), good(4*s, "2", ""),
				good(5*s, "1", "t"),
			},
		},

		{
			name: "an effect", end: sessionLeft, events: []event{sent(1*s, "1", opEffect, "t"), good(2*s, "1", "t")},
			ledger: once,
		},
		{
			name: "an effect with another's answer", end: sessionLeft,
			events: []event{sent(1*s, "1", opEffect, "t"), good(2*s, "1", "u")}, ledger: once,
			want: []string{ruleRight},
		},
		{
			name: "an effect that was not", end: sessionLeft,
			events: []event{sent(1*s, "1", opEffect, "t"), good(2*s, "1", "t")}, want: []string{ruleExactly},
		},
		{
			name: "an effect that did not end", end: sessionLeft,
			events: []event{sent(1*s, "1", opEffect, "t"), good(2*s, "1", "t")}, ledger: once[:1],
			want: []string{ruleExactly},
		},
		{
			name: "an effect twice", end: sessionKilled, events: []event{sent(1*s, "1", opEffect, "t")},
			ledger: append(once, once...), want: []string{ruleAtMost},
		},
		{
			name: "an effect begun again by another process", end: sessionKilled,
			events: []event{sent(1*s, "1", opEffect, "t")}, ledger: append(once[:1:1], note{"end", "t", 8}),
			want: []string{ruleStays, ruleAtMost},
		},
		{
			name: "a look twice", end: sessionLeft, events: []event{sent(1*s, "1", opLook, "t"), good(2*s, "1", "t")},
			ledger: []note{{"look", "t", 7}, {"look", "t", 7}},
		},
		{
			name: "a look that was not", end: sessionLeft,
			events: []event{sent(1*s, "1", opLook, "t"), good(2*s, "1", "t")}, want: []string{ruleExactly},
		},
		{
			name: "two effects of two servers", end: sessionLeft, want: []string{ruleStays},
			ledger: append(once[:2:2], note{"begin", "u", 8}, note{"end", "u", 8}),
			events: []event{
				sent(1*s, "1", opEffect, "t"), good(2*s, "1", "t"), sent(3*s, "1", opEffect, "u"), good(4*s, "1", "u"),
			},
		},
		{
			name: "two effects of two servers, since one was killed", end: sessionLeft,
			ledger: append(once[:2:2], note{"begin", "u", 8}, note{"end", "u", 8}),
			events: []event{
				sent(1*s, "1", opEffect, "t"), good(2*s, "1", "t"), sent(3*s, "1", opEffect, "u"), good(4*s, "1", "u"),
			},
			kills: []kill{{At: 3 * s, What: "worker", Server: "x"}},
		},
		{
			name: "a big answer", end: sessionLeft,
			events: []event{sent(1*s, "1", opBig, "b-3"), good(2*s, "1", "b-3 xxx")},
		},
		{
			name: "a big answer, cut", end: sessionLeft,
			events: []event{sent(1*s, "1", opBig, "b-3"), good(2*s, "1", "b-3 xx")}, want: []string{ruleRight},
		},

		{
			name: "unknown, and true", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 10 * s, What: "worker", Server: "x"}}, ledger: once[:1],
		},
		{
			name: "unknown, and nobody was killed", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown")}, ledger: once,
			want: []string{ruleUnknown},
		},
		{
			name: "unknown for another process's sake", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 10 * s, What: "worker", Server: "x", Child: 77}}, ledger: once[:1],
			want: []string{ruleUnknown},
		},
		{
			name: "unknown for the daemon's sake", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 10 * s, What: "daemon"}}, ledger: once, want: []string{ruleUnknown},
		},
		{
			name: "unknown, killed long before", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 2 * s, What: "child", Server: "x"}}, ledger: once, want: []string{ruleUnknown},
		},
		{
			name: "unknown, killed afterwards", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 13 * s, What: "child", Server: "x"}}, ledger: once, want: []string{ruleUnknown},
		},
		{
			name: "not dispatched, and true", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "transport_failure")},
			kills:  []kill{{At: 10 * s, What: "child", Server: "x"}},
		},
		{
			name: "not dispatched, and it was", end: sessionLeft,
			events: []event{sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "transport_failure")},
			kills:  []kill{{At: 10 * s, What: "child", Server: "x"}}, ledger: once[:1], want: []string{ruleUnknown},
		},
		{
			name: "unknown, since the client did not wait", end: sessionHurry,
			events: []event{
				sent(9*s, "1", opEffect, "t"), {At: 10 * s, Kind: evLeft}, bad(12*s, "1", "outcome_unknown"),
			}, ledger: once,
		},
		{
			name: "unknown, and then the client left", end: sessionHurry,
			events: []event{
				sent(9*s, "1", opEffect, "t"), bad(12*s, "1", "outcome_unknown"), {At: 13 * s, Kind: evLeft},
			}, ledger: once, want: []string{ruleUnknown},
		},
		{
			name: "any other fault", end: sessionLeft,
			events: []event{sent(9*s, "1", opHealth, ""), bad(12*s, "1", "internal_failure")},
			want:   []string{ruleUnknown},
		},

		{
			name: "a consult", end: sessionLeft,
			events: []event{sent(1*s, "1", opConsult, "t"), good(2*s, "1", "says t")}, ledger: once,
		},
		{
			name: "a consult that is still running", end: sessionLeft,
			events: []event{sent(1*s, "1", opConsult, "t"), state(2*s, "1", "running")}, ledger: once,
			want: []string{ruleRight},
		},
		{
			name: "a consult twice", end: sessionLeft,
			events: []event{sent(1*s, "1", opConsult, "t"), good(2*s, "1", "t")},
			ledger: append(once, note{"begin", "t", 8}), want: []string{ruleAtMost, ruleExactly},
		},
		{
			name: "a consult unknown, and true", end: sessionLeft,
			events: []event{sent(1*s, "1", opConsult, "t"), bad(9*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 2 * s, What: "worker", Token: "t"}},
		},
		{
			name: "a consult unknown for another's sake", end: sessionLeft,
			events: []event{sent(1*s, "1", opConsult, "t"), bad(9*s, "1", "outcome_unknown")},
			kills:  []kill{{At: 2 * s, What: "worker", Token: "u"}}, want: []string{ruleUnknown},
		},
		{
			name: "a consult's partial failure", end: sessionLeft,
			events: []event{sent(1*s, "1", opConsult, "t"), bad(9*s, "1", "downstream_failure")}, ledger: once,
			want: []string{ruleUnknown},
		},

		{
			name: "in the background", end: sessionKilled,
			events: []event{sent(1*s, "1", opBack, "t"), state(2*s, "1", "queued")}, ledger: once,
		},
		{
			name: "in the background, and never", end: sessionKilled,
			events: []event{sent(1*s, "1", opBack, "t"), state(2*s, "1", "queued")}, want: []string{ruleExactly},
		},
		{
			name: "in the background, killed", end: sessionLeft,
			events: []event{sent(1*s, "1", opBack, "t"), state(2*s, "1", "queued")},
			kills:  []kill{{At: 3 * s, What: "child", Token: "t"}}, ledger: once[:1],
		},
		{
			name: "in the background, ended by its client", end: sessionLeft,
			events: []event{
				sent(1*s, "1", opBack, "t"), state(2*s, "1", "queued"), sent(3*s, "2", opControl, "t"),
				state(4*s, "2", "cancelled"),
			},
		},
		{
			name: "not answered, so perhaps never begun", end: sessionKilled,
			events: []event{sent(1*s, "1", opBack, "t")},
		},
		{name: "a result", end: sessionLeft, events: []event{sent(1*s, "1", opResult, "t"), good(2*s, "1", "says t")}},
		{
			name: "a result of another", end: sessionLeft,
			events: []event{sent(1*s, "1", opResult, "t"), good(2*s, "1", "says u")}, want: []string{ruleRight},
		},
		{
			name: "a result that is forgotten", end: sessionLeft,
			events: []event{sent(1*s, "1", opResult, "t"), bad(2*s, "1", "invalid_input")}, want: []string{ruleUnknown},
		},
		{
			name: "a result, cancelled by nobody", end: sessionLeft,
			events: []event{sent(1*s, "1", opResult, "t"), state(2*s, "1", "cancelled")}, want: []string{ruleUnknown},
		},
		{
			name: "a result, cancelled", end: sessionLeft,
			events: []event{
				sent(1*s, "1", opControl, "t"), state(2*s, "1", "cancelled"), sent(3*s, "1", opResult, "t"),
				state(4*s, "1", "cancelled"),
			},
		},

		{
			name: "a hostile server's fault", end: sessionLeft,
			events: []event{sent(1*s, "1", opHostile, "t"), bad(2*s, "1", "bad_output")},
		},
		{
			name: "a hostile server's call without an answer", end: sessionLeft,
			events: []event{sent(1*s, "1", opHostile, "t")}, want: []string{ruleAnswered},
		},
		{
			name: "a hostile server's answer to another", end: sessionLeft,
			events: []event{sent(1*s, "1", opHostile, "t"), good(2*s, "1", "u")}, want: []string{ruleRight},
		},

		{
			name: "progress", end: sessionLeft,
			events: []event{
				sent(1*s, "1", opHealth, ""), progress(2*s, "1", 1), progress(3*s, "1", 2), good(4*s, "1", ""),
			},
		},
		{
			name: "progress that goes back", end: sessionLeft,
			events: []event{
				sent(1*s, "1", opHealth, ""), progress(2*s, "1", 2), progress(3*s, "1", 1), good(4*s, "1", ""),
			}, want: []string{ruleProgress},
		},
		{
			name: "progress behind the answer", end: sessionLeft,
			events: []event{sent(1*s, "1", opHealth, ""), good(2*s, "1", ""), progress(3*s, "1", 1)},
			want:   []string{ruleProgress},
		},
		{
			name: "relayed", end: sessionLeft,
			events: []event{sent(1*s, "1", opRelay, "t"), good(2*s, "1", `t {"roots":[]}`)},
			ledger: []note{{"asked", "t", 7}, {"told", "t", 7}},
		},
		{
			name: "not relayed", end: sessionLeft,
			events: []event{sent(1*s, "1", opRelay, "t"), good(2*s, "1", `t {"code":-32601}`)},
			ledger: []note{{"asked", "t", 7}, {"told", "t", 7}}, want: []string{ruleRight},
		},
		{
			name: "relayed twice", end: sessionKilled, events: []event{sent(1*s, "1", opRelay, "t")},
			ledger: []note{{"asked", "t", 7}, {"asked", "t", 7}}, want: []string{ruleAtMost},
		},
		{
			name: "a server asks", end: sessionLeft,
			events: []event{{Kind: evAsked, ID: `"w:1"`}, {Kind: evAsked, ID: `"w:2"`}},
		},
		{
			name: "a server asks twice", end: sessionLeft,
			events: []event{{Kind: evAsked, ID: `"w:1"`}, {Kind: evAsked, ID: `"w:1"`}}, want: []string{ruleAsked},
		},
	}
}
