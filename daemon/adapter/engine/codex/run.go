package codex

import (
	"encoding/json"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/telling"
	"holdline/protocol/fault"
)

// Without a connection the program asks its API again and again, at ever longer pauses,
// and never gives up. (After failed answers it gives up by itself, after five of them,
// in some 25 s.) A run is stuck when the program has reported so many retries in a row,
// over so long a time.
const (
	maxRetries = 4
	maxAsking  = 40 * time.Second
)

// Run reads the stream of one run. See [engine.Run].
type Run struct {
	engine.Stream

	req     engine.Request
	session string
	started bool
	said    engine.Texts
	answer  string    // the model's last message
	usage   usage     // of all turns
	turns   int       // that ended well
	failed  string    // what the program said of the turn that failed
	over    bool      // a turn has failed
	retries int       // in a row
	asking  time.Time // when the first of these retries was reported
	stuck   bool      // the program has retried too often, for too long
	denied  []engine.Denial
}

// message is the union of the lines that matter. Lines of an unknown type are skipped.
type message struct {
	Type   string `json:"type"`
	Thread string `json:"thread_id"` // thread.started
	Item   *item  `json:"item"`      // item.started, item.updated, item.completed
	Usage  usage  `json:"usage"`     // turn.completed
	Text   string `json:"message"`   // error
	Error  struct {
		Text string `json:"message"`
	} `json:"error"` // turn.failed
}

// item is one step of a turn: a message of the model, a command, or another use of a
// tool. A comment names the types that have a field.
type item struct {
	Type    string `json:"type"`
	Text    string `json:"text"`    // agent_message, reasoning
	Command string `json:"command"` // command_execution
	Status  string `json:"status"`
	Server  string `json:"server"` // mcp_tool_call
	Tool    string `json:"tool"`
	Query   string `json:"query"` // web_search
}

// usage counts the tokens of a turn.
type usage struct {
	Input      int64 `json:"input_tokens"` // those of the cache, too
	Cached     int64 `json:"cached_input_tokens"`
	CacheWrite int64 `json:"cache_write_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

// NewRun returns the reader of one run of req.
func (c *Codex) NewRun(req engine.Request, _ engine.Info) engine.Run { return &Run{req: req} }

// Begin returns the prompt itself: the program reads its stdin to the end. NULs and
// bytes that are no UTF-8 become the replacement character.
func (r *Run) Begin() []byte {
	return []byte(strings.ReplaceAll(strings.ToValidUTF8(r.req.Prompt, "\uFFFD"), "\x00", "\uFFFD"))
}

// Once returns true: the prompt is all that the program reads.
func (r *Run) Once() bool { return true }

// Interrupt returns nil: the program reads nothing after its prompt.
func (r *Run) Interrupt() []byte { return nil }

// BestAnswer returns nil, for the same reason.
func (r *Run) BestAnswer() []byte { return nil }

// Line reads one line of the stream; see [engine.Run]. Each line but an error shows
// that the API answers, so the count of retries starts anew.
func (r *Run) Line(text []byte) []engine.Event {
	var m message
	if noise, ok := r.Decode(text, &m); !ok {
		return noise
	}
	if m.Type == "error" {
		return r.retry(m.Text)
	}
	r.retries = 0
	switch m.Type {
	case "thread.started":
		r.started, r.session = true, m.Thread
		return []engine.Event{{Kind: engine.Started, Session: m.Thread, Model: r.req.Model}}
	case "item.started", "item.updated", "item.completed":
		if m.Item != nil {
			return r.item(m.Type, m.Item)
		}
	case "turn.completed":
		r.turns++
		r.usage.Input += m.Usage.Input
		r.usage.Cached += m.Usage.Cached
		r.usage.CacheWrite += m.Usage.CacheWrite
		r.usage.Output += m.Usage.Output
		return []engine.Event{{Kind: engine.TurnDone, Session: r.session, Answered: r.answered()}}
	case "turn.failed":
		r.over, r.failed = true, m.Error.Text
		return []engine.Event{{Kind: engine.TurnDone, Session: r.session}}
	}
	return []engine.Event{{Kind: engine.Waiting}}
}

// retry reads an error that does not end the turn: the program asks its API again. It
// reports when the run is stuck.
func (r *Run) retry(text string) []engine.Event {
	if r.retries++; r.retries == 1 {
		r.asking = time.Now()
	}
	events := []engine.Event{{Kind: engine.Retry, Text: fault.Short(text, 160)}}
	if r.retries >= maxRetries && time.Since(r.asking) >= maxAsking {
		r.stuck, r.failed = true, text
		events = append(events, engine.Event{Kind: engine.Stuck})
	}
	return events
}

// item reads the beginning, the progress or the end of a step. kind is the type of its
// line.
func (r *Run) item(kind string, it *item) []engine.Event {
	begun := kind == "item.started"
	switch it.Type {
	case "agent_message":
		if kind == "item.completed" && strings.TrimSpace(it.Text) != "" {
			r.answer = it.Text
			r.said.Add(it.Text)
			return []engine.Event{{Kind: engine.Text, Text: it.Text}}
		}
	case "command_execution":
		if it.Status == "declined" && len(r.denied) < maxDenials {
			r.denied = append(r.denied, engine.Denial{Tool: "shell"})
		}
		if begun {
			return []engine.Event{{Kind: engine.ToolUse, Text: "shell " + fault.Short(it.Command, 80)}}
		}
	case "mcp_tool_call":
		if begun {
			return []engine.Event{{Kind: engine.ToolUse, Text: fault.Short(it.Server+" "+it.Tool, 80)}}
		}
	case "web_search":
		if begun {
			return []engine.Event{{Kind: engine.ToolUse, Text: "web search " + fault.Short(it.Query, 80)}}
		}
	}
	return []engine.Event{{Kind: engine.Waiting}}
}

// maxDenials bounds the denials of a run that are kept.
const maxDenials = 100

// Text returns what the model has said so far.
func (r *Run) Text() string { return strings.Join(r.said.List(), "\n\n") }

// answered reports whether the turn ended with an answer.
func (r *Run) answered() bool { return r.turns > 0 && !r.over && strings.TrimSpace(r.answer) != "" }

// named is Codex in faults.
var named = engine.Program{Name: "Codex", Operation: engine.Operation}

// Outcome returns what came of the run. It has no cost, since the program reports none.
// With a schema the last message is the structured answer.
func (r *Run) Outcome(exit engine.Exit, why engine.Why) engine.Outcome {
	out := engine.Outcome{
		Session: r.session, Turns: r.turns, Denials: r.denied,
		Usage: engine.Usage{
			Input: r.usage.Input - r.usage.Cached, Output: r.usage.Output, CacheRead: r.usage.Cached,
			CacheWrite: r.usage.CacheWrite,
		},
	}
	if r.req.Model != "" && r.turns > 0 {
		out.Models = []string{r.req.Model}
	}
	if out.Fault = r.fault(exit, why); out.Fault != nil {
		out.Answer = r.Text()
		out.Partial = out.Answer != ""
		return out
	}
	out.Answer = r.answer
	if len(r.req.Schema) > 0 && json.Valid([]byte(r.answer)) {
		out.Structured = json.RawMessage(r.answer)
	}
	return out
}

// fault returns nil if there is an answer, else why there is none.
func (r *Run) fault(exit engine.Exit, why engine.Why) *fault.Record {
	if r.answered() {
		return nil
	}
	if f := named.Ended(exit, why); f != nil {
		return f
	}
	switch {
	case r.over:
		return named.Down(exit, "", "Codex could not finish its turn: %s", fault.Short(r.failed, 400))
	case r.stuck:
		return named.Down(exit, fault.Unreachable, "the API cannot be reached, asked %d times: %s", r.retries,
			fault.Short(r.failed, 400))
	case r.turns > 0:
		return named.Down(exit, fault.EmptyAnswer, "the model gave an empty answer")
	case why.Late():
		return named.Late(exit, why)
	case r.req.Session != "" && !r.started && exit.Known && exit.Signal == "":
		said := "it was not found"
		if line := telling.Line(exit.Stderr); line != "" {
			said = fault.Short(line, 400)
		}
		return exit.Explain("", fault.New(fault.InvalidInput, fault.Engine, engine.Operation,
			"session: cannot go on from %s: %s", r.req.Session, said))
	}
	return named.Silent(exit, &r.Stream)
}
