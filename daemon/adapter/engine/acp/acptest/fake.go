// Package acptest is an agent that speaks the Agent Client Protocol and does what a script in its
// prompt says, for tests. A test binary runs [Main] when it is started under another name.
package acptest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Step is one thing that the agent does in a turn. Its other fields are for [Prompt].
type Step struct {
	Say        string          `json:"say,omitempty"`
	ID         string          `json:"id,omitempty"`    // of the message that Say is a part of
	Shell      string          `json:"shell,omitempty"` // a command that it runs without asking
	Read       string          `json:"read,omitempty"`  // a file that it says it reads, and reads
	Call       string          `json:"call,omitempty"`  // a request to the host, with Params
	Params     json.RawMessage `json:"params,omitempty"`
	Times      int             `json:"times,omitempty"` // that Call is made at once, before any answer is read
	Plan       string          `json:"plan,omitempty"`
	Cost       float64         `json:"cost,omitempty"`  // of the session so far
	Noise      string          `json:"noise,omitempty"` // a line that is none of the protocol
	Stop       string          `json:"stop,omitempty"`  // ends the turn for this reason
	Error      int             `json:"error,omitempty"` // ends the turn with this error
	Hang       bool            `json:"hang,omitempty"`  // until the turn is cancelled
	Await      string          `json:"await,omitempty"` // a file that must be there before the next step
	Die        bool            `json:"die,omitempty"`   // with exit code 3
	TellAll    bool            `json:"tell_all,omitempty"`
	TellResult bool            `json:"tell_result,omitempty"` // says what the last Shell, Read or Call has returned
}

// marker stands before a script in a prompt.
const marker = "@acp "

// Prompt returns a prompt with a script.
func Prompt(text string, steps ...Step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		panic(err)
	}
	return text + " " + marker + string(b)
}

// message is a line in both directions.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// agent is the fake at work.
type agent struct {
	args    []string
	home    string
	out     io.Writer
	outMu   sync.Mutex
	lines   chan message
	cancels chan struct{} // holds a token when the turn is cancelled

	session string
	past    []string // prompts of the session
	model   string
	mode    string
	asked   int
	result  string // of the last Shell, Read or Call
}

// Main runs the agent, whose home directory is home, until stdin ends. Its arguments are words that
// change what it does:
//
//	version=N          it speaks that version
//	die=METHOD         it exits when it gets this request, or session/cancel
//	error=METHOD:CODE  it answers the request with that error
//	details            such an error has details in its data
//	mute               it answers nothing
//	greets             it prints words for a person first
//	deaf               it heeds no cancellation
//	bare               it can neither load nor resume sessions, nor take directories
//	load               it can load sessions, and not resume them
//	models             it offers models m1 and m2, which are no setting
//	settings           it offers models m1 and m2, efforts low and high, and the mode plan
func Main(args []string, home string, in io.Reader, out io.Writer) int {
	a := &agent{
		args: args, home: home, out: out, lines: make(chan message), cancels: make(chan struct{}, 1),
		model: "m1", mode: "free",
	}
	if a.is("greets") {
		_, _ = io.WriteString(out, "Welcome!\nType your message.\n")
	}
	go a.read(in)
	for m := range a.lines {
		if code := a.handle(m); code != 0 {
			return code
		}
	}
	return 0
}

// is reports whether an argument was given.
func (a *agent) is(word string) bool { return slices.Contains(a.args, word) }

// read reads messages. It takes cancellations out of turn, as agents do.
func (a *agent) read(in io.Reader) {
	defer close(a.lines)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		if m.Method == "session/cancel" {
			select {
			case a.cancels <- struct{}{}:
			default:
			}
			continue
		}
		a.lines <- m
	}
}

func (a *agent) send(m message) {
	m.JSONRPC = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	a.outMu.Lock()
	defer a.outMu.Unlock()
	_, _ = a.out.Write(append(b, '\n'))
}

func raw(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (a *agent) update(v map[string]any) {
	a.send(message{Method: "session/update", Params: raw(map[string]any{"sessionId": a.session, "update": v})})
}

// handle answers a request. It returns the exit code of an agent that dies.
func (a *agent) handle(m message) int {
	if a.is("die=" + m.Method) {
		return 3
	}
	if a.is("mute") {
		return 0
	}
	for _, arg := range a.args {
		var code int
		method, rest, _ := strings.Cut(strings.TrimPrefix(arg, "error="), ":")
		if _, err := fmt.Sscan(rest, &code); err == nil && method == m.Method {
			var data any
			if a.is("details") {
				data = map[string]any{"details": "the key has no credit"}
			}
			a.send(message{ID: m.ID, Error: &failure{code, "scripted error", data}})
			return 0
		}
	}
	var p struct {
		Session string `json:"sessionId"`
		Config  string `json:"configId"`
		Value   string `json:"value"`
		Mode    string `json:"modeId"`
		Model   string `json:"modelId"`
		Prompt  []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	}
	_ = json.Unmarshal(m.Params, &p)
	answer := func(v any) { a.send(message{ID: m.ID, Result: raw(v)}) }
	switch m.Method {
	case "initialize":
		answer(a.initialize())
	case "authenticate", "session/close":
		answer(map[string]any{})
	case "session/new":
		a.session = fmt.Sprintf("fake-%d-%d", os.Getpid(), time.Now().UnixNano())
		answer(a.opened(a.session))
	case "session/load", "session/resume":
		b, err := os.ReadFile(a.file(p.Session))
		if err != nil || json.Unmarshal(b, &a.past) != nil {
			a.send(message{ID: m.ID, Error: &failure{-32002, "no such session", nil}})
			return 0
		}
		a.session = p.Session
		if m.Method == "session/load" {
			a.say("", "this was said before")
		}
		answer(a.opened(""))
	case "session/set_config_option":
		if p.Config == "model" {
			a.model = p.Value
		}
		answer(a.opened(""))
	case "session/set_model":
		a.model = p.Model
		answer(map[string]any{})
	case "session/set_mode":
		a.mode = p.Mode
		answer(map[string]any{})
	case "session/prompt":
		return a.turn(m.ID, p.Prompt[0].Text)
	default:
		if m.Method != "" && m.ID != nil {
			a.send(message{ID: m.ID, Error: &failure{-32601, "unknown", nil}})
		}
	}
	return 0
}

func (a *agent) initialize() any {
	version := 1
	for _, arg := range a.args {
		_, _ = fmt.Sscanf(arg, "version=%d", &version)
	}
	sessions := map[string]any{"close": map[string]any{}}
	if !a.is("bare") {
		sessions["additionalDirectories"] = map[string]any{}
		if !a.is("load") {
			sessions["resume"] = map[string]any{}
		}
	}
	return map[string]any{
		"protocolVersion":   version,
		"agentCapabilities": map[string]any{"loadSession": !a.is("bare"), "sessionCapabilities": sessions},
		"agentInfo":         map[string]any{"name": "fake", "version": "7.8.9"},
		"authMethods":       []any{map[string]any{"id": "fake-login", "name": "Log in"}},
	}
}

// opened is the result of a request that opens or changes a session.
func (a *agent) opened(id string) any {
	out := map[string]any{}
	if id != "" {
		out["sessionId"] = id
	}
	if a.is("models") {
		out["models"] = map[string]any{
			"currentModelId":  a.model,
			"availableModels": []any{map[string]any{"modelId": "m1"}, map[string]any{"modelId": "m2"}},
		}
	}
	if a.is("settings") {
		values := func(names ...string) (all []any) {
			for _, n := range names {
				all = append(all, map[string]any{"value": n, "name": n})
			}
			return all
		}
		out["configOptions"] = []any{
			map[string]any{
				"id": "model", "category": "model", "type": "select", "currentValue": a.model,
				"options": []any{map[string]any{"group": "g", "name": "G", "options": values("m1", "m2")}},
			},
			map[string]any{
				"id": "thinking", "category": "thought_level", "type": "select", "currentValue": "low",
				"options": values("low", "high"),
			},
		}
		out["modes"] = map[string]any{"currentModeId": a.mode, "availableModes": []any{map[string]any{"id": "plan"}}}
	}
	return out
}

func (a *agent) file(session string) string {
	return filepath.Join(a.home, ".fake", filepath.Base(session)+".json")
}

func (a *agent) say(id, text string) {
	a.update(map[string]any{
		"sessionUpdate": "agent_message_chunk", "messageId": id, "content": map[string]any{"type": "text", "text": text},
	})
}

// turn does what the script of a prompt says.
func (a *agent) turn(id json.RawMessage, prompt string) int {
	select {
	case <-a.cancels: // of an earlier turn
	default:
	}
	a.past = append(a.past, prompt)
	_ = os.MkdirAll(filepath.Dir(a.file(a.session)), 0o700)
	_ = os.WriteFile(a.file(a.session), raw(a.past), 0o600)
	var steps []Step
	if _, script, ok := strings.Cut(prompt, marker); !ok ||
		json.NewDecoder(strings.NewReader(script)).Decode(&steps) != nil {
		steps = []Step{{Say: "answer to: " + prompt}}
	}
	end := func(stop string) {
		a.send(message{ID: id, Result: raw(map[string]any{
			"stopReason": stop, "usage": map[string]any{"inputTokens": 10, "outputTokens": 2},
		})})
	}
	for _, s := range steps {
		switch {
		case s.Die:
			return 3
		case s.Hang:
			if a.is("deaf") {
				select {}
			}
			<-a.cancels
			if a.is("die=session/cancel") {
				return 3
			}
			end("cancelled")
			return 0
		case s.Error != 0:
			a.send(message{ID: id, Error: &failure{s.Error, "scripted error", nil}})
			return 0
		case s.Stop != "":
			end(s.Stop)
			return 0
		}
		a.step(&s)
	}
	end("end_turn")
	return 0
}

// step does one step that does not end the turn.
func (a *agent) step(s *Step) {
	switch {
	case s.TellAll:
		a.say(s.ID, fmt.Sprintf("model %s, mode %s, prompts %q", a.model, a.mode, a.past))
	case s.TellResult:
		a.say(s.ID, a.result)
	case s.Say != "":
		a.say(s.ID, s.Say)
	case s.Shell != "":
		a.update(map[string]any{
			"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Terminal", "kind": "execute", "status": "pending",
		})
		a.update(map[string]any{
			"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": s.Shell, "status": "in_progress",
		})
		b, err := exec.CommandContext(context.Background(), "bash", "-c", s.Shell).CombinedOutput()
		a.result = fmt.Sprintf("%s%v", b, err)
	case s.Read != "":
		a.update(map[string]any{
			"sessionUpdate": "tool_call", "toolCallId": "r", "title": "Read", "kind": "read", "status": "pending",
			"locations": []any{map[string]any{"path": s.Read}},
		})
		b, err := os.ReadFile(s.Read)
		a.result = fmt.Sprintf("read %q, %v", b, err)
	case s.Call != "":
		a.call(s)
	case s.Plan != "":
		a.update(map[string]any{"sessionUpdate": "plan", "entries": []any{
			map[string]any{"content": s.Plan, "status": "in_progress"},
		}})
	case s.Cost != 0:
		a.update(map[string]any{
			"sessionUpdate": "usage_update", "cost": map[string]any{"amount": s.Cost, "currency": "USD"},
		})
	case s.Noise != "":
		_, _ = io.WriteString(a.out, s.Noise+"\n")
	case s.Await != "":
		for _, err := os.Stat(s.Await); err != nil; _, err = os.Stat(s.Await) {
			<-time.After(5 * time.Millisecond)
		}
	}
}

// call makes a request to the host, and then reads the answers.
func (a *agent) call(s *Step) {
	times := cmp.Or(s.Times, 1)
	for range times {
		a.asked++
		a.send(message{ID: raw(a.asked), Method: s.Call, Params: s.Params})
	}
	var results []string
	for len(results) < times {
		m, ok := <-a.lines
		if !ok {
			return
		}
		if m.Method == "" {
			results = append(results, string(m.Result)+string(raw(m.Error)))
		}
	}
	slices.Sort(results)
	a.result = strings.Join(slices.Compact(results), "\n")
}
