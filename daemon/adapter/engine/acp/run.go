package acp

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// step is what the agent was asked last.
type step int

const (
	starting step = iota
	authenticating
	opening   // a session
	setting   // its model, effort or mode
	prompting // the turn is the agent's
	idle      // the turn is over, or the run has failed
)

// Run is the dialogue with one run of an agent. See [engine.Run]. It has one request under way
// at a time; the agent's own requests are answered at once.
type Run struct {
	engine.Stream

	named engine.Program
	req   engine.Request
	agent engine.Agent

	step    step
	asked   int // id of our last request
	caps    initialized
	session opened
	unset   []string // settings that are still to be made
	failed  *fault.Record

	said     engine.Texts // all that the model has said
	answer   []string     // what it has said since it last used a tool
	text     strings.Builder
	textID   string // of the message that text is the beginning of
	tool     string // id of the tool use that is not reported yet; "" for none
	toolText string

	turns       int
	stop        string // stop reason of the last turn
	interrupted bool   // the turn was cancelled
	best        bool   // the best answer was asked for
	usage       engine.Usage
	cost        *float64 // of the session; nil if the agent does not tell
	costBefore  float64  // what the session had cost before this run
	denials     []engine.Denial
	bytesRead   int // by fs/read_text_file

	waiting []spoken // said to the run, for its next turn
	brought []spoken // in the prompt of this turn, until the agent does something
}

// spoken is a message of [engine.Listener.Say].
type spoken struct{ id, text string }

// NewRun returns the dialogue of one run of req.
func (a *Agent) NewRun(req engine.Request, info engine.Info) engine.Run {
	agent := agentOf(info)
	return &Run{
		named: engine.Program{Name: agent.Name, Operation: engine.Operation}, req: req, agent: agent,
		unset: []string{"model", "effort", "mode"},
	}
}

// Begin returns the request initialize. The agent is offered nothing, but for the reading of
// files if the configuration says so.
func (r *Run) Begin() []byte {
	offered := map[string]any{}
	if r.agent.FS {
		offered["fs"] = map[string]any{"readTextFile": true, "writeTextFile": false}
	}
	return r.request(starting, methodInitialize, map[string]any{
		"protocolVersion": protocolVersion, "clientCapabilities": offered,
		"clientInfo": map[string]any{"name": "holdline", "title": "Holdline", "version": "1"},
	})
}

// Introduced reports whether the agent has answered initialize.
func (r *Run) Introduced() bool { return r.step != starting }

// Once returns false: the dialogue goes on.
func (r *Run) Once() bool { return false }

// request returns the line of our next request.
func (r *Run) request(s step, method string, params any) []byte {
	r.step = s
	r.asked++
	id := jsonrpc.ID(strconv.Itoa(r.asked))
	return append(jsonrpc.AppendRequest(nil, id, method, jsonrpc.Encode(params)), '\n')
}

// ask returns the event by which the agent gets our next request.
func (r *Run) ask(s step, method string, params any) []engine.Event {
	return []engine.Event{{Kind: engine.Write, Line: r.request(s, method, params)}}
}

// Interrupt returns the line that cancels the turn, and nil if there is none under way.
func (r *Run) Interrupt() []byte {
	if r.step != prompting {
		return nil
	}
	r.interrupted = true
	params := jsonrpc.Encode(map[string]any{"sessionId": r.session.Session})
	return append(jsonrpc.AppendRequest(nil, nil, noteCancel, params), '\n')
}

// bestAnswer asks for an answer when the time is up.
const bestAnswer = "The time for this task is up. Do not call any tool. Answer now, as well as you can, from what " +
	"you have seen so far, and say what you could not check."

// BestAnswer returns the prompt that asks for the best answer so far.
func (r *Run) BestAnswer() []byte {
	r.best = true
	return r.prompt(bestAnswer)
}

// settle is how long an agent has to store its session after a turn. claude-agent-acp ends its
// Claude Code at once when the session or stdin is closed, and Claude Code writes some 0.1 s
// late (0.49.0, 2.1.329).
const settle = time.Second

// Close returns the request that ends the session, and nil if the agent has none.
func (r *Run) Close() (line []byte, after time.Duration) {
	if r.session.Session == "" || !has(r.caps.Capabilities.Session.Close) {
		return nil, settle
	}
	return r.request(idle, methodClose, map[string]any{"sessionId": r.session.Session}), settle
}

// Say keeps a message for the next turn.
func (r *Run) Say(id, text string) []byte {
	r.waiting = append(r.waiting, spoken{id, text})
	return []byte{}
}

// prompt returns the request of a turn.
func (r *Run) prompt(text string) []byte {
	r.answer, r.stop, r.failed, r.interrupted = nil, "", nil, false
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if strings.HasPrefix(text, "/") {
		text = " " + text // else the agent would take it for a command
	}
	if len(r.req.Schema) > 0 {
		text += "\n\nAnswer with one JSON object that fits this JSON Schema, and with nothing else:\n" +
			string(r.req.Schema)
	}
	return r.request(prompting, methodPrompt, map[string]any{
		"sessionId": r.session.Session,
		"prompt":    []any{map[string]any{"type": "text", "text": text}},
	})
}

// Line takes one line of the agent; see [engine.Run].
func (r *Run) Line(text []byte) []engine.Event {
	var m message
	if noise, ok := r.Decode(text, &m); !ok {
		return noise
	}
	isRequest := len(m.ID) > 0 && string(m.ID) != "null"
	switch {
	case m.Method != "" && isRequest:
		return r.answerAgent(&m)
	case m.Method == noteUpdate:
		return append(r.heard(), r.update(m.Params)...)
	case m.Method == "" && r.step != idle && string(m.ID) == strconv.Itoa(r.asked):
		return r.proceed(&m)
	}
	return []engine.Event{{Kind: engine.Waiting}}
}

// heard reports the messages that were brought with the present prompt: the agent works on it.
func (r *Run) heard() []engine.Event {
	if r.step != prompting {
		return nil
	}
	var events []engine.Event
	for _, m := range r.brought {
		events = append(events, engine.Event{Kind: engine.Heard, Text: m.id})
	}
	r.brought = nil
	return events
}

// fail records why the run cannot go on before its first prompt.
func (r *Run) fail(f *fault.Record) []engine.Event {
	r.failed, r.step = f, idle
	return []engine.Event{{Kind: engine.Stuck}}
}

// failure returns the fault of a request that the agent has answered with an error. What an error
// means is known only of one code; its text is shown and never searched.
func (r *Run) failure(what string, m *message) *fault.Record {
	said := fault.Short(m.Error.Message, 400)
	if details := detailsOf(m.Error.Data); details != "" && !strings.Contains(said, details) {
		said += ": " + details // many agents say no more than "Internal error" in the message
	}
	if m.Error.Code != codeAuthRequired {
		return fault.New(fault.DownstreamFailure, fault.Engine, engine.Operation, "%s: %s: %s (%d)", r.agent.Name, what,
			said, m.Error.Code)
	}
	var ways []string
	for _, w := range r.caps.Methods {
		ways = append(ways, w.ID)
	}
	return fault.New(fault.Unauthenticated, fault.Engine, engine.Operation,
		"%s is not logged in: %s; put its API key into consult.agents.%s.env, or name the files of its login in "+
			".login (its own ways to log in: %s)", r.agent.Name, said, r.agent.Name,
		strings.Join(ways, ", ")).WithReason(fault.NotLoggedIn)
}

// detailsOf returns what the data of an error says for people; "" for nothing.
func detailsOf(data json.RawMessage) string {
	var words string
	if json.Unmarshal(data, &words) != nil {
		var of struct {
			Details string `json:"details"`
			Detail  string `json:"detail"`
			Message string `json:"message"`
		}
		decode(data, &of)
		words = cmp.Or(of.Details, of.Detail, of.Message)
	}
	return fault.Short(words, 400)
}

// proceed takes the agent's answer to our request, and makes the next one.
func (r *Run) proceed(m *message) []engine.Event {
	switch r.step {
	case starting:
		if m.Error != nil {
			return r.fail(r.failure("it does not start", m))
		}
		decode(m.Result, &r.caps)
		if r.caps.Version != protocolVersion {
			return r.fail(fault.New(fault.SpawnFailure, fault.Engine, engine.Operation,
				"%s speaks version %d of the Agent Client Protocol, and Holdline version %d", r.agent.Name,
				r.caps.Version, protocolVersion).WithReason(fault.Version))
		}
		if r.agent.Auth != "" {
			return r.ask(authenticating, methodAuthenticate, map[string]any{"methodId": r.agent.Auth})
		}
		return r.open()
	case authenticating:
		if m.Error != nil {
			return r.fail(r.failure("it cannot log in", m))
		}
		return r.open()
	case opening:
		if m.Error != nil {
			return r.fail(r.failure("it opens no session", m))
		}
		decode(m.Result, &r.session)
		if r.req.Session != "" {
			r.session.Session = r.req.Session
		}
		if r.session.Session == "" {
			return r.fail(fault.New(fault.DownstreamFailure, fault.Engine, engine.Operation,
				"%s has opened a session without an id", r.agent.Name).WithReason(fault.BadOutput))
		}
		return r.configure()
	case setting:
		if m.Error != nil {
			return r.fail(r.failure("it refuses a setting", m))
		}
		var changed opened
		if decode(m.Result, &changed); changed.Options != nil {
			r.session.Options = changed.Options
		}
		return r.configure()
	case prompting:
		return r.endTurn(m)
	case idle:
	}
	return nil
}

// open asks for a session: a new one, or the one that the run goes on from.
func (r *Run) open() []engine.Event {
	params := map[string]any{"cwd": r.req.Cwd, "mcpServers": []any{}}
	if len(r.req.AddDirs) > 0 {
		if !has(r.caps.Capabilities.Session.Directories) {
			return r.fail(invalid("add_dirs: %s looks into one directory only; leave them out", r.agent.Name))
		}
		params["additionalDirectories"] = r.req.AddDirs
	}
	method := methodNew
	switch {
	case r.req.Session == "":
	case has(r.caps.Capabilities.Session.Resume):
		method = methodResume
	case r.caps.Capabilities.Load:
		method = methodLoad
	default:
		return r.fail(invalid("session: %s cannot go on from one", r.agent.Name))
	}
	if r.req.Session != "" {
		params["sessionId"] = r.req.Session
	}
	return r.ask(opening, method, params)
}

// configure makes the next setting of the session, and then prompts.
func (r *Run) configure() []engine.Event {
	for len(r.unset) > 0 {
		kind := r.unset[0]
		r.unset = r.unset[1:]
		category, want := kind, ""
		switch kind {
		case "model":
			want = r.req.Model
		case "effort":
			category, want = "thought_level", r.req.Effort
		case "mode":
			want = r.agent.Mode
		}
		if want != "" {
			return r.set(kind, category, want)
		}
	}
	started := engine.Event{Kind: engine.Started, Model: r.model()}
	return []engine.Event{started, {Kind: engine.Write, Line: r.prompt(r.req.Prompt)}}
}

// set asks for a setting of the session. It fails the run if the agent does not offer the value.
func (r *Run) set(kind, category, want string) []engine.Event {
	var known []string
	for _, by := range []func(*option) bool{
		func(o *option) bool { return o.Category == category },
		func(o *option) bool { return o.ID == category },
	} {
		for i := range r.session.Options {
			o := &r.session.Options[i]
			switch {
			case !by(o):
			case slices.Contains(o.values(), want):
				return r.ask(setting, methodOption, map[string]any{
					"sessionId": r.session.Session, "configId": o.ID, "value": want,
				})
			case len(known) == 0:
				known = o.values()
			}
		}
	}
	method, id := methodModel, "modelId"
	var ids []string
	switch kind {
	case "model":
		for _, m := range r.session.Models.Available {
			ids = append(ids, m.ID)
		}
	case "mode":
		method, id = methodMode, "modeId"
		for _, m := range r.session.Modes.Available {
			ids = append(ids, m.ID)
		}
		kind = "consult.agents." + r.agent.Name + ".mode"
	}
	if slices.Contains(ids, want) {
		if method == methodModel {
			r.session.Models.Current = want
		}
		return r.ask(setting, method, map[string]any{"sessionId": r.session.Session, id: want})
	}
	known = append(known, ids...)
	if len(known) == 0 {
		return r.fail(invalid("%s: %s lets nobody choose one; leave it out", kind, r.agent.Name))
	}
	return r.fail(invalid("%s: %s has no %s; it has %s", kind, r.agent.Name, want,
		fault.Short(strings.Join(known, ", "), 1000)))
}

// model returns the model of the session, or "" if the agent does not tell.
func (r *Run) model() string {
	for _, o := range r.session.Options {
		if o.Category == "model" || o.ID == "model" {
			return o.Current
		}
	}
	return cmp.Or(r.session.Models.Current, r.req.Model)
}

// endTurn takes the answer to a prompt. Messages that came meanwhile make the next one.
func (r *Run) endTurn(m *message) []engine.Event {
	events := append(r.heard(), r.endMessage()...)
	events = append(events, r.endTool()...)
	r.step = idle
	if m.Error != nil {
		r.failed = r.failure("it could not finish its turn", m)
	} else {
		var p prompted
		decode(m.Result, &p)
		r.turns++
		r.stop = p.Stop
		r.usage.Input += p.Usage.Input
		r.usage.Output += p.Usage.Output
		r.usage.CacheRead += p.Usage.CacheRead
		r.usage.CacheWrite += p.Usage.CacheWrite
	}
	events = append(events, engine.Event{Kind: engine.TurnDone, CostUSD: r.spent(), Answered: r.answered()})
	if len(r.waiting) == 0 || r.interrupted || r.best {
		return events
	}
	r.brought, r.waiting = r.waiting, nil
	texts := make([]string, len(r.brought))
	for i, m := range r.brought {
		texts[i] = m.text
	}
	return append(events, engine.Event{Kind: engine.Write, Line: r.prompt(strings.Join(texts, "\n\n"))})
}

// update takes a notification of what the agent does. What it says before the first prompt is the
// history of an earlier session.
func (r *Run) update(params json.RawMessage) []engine.Event {
	var n update
	decode(params, &n)
	u := &n.Update
	if u.Cost != nil && u.Cost.Currency == "USD" {
		r.cost = &u.Cost.Amount
		if r.step < prompting {
			r.costBefore = u.Cost.Amount
		}
	}
	if u.Options != nil {
		r.session.Options = u.Options
	}
	if r.step != prompting {
		return nil
	}
	switch u.Kind {
	case "agent_message_chunk":
		var block struct {
			Text string `json:"text"`
		}
		decode(u.Content, &block)
		return append(r.endTool(), r.chunk(u.MessageID, block.Text)...)
	case "tool_call":
		events := append(r.endMessage(), r.endTool()...)
		r.answer, r.tool = nil, u.Tool
		r.toolText = toolText(u.ToolKind, u.Title)
		return append(events, r.readsOf(&n)...)
	case "tool_call_update":
		reads := r.readsOf(&n)
		if u.Tool != "" && u.Tool == r.tool { // agents say only now what the tool is for
			if u.Title != "" {
				kind, _, _ := strings.Cut(r.toolText, " ")
				r.toolText = toolText(kind, u.Title)
			}
			return append(reads, r.endTool()...)
		}
		if reads != nil {
			return reads
		}
	case "plan":
		for _, e := range u.Entries {
			if e.Status == "in_progress" {
				return []engine.Event{{Kind: engine.ToolUse, Text: "plan: " + fault.Short(e.Content, 80)}}
			}
		}
	}
	return []engine.Event{{Kind: engine.Waiting, CostUSD: r.spent()}}
}

// readsOf returns an event for each file of the project that a tool call says it works on: it may be a
// named pipe, for which the agent would wait. The agent says so before it reads.
func (r *Run) readsOf(n *update) (events []engine.Event) {
	for _, at := range n.Update.Locations {
		for _, dir := range append([]string{r.req.Cwd}, r.req.AddDirs...) {
			if rel, err := filepath.Rel(dir, at.Path); err == nil && filepath.IsLocal(rel) && filepath.IsAbs(at.Path) {
				events = append(events, engine.Event{Kind: engine.Waiting, CostUSD: r.spent(), Path: at.Path})
				break
			}
		}
	}
	return events
}

// maxText bounds a message of the model, in bytes. What comes behind is dropped.
const maxText = 2 << 20

// chunk adds a piece to the text of a message.
func (r *Run) chunk(id, text string) (events []engine.Event) {
	if id != r.textID {
		events = r.endMessage()
		r.textID = id
	}
	if text == "" || r.text.Len()+len(text) > maxText {
		return append(events, engine.Event{Kind: engine.Waiting})
	}
	r.text.WriteString(text)
	return append(events, engine.Event{Kind: engine.Piece, Text: text})
}

// endMessage ends the text of a message, if there is one.
func (r *Run) endMessage() []engine.Event {
	text := r.text.String()
	r.text.Reset()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	r.said.Add(text)
	r.answer = append(r.answer, text)
	return []engine.Event{{Kind: engine.Text, Text: text}}
}

// endTool reports a tool use, if there is one that is not reported yet.
func (r *Run) endTool() []engine.Event {
	if r.tool == "" {
		return nil
	}
	r.tool = ""
	return []engine.Event{{Kind: engine.ToolUse, Text: fault.Short(strings.TrimSpace(r.toolText), 80)}}
}

// spent returns what this run has cost, and nil if the agent does not tell.
func (r *Run) spent() *float64 {
	if r.cost == nil {
		return nil
	}
	return new(max(*r.cost-r.costBefore, 0))
}

// decode reads a part of a message. Fields of another type than wanted are left out: the rest is
// there.
func decode(raw json.RawMessage, v any) { _ = json.Unmarshal(raw, v) }
