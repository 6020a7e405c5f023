package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// input is what the answer to a modern client's request asks of the client.
type input struct {
	key, method, token, state string
}

// askMe begins a call during which the server asks the modern client something.
func (a *agent) askMe(args, more map[string]any) int {
	a.t.Helper()
	params := modernly(map[string]any{"name": "tools__ask", "arguments": args},
		"io.modelcontextprotocol/clientCapabilities",
		map[string]any{"elicitation": map[string]any{}})
	maps.Copy(params, more)
	return a.begin("tools/call", params)
}

// elicit returns the arguments of a call that asks by elicitation.
func elicit(token string) map[string]any {
	return map[string]any{"token": token, "method": "elicitation/create"}
}

// required returns what the answer to a call asks for.
func (a *agent) required(id int) input {
	a.t.Helper()
	x := a.wait(id)
	var m struct {
		Result struct {
			ResultType    string
			RequestState  string
			InputRequests map[string]struct {
				Method string
				Params struct{ Token string }
			}
		}
	}
	decode(a.t, x.raw, &m)
	if m.Result.ResultType != "input_required" || len(m.Result.InputRequests) != 1 || m.Result.RequestState == "" {
		a.t.Fatalf("nothing is asked: %s", x.raw)
	}
	for key, r := range m.Result.InputRequests {
		return input{key, r.Method, r.Params.Token, m.Result.RequestState}
	}
	return input{}
}

// with returns the members of a request that answers the question.
func (in input) with(result string) map[string]any {
	return map[string]any{"requestState": in.state, "inputResponses": map[string]any{in.key: json.RawMessage(result)}}
}

// TestServerAsksModern checks that a question that a server asks during a call is the
// answer to the modern client's request, and that the client's next request continues the
// call, which is made once, even if the daemon or the client dies.
func TestServerAsksModern(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session").login()
	m := p.agent("--identity", "m")
	m.modernPing()
	pid := p.pid(0)
	for _, c := range []struct {
		name           string
		before, within bool // the daemon dies before the client answers, or afterwards
	}{{"calm", false, false}, {"before", true, false}, {"within", false, true}, {"both", true, true}} {
		args := elicit(c.name)
		args["ms"] = 300
		in := m.required(m.askMe(args, nil))
		if in.method != "elicitation/create" || in.token != c.name {
			t.Errorf("%s: asked %+v", c.name, in)
		}
		if c.before {
			kill9(t, pid)
			pid = p.pid(pid)
		}
		id := m.askMe(args, in.with(`{"action":"accept","content":{"x":1.0}}`))
		if c.within {
			p.untilEffect("told " + c.name)
			kill9(t, pid)
			pid = p.pid(pid)
		}
		if x := m.wait(id); x.text() != c.name+` {"action":"accept","content":{"x":1.0}}` {
			t.Errorf("%s: %s", c.name, x.raw)
		}
		if asked, told := p.effectsOf("asked "+c.name), p.effectsOf("told "+c.name); asked != 1 || told != 1 {
			t.Errorf("%s: begun %d times, told %d times", c.name, asked, told)
		}
		// The same answers give the same result again, as long as it is kept.
		again := m.wait(m.askMe(args, in.with(`{"action":"accept"}`)))
		if same := strings.Contains(again.text(), `{"x":1.0}`); !same && again.code() != "outcome_unknown" ||
			p.effectsOf("asked "+c.name) != 1 {
			t.Errorf("%s, answered again: %s", c.name, again.raw)
		}
	}
	m.rest()
}

// TestServerAsksModernAmongOldRecords checks that calls that an earlier daemon has made,
// and whose clients have their answers, are not taken for the call in which the server
// asks.
func TestServerAsksModernAmongOldRecords(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session").login()
	d := p.daemon()
	m := p.agent("--identity", "m", "--no-autostart")
	m.modernPing()
	for i := range 8 {
		args := map[string]any{"token": fmt.Sprint(i), "ms": 0}
		if x := m.wait(m.begin("tools/call",
			modernly(map[string]any{"name": "tools__effect", "arguments": args}))); x.Error != nil || x.Result.IsError {
			t.Fatal(x.raw)
		}
	}
	in := m.required(m.askMe(elicit("e"), nil))
	kill9(t, d.Process.Pid)
	p.daemon()
	if x := m.wait(m.askMe(elicit("e"), in.with(`{"action":"accept"}`))); x.text() != `e {"action":"accept"}` {
		t.Errorf("the answer: %s", x.raw)
	}
	m.rest()
}

// askCrashes are deaths of the daemon around a call in which the server asks a modern
// client.
var askCrashes = []crash{
	{point: "hosted.dispatched"},
	{point: "session.pursued"},
	{point: "hosted.resumed"},
	{point: "hosted.resumed", after: "hosted.dispatched"},
	{point: "hosted.adopted", after: "hosted.resumed"},
	{point: "session.pursued", times: 2},
	{point: "hosted.shown"},
	{point: "hosted.askwritten"},
}

// TestServerAskCrashes kills the daemon at each of them. The call is made once, the server
// gets its answer once, and the client has the result.
func TestServerAskCrashes(t *testing.T) {
	t.Parallel()
	inTurn(t, askCrashes, func(t *testing.T, c crash, _ int) {
		t.Helper()
		p := newPlace(t).serve("session").login().faults()
		if c.after != "" {
			p.dieAs(c.after, death{})
		}
		p.dieAs(c.point, death{times: c.times, after: c.after})
		m := p.agent("--identity", "m")
		m.modernPing()
		args := elicit("e")
		in := m.required(m.askMe(args, nil))
		x := m.wait(m.askMe(args, in.with(`{"action":"accept"}`)))
		if x.text() != `e {"action":"accept"}` {
			t.Errorf("the answer: %s", x.raw)
		}
		if asked, told := p.effectsOf("asked e"), p.effectsOf("told e"); asked != 1 || told != 1 {
			t.Errorf("begun %d times, told %d times", asked, told)
		}
		if !p.died(c.point) {
			t.Errorf("no daemon came to %s", c.point)
		}
		m.rest()
	})
}

// TestServerAsksModern_NoAnswerInTime checks that a question that a modern client does not answer in time is
// cancelled.
func TestServerAsksModern_NoAnswerInTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "session", "timeout": "3s", "max_timeout": "12s",
	})}).daemon()
	m := p.agent("--identity", "m")
	in := m.required(m.askMe(elicit("never"), nil))
	p.untilEffect("cancelled never")
	if x := m.wait(m.askMe(elicit("never"), in.with(`{}`))); x.code() != "outcome_unknown" ||
		p.effectsOf("asked never") != 1 {
		t.Errorf("answered too late: %s", x.raw)
	}
	m.rest()
}

// TestServerAsksModernNot checks that a server gets an error for a question that a modern
// client cannot be asked, and what becomes of a question whose server is gone, or that another
// client answers.
func TestServerAsksModernNot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": p.toolsEntry(hosting{
		"scope": "session", "timeout": "12s", "max_timeout": "40s",
	})}).daemon()
	m := p.agent("--identity", "m")
	if x := m.wait(m.askMe(map[string]any{"token": "s", "method": "sampling/createMessage"},
		nil)); !strings.Contains(x.text(), "does not offer sampling/createMessage") {
		t.Errorf("of what the client does not offer: %s", x.raw)
	}
	in := m.required(m.askMe(elicit("dies"), nil))
	kill9(t, p.status().Workers[0].PID)
	if x := m.wait(m.askMe(elicit("dies"), in.with(`{}`))); x.code() != "outcome_unknown" ||
		p.effectsOf("asked dies") != 1 {
		t.Errorf("of a server that is gone: %s", x.raw)
	}
	p.untilReady("tools")
	other := p.agent("--identity", "other")
	in = m.required(m.askMe(elicit("mine"), nil))
	if x := other.wait(other.askMe(elicit("mine"), in.with(`{}`))); x.code() != "outcome_unknown" {
		t.Errorf("answered by another: %s", x.raw)
	}
	bent := in
	bent.state += "-bent"
	if x := m.wait(m.askMe(elicit("mine"), bent.with(`{}`))); x.Error == nil || x.Error.Code != -32602 ||
		p.effectsOf("asked mine") != 1 {
		t.Errorf("with a state that was never given: %s", x.raw)
	}
	if x := m.wait(m.askMe(elicit("mine"), in.with(`{"action":"decline"}`))); x.text() != `mine {"action":"decline"}` {
		t.Errorf("after that: %s", x.raw)
	}
	m.rest()
	other.rest()
}

// TestServerAsksModernMany checks that several calls can ask at the same time, and that none
// is lost. A call that is answered in part is asked for the rest again.
func TestServerAsksModernMany(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session")
	p.daemon()
	m := p.agent("--identity", "m")
	ids := map[int]string{}
	for i := range 4 {
		token := fmt.Sprint("t", i)
		ids[m.askMe(elicit(token), nil)] = token
	}
	answered := map[string]bool{}
	for deadline := time.Now().Add(waitLimit); len(answered) < 4; {
		if time.Now().After(deadline) {
			t.Fatalf("answered: %v", answered)
		}
		x := m.until(func(y *answer) bool { n, ok := y.ID.(float64); return ok && ids[int(n)] != "" })
		n := int(x.ID.(float64))
		token := ids[n]
		delete(ids, n)
		var r struct {
			Result struct {
				ResultType    string
				RequestState  string
				InputRequests map[string]json.RawMessage
			}
		}
		decode(t, x.raw, &r)
		if r.Result.ResultType != "input_required" {
			if answered[token] = true; x.text() != token+` {"action":"accept"}` {
				t.Errorf("%s: %s", token, x.raw)
			}
			continue
		}
		one := map[string]any{} // of all that was asked
		for key := range r.Result.InputRequests {
			one[key] = map[string]any{"action": "accept"}
			break
		}
		ids[m.askMe(elicit(token),
			map[string]any{"requestState": r.Result.RequestState, "inputResponses": one})] = token
	}
	for i := range 4 {
		if n := p.effectsOf(fmt.Sprint("asked t", i)); n != 1 {
			t.Errorf("t%d was begun %d times", i, n)
		}
	}
	m.rest()
}

// TestDaemonKilledWhileTwoCallsAsk_EachHasItsOwnQuestion checks that two calls of a modern client with
// an open question each go on as they were, if the daemon dies before the client has the questions,
// and after that: each is asked its own, once.
func TestDaemonKilledWhileTwoCallsAsk_EachHasItsOwnQuestion(t *testing.T) {
	t.Parallel()
	for _, unread := range []bool{false, true} {
		p := newPlace(t).serve("session").login().faults()
		m := p.agent("--identity", "m")
		m.modernPing()
		pid := p.pid(0)
		calls := map[string]int{}
		ask := func(token string) {
			args := elicit(token)
			args["ms"] = 300
			calls[token] = m.askMe(args, nil)
		}
		asked := map[string]input{}
		ask("one")
		asked["one"] = m.required(calls["one"])
		if unread { // the client gets what the second call asks from the next daemon
			p.dieAs("hosted.shown", death{})
			ask("two")
			asked["two"] = m.required(calls["two"])
			if !p.died("hosted.shown") {
				t.Error("no daemon died")
			}
		} else {
			ask("two")
			asked["two"] = m.required(calls["two"])
			kill9(t, pid)
		}
		for _, token := range []string{"two", "one"} {
			if asked[token].token != token {
				t.Errorf("call %s asks for %s", token, asked[token].token)
			}
			args := elicit(token)
			args["ms"] = 300
			calls[token] = m.askMe(args, asked[token].with(`{"action":"accept"}`))
		}
		for range calls {
			m.until(func(x *answer) bool {
				for token, id := range calls {
					if x.answers(id) && x.text() != token+` {"action":"accept"}` {
						t.Errorf("%s: %s", token, x.raw)
					}
				}
				return true
			})
		}
		for token := range calls {
			if asked, told := p.effectsOf("asked "+token), p.effectsOf("told "+token); asked != 1 || told != 1 {
				t.Errorf("%s: begun %d times, told %d times", token, asked, told)
			}
		}
		m.rest()
	}
}

// TestServerAsksLegacy checks that a question of a modern server reaches a legacy client as
// one request, once, even if the daemon dies, that the client sees nothing else of it, and that
// of two answers the first one counts, also if there is no daemon yet to take them.
func TestServerAsksLegacy(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"sdk": map[string]any{
		"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern"},
		"holdline": hosting{"scope": "session"},
	}, "shared": map[string]any{
		"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern"},
		"holdline": hosting{"scope": "shared"},
	}})
	a := p.agent("--identity", "a")
	a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	pid := p.pid(0)
	for _, c := range []struct {
		name          string
		before, after bool // the daemon dies before the client answers, or right after
		atOnce        bool // the client answers before there is another daemon
	}{
		{name: "calm"},
		{"before", true, false, false},
		{name: "after", after: true},
		{"both", true, true, false},
		{"at once", true, false, true},
		{"twice", true, true, true},
	} {
		id := a.call("sdk__inquire", map[string]any{"word": c.name})
		x := a.until(func(x *answer) bool { return x.ID != nil })
		if x.Method != "elicitation/create" || !strings.Contains(x.raw, "a word for "+c.name) {
			t.Fatalf("%s: %s", c.name, x.raw)
		}
		if c.before {
			kill9(t, pid)
		}
		if c.before && !c.atOnce {
			pid = p.pid(pid)
		}
		for _, word := range []string{"yes", "too late"} {
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"word":%q}}}`, x.ID, word))
		}
		if c.atOnce {
			pid = p.pid(pid)
		}
		if c.after {
			kill9(t, pid)
			pid = p.pid(pid)
		}
		x = a.until(func(x *answer) bool { return x.Method == "elicitation/create" || x.ID != nil && x.Method == "" })
		if !x.answers(id) ||
			string(x.Result.StructuredContent) != `{"word":"`+c.name+` accept yes"}` {
			t.Errorf("%s: %s", c.name, x.raw)
		}
	}
	id := a.call("sdk__inquire", map[string]any{"word": "refused"})
	x := a.until(func(x *answer) bool { return x.Method == "elicitation/create" })
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"error":{"code":-1,"message":"not now"}}`, x.ID))
	if x := a.wait(id); x.Error == nil || x.Error.Message != "not now" {
		t.Errorf("a client that refuses: %s", x.raw)
	}
	if x := a.wait(a.call("shared__inquire", map[string]any{"word": "w"})); x.code() != "downstream_failure" ||
		!strings.Contains(x.text(), `scope \"session\"`) && !strings.Contains(x.text(), `scope "session"`) {
		t.Errorf("a server that several share: %s", x.raw)
	}
	a.rest()
}

// TestServerAsksLegacyUnsent kills the daemon after it has recorded the request that passes
// the legacy client's answer to the modern server, and before it has sent it. The client is
// not asked again, whether the next daemon has the worker at once or later.
func TestServerAsksLegacyUnsent(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).faults()
			p.configure(map[string]any{"sdk": map[string]any{
				"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern"},
				"holdline": hosting{"scope": "session"},
			}})
			a := p.agent("--identity", "a")
			a.ask("initialize", map[string]any{
				"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}},
				"clientInfo": map[string]string{"name": "test", "version": "1"},
			})
			a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			id := a.call("sdk__inquire", map[string]any{"word": "w"})
			x := a.until(func(x *answer) bool { return x.ID != nil })
			if x.Method != "elicitation/create" {
				t.Fatalf("%s", x.raw)
			}
			// The first round's answer is in a file, where the next daemon finds it before
			// it has the worker.
			waitFor(t, "the server's answer in a file", func() bool {
				files, err := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*/a/*"))
				return err == nil && len(files) > 0
			})
			p.dieAs("write.recorded", death{})
			if late {
				p.dieAs("attach.fenced", death{held: true})
			}
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"word":"yes"}}}`, x.ID))
			if late {
				waitFor(t, "the next daemon", func() bool { return p.died("attach.fenced") })
				p.until("the client to be back",
					func(s control.StatusAnswer) bool { return len(s.Sessions) == 1 && s.Sessions[0].InFlight == 1 })
				p.letGo("attach.fenced")
			}
			x = a.until(func(x *answer) bool {
				return x.Method == "elicitation/create" || x.ID != nil && x.Method == ""
			})
			if !x.answers(id) ||
				string(x.Result.StructuredContent) != `{"word":"w accept yes"}` {
				t.Errorf("%s", x.raw)
			}
			if !p.died("write.recorded") {
				t.Error("the daemon lived on")
			}
			a.rest()
		})
	}
}
