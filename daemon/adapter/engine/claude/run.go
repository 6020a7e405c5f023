package claude

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/lazyregexp"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// synthetic is the model that the program names for messages of its own.
const synthetic = "<synthetic>"

// Limits of what a run keeps of a stream.
const (
	maxText    = 2 << 20 // bytes of a text that is being written
	maxDenials = 100
	maxWord    = 80      // characters of a word of the program that is passed on
	maxUsage   = 8 << 10 // bytes of what the models have used
)

// Run reads the stream of one run. See [engine.Run].
type Run struct {
	engine.Stream

	req     engine.Request
	session string
	model   string // of the beginning
	started bool

	replays bool              // the program repeats each message that it has taken
	open    map[string]string // uuids of messages that it has not taken yet, with their ids

	said engine.Texts    // whole texts of the model
	live strings.Builder // the text that is being written

	turn     int    // number of the model's messages so far
	speaking string // id of the model's latest message

	results   int
	last      result           // the latest
	spent     map[string]usage // by model, this run alone
	cost      float64          // of spent
	costKnown bool             // a result said what it cost, and knew
	turns     int              // of all results
	api       time.Duration    // of all results
	apiError  string           // word of the last synthetic message
	stop      string           // its stop reason
	retry     *message         // the last api_retry since the model spoke
	limit     json.RawMessage  // the last rate_limit_info
	denied    []engine.Denial  // as they happened, for runs without a result
}

// NewRun returns the reader of one run of req with the program info.
func (c *Claude) NewRun(req engine.Request, info engine.Info) engine.Run {
	return &Run{
		req: req, spent: map[string]usage{},
		replays: slices.Contains(info.Features, optReplay), open: map[string]string{},
	}
}

// Begin returns the line that carries the prompt.
func (r *Run) Begin() []byte { return userMessage(r.plain(r.req.Prompt), "") }

// Say returns the line of a message while the program works; see [engine.Listener]. The program
// puts the message behind the next result of a tool, or makes a turn of its own of it.
func (r *Run) Say(id, text string) []byte {
	if !r.replays {
		return nil
	}
	var random [16]byte
	_, _ = rand.Read(random[:])
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
	r.open[uuid] = id
	return userMessage(r.plain(text), uuid)
}

// plain returns text as the program takes it for words alone. It would take one that begins
// with a slash for one of its commands and answer "not available" as a success, so plain puts
// a space in front. It would attach a file that an @ names, so plain puts a space behind each.
func (r *Run) plain(text string) string {
	text = detach(clean(text), append([]string{r.req.Cwd}, r.req.AddDirs...))
	if strings.HasPrefix(text, "/") {
		text = " " + text
	}
	return text
}

// Once returns false: the program reads further messages.
func (r *Run) Once() bool { return false }

// Interrupt returns the line that stops the turn. The program answers with a result
// within milliseconds.
func (r *Run) Interrupt() []byte {
	return line(map[string]any{
		"type": "control_request", "request_id": "holdline-interrupt",
		"request": map[string]any{"subtype": "interrupt"},
	})
}

// BestAnswer returns the line that asks, after an interrupt, for the best answer so
// far. With a schema the program gives its answer by a tool, so that tool stays
// allowed.
func (r *Run) BestAnswer() []byte {
	tools := "Do not call any tool."
	if len(r.req.Schema) > 0 {
		tools = "Call no tool but StructuredOutput, by which you answer."
	}
	return userMessage("The time for this task is up. "+tools+
		" Answer now, as well as you can, from what you have seen so far, and say what you could not check.", "")
}

// clean returns s as JSON and the API accept it: NULs and bytes that are no UTF-8
// become the replacement character.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// mention matches an @ that the program may take for the name of a file to attach: one that is not
// inside a word, before anything but a space. Which form the name has depends on the version, and a
// name as plain as "notes" can be a link to any file. Of two, as in a diff, the second one counts
// only before what is surely a path.
var mention = lazyregexp.New(`(^|[^\pL\pN_@])@([^\s@])|(@)@([/~."'\\]|[^\s@]*/)`)

// doubled matches two, of which the first one names a file whose name begins with the second.
var doubled = lazyregexp.New(`(^|[^\pL\pN_])@(@)`)

// detach disarms every mention in text by a space behind its @. Two of them are left alone, unless
// one of dirs has a file whose name begins with an @.
func detach(text string, dirs []string) string {
	for mention().MatchString(text) { // again where two matches share a character
		text = mention().ReplaceAllString(text, "${1}${3}@ ${2}${4}")
	}
	if strings.Contains(text, "@@") && slices.ContainsFunc(dirs, hasAtSign) {
		for doubled().MatchString(text) {
			text = doubled().ReplaceAllString(text, "${1}@ ${2}")
		}
		text = detach(text, nil)
	}
	return text
}

// hasAtSign reports whether a directory has a file whose name begins with an @, or cannot be read.
func hasAtSign(dir string) bool {
	list, err := os.ReadDir(dir)
	return err != nil || slices.ContainsFunc(list, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "@") })
}

// userMessage returns a user message as one line, with a uuid unless that is "".
func userMessage(text, uuid string) []byte {
	m := map[string]any{
		"type": "user",
		"message": map[string]any{
			"role":    "user",
			"content": []any{map[string]any{"type": "text", "text": text}},
		},
	}
	if uuid != "" {
		m["uuid"] = uuid
	}
	return line(m)
}

// line returns v as one line of JSON. It cannot fail for the plain values that it gets.
func line(v any) []byte {
	b, err := jsonrpc.Marshal(v) // with escapes for HTML a prompt of code would grow by half
	if err != nil {
		return nil
	}
	return append(b, '\n')
}

// Line reads one line of the stream; see [engine.Run]. A line of an unknown type is
// skipped: new versions add types.
func (r *Run) Line(text []byte) []engine.Event {
	var m message
	if noise, ok := r.Decode(text, &m); !ok {
		return noise
	}
	if m.Session != "" && r.session == "" {
		r.session = m.Session
	}
	switch m.Type {
	case "system":
		return r.system(&m)
	case "rate_limit_event":
		return r.rateLimit(m.RateLimit)
	case "stream_event":
		return r.partial(&m)
	case "assistant":
		return r.assistant(&m)
	case "result":
		return r.result(&m)
	case "user":
		if id, ok := r.open[m.UUID]; ok {
			delete(r.open, m.UUID)
			return []engine.Event{{Kind: engine.Heard, Text: id}}
		}
		return []engine.Event{{Kind: engine.Waiting}}
	case "tool_progress", "control_response":
		return []engine.Event{{Kind: engine.Waiting}}
	}
	return nil
}

// system reads a line of type system: the start, a retry, a fallback or a denial.
func (r *Run) system(m *message) []engine.Event {
	switch m.Subtype {
	case "init":
		if r.started {
			return nil // again at each message
		}
		r.started = true
		r.session, r.model = m.Session, m.Model
		return []engine.Event{{Kind: engine.Started, Session: m.Session, Model: m.Model}}
	case "api_retry":
		r.retry = m
		return []engine.Event{{Kind: engine.Retry, Text: m.retryText()}}
	case "model_fallback":
		return []engine.Event{{
			Kind: engine.Fallback, Model: m.FallbackModel,
			Text: fault.Short(m.OriginalModel+" is not available, "+m.FallbackModel+" answers", 160),
		}}
	case "permission_denied":
		if len(r.denied) < maxDenials {
			r.denied = append(r.denied, engine.Denial{Tool: m.ToolName})
		}
	case "status":
		return []engine.Event{{Kind: engine.Waiting}}
	}
	return nil
}

// rateLimit keeps the latest state of the subscription's window, unless it is
// implausibly long.
func (r *Run) rateLimit(raw json.RawMessage) []engine.Event {
	if len(raw) == 0 || len(raw) > 4<<10 {
		return nil
	}
	r.limit = bytes.Clone(raw)
	return []engine.Event{{Kind: engine.Limit, Text: r.window().limitText(), Window: r.window().share()}}
}

// window returns the latest state of the subscription's window, or the zero value.
func (r *Run) window() rateLimit {
	var w rateLimit
	if json.Unmarshal(r.limit, &w) != nil {
		return rateLimit{}
	}
	return w
}

// partial reads a piece of a message that the model is still writing. Pieces of
// subagents are skipped.
func (r *Run) partial(m *message) []engine.Event {
	if m.Event == nil || m.Parent != "" {
		return nil
	}
	switch m.Event.Type {
	case "message_start", "content_block_start":
		r.live.Reset()
	case "content_block_delta":
		if m.Event.Delta.Type == "text_delta" && r.live.Len() < maxText {
			r.live.WriteString(m.Event.Delta.Text)
			return []engine.Event{{Kind: engine.Piece, Text: m.Event.Delta.Text}}
		}
	default:
		return nil
	}
	return []engine.Event{{Kind: engine.Waiting}}
}

// assistant reads a whole message of the model. The program sends a message once for
// each of its blocks, with the same id, so only a new id is a new turn. A synthetic
// message is the program's own word on an API error.
func (r *Run) assistant(m *message) []engine.Event {
	if m.Message == nil || m.Parent != "" {
		return nil
	}
	if m.Message.Model == synthetic {
		r.apiError, r.stop = word(m.Error), m.Message.StopReason
		return []engine.Event{{Kind: engine.Waiting}}
	}
	r.retry, r.apiError, r.stop = nil, "", ""
	if m.Message.ID == "" || m.Message.ID != r.speaking {
		r.turn, r.speaking = r.turn+1, m.Message.ID
	}
	var events []engine.Event
	for _, b := range m.Message.blocks() {
		switch b.Type {
		case "text":
			r.live.Reset()
			if strings.TrimSpace(b.Text) == "" {
				continue
			}
			r.said.Add(b.Text)
			events = append(events, engine.Event{Kind: engine.Text, Text: b.Text, Turn: r.turn})
		case "tool_use", "server_tool_use":
			events = append(events, engine.Event{
				Kind: engine.ToolUse, Text: describe(b, r.req.Cwd), Turn: r.turn, Path: pathOf(b, r.req.Cwd),
			})
		default:
			events = append(events, engine.Event{Kind: engine.Waiting})
		}
	}
	return events
}

// result reads the end of a turn, with its cost. Some versions report the cost since
// the last result, which is added up. The others report the sum of the process, so the
// latest one counts.
func (r *Run) result(m *message) []engine.Event {
	r.results++
	r.last = m.result
	r.last.subtype = m.Subtype
	r.live.Reset()
	r.turns += m.NumTurns
	r.api += ms(m.DurationAPIMS)
	if m.SinceLast != nil {
		for model, u := range m.SinceLast {
			r.spend(model, u)
			r.cost += u.CostUSD
		}
		r.costKnown = true
	} else if m.TotalCostUSD != nil {
		// Cumulative in this process: the latest counts.
		r.spent = map[string]usage{}
		for model, u := range m.ModelUsage {
			r.spend(model, u)
		}
		r.cost, r.costKnown = *m.TotalCostUSD, true
	}
	done := engine.Event{Kind: engine.TurnDone, Session: m.Session, Answered: r.answered()}
	if r.costKnown {
		done.CostUSD = new(r.cost)
	}
	return []engine.Event{done}
}

// spend adds u to the usage of a model. If the price of one part is unknown, the price
// of the sum is.
func (r *Run) spend(model string, u usage) {
	sum := r.spent[model]
	sum.Input += u.Input
	sum.Output += u.Output
	sum.CacheRead += u.CacheRead
	sum.CacheWrite += u.CacheWrite
	sum.CostUSD += u.CostUSD
	if u.CostBasis == "unknown" {
		sum.CostBasis = u.CostBasis
	}
	r.spent[model] = sum
}

// ms returns a number of milliseconds as a duration.
func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

// Text returns what the model has said so far, with the text that it is still writing.
func (r *Run) Text() string {
	parts := r.said.List()
	if strings.TrimSpace(r.live.String()) != "" {
		parts = append(slices.Clip(parts), r.live.String())
	}
	return strings.Join(parts, "\n\n")
}

// models returns the models that have answered, most output first.
func (r *Run) models() []string {
	names := slices.Collect(maps.Keys(r.spent))
	slices.SortFunc(names, func(a, b string) int {
		if d := r.spent[b].Output - r.spent[a].Output; d != 0 {
			return int(max(min(d, 1), -1))
		}
		return strings.Compare(a, b)
	})
	return names
}
