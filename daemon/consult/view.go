package consult

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/material"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
)

// pageUnits bounds the part of an answer in one result, in units of [cost]. Clients cut
// the text of a result, so the footer, and what the rendering adds, must still fit
// behind it.
const pageUnits = 37_000

// partialUnits bounds the part of an answer that follows a fault, in units of [cost].
const partialUnits = 20_000

// tellUsed is the share of a subscription's window from which on each answer names the
// window.
const tellUsed = 0.5

// listed bounds the rows of a list of consults.
const listed = 20

// page returns the part of text that begins at character offset and costs at most limit
// units, the offset of the rest, or 0 if there is none, and the number of characters of
// text. Beyond the end the part is empty.
func page(text string, offset, limit int) (part string, next, total int) {
	total = utf8.RuneCountInString(text)
	if offset >= total {
		return "", 0, total
	}
	n, units, start := 0, 0, -1
	for i, r := range text {
		if n == offset {
			start = i
		}
		if n >= offset {
			if units += cost(r); units > limit {
				return text[start:i], n, total
			}
		}
		n++
	}
	return text[start:], 0, total
}

// cost returns how many UTF-16 units a character takes in a JSON string: that is how
// clients count.
func cost(r rune) int {
	switch {
	case r == '\n' || r == '"' || r == '\\' || r == '\t' || r == '\r':
		return 2
	case r < 0x20 || r == 0x2028 || r == 0x2029:
		return 6
	case r > 0xffff:
		return 2
	}
	return 1
}

// value is an answer, or a page of it, as render=json shows it.
type value struct {
	Answer     string   `json:"answer"`
	ConsultID  string   `json:"consult_id"`
	State      State    `json:"state"`
	Partial    bool     `json:"partial"`
	Progress   string   `json:"progress,omitempty"`
	NextOffset int      `json:"next_offset,omitempty"`
	Length     int      `json:"answer_length"`
	SessionID  string   `json:"session_id,omitempty"`
	Models     []string `json:"models,omitempty"`
	CostUSD    *float64 `json:"cost_usd"`
	NumTurns   int      `json:"num_turns"`
	DurationMS int64    `json:"duration_ms"`
	StopReason string   `json:"stop_reason,omitempty"`
	Level      string   `json:"level"`
	EnforcedBy string   `json:"enforced_by"`
	DenialN    int      `json:"permission_denial_count"`
	Engine     string   `json:"engine"`

	Structured json.RawMessage `json:"structured,omitempty"`
	Window     *engine.Window  `json:"window,omitempty"`
	*extra
}

// extra is what detail=full adds to a value. In a value it is nil for detail=concise.
type extra struct {
	Cwd           string            `json:"cwd"`
	EngineVersion string            `json:"engine_version,omitempty"`
	Model         string            `json:"model,omitempty"`
	Usage         engine.Usage      `json:"usage"`
	APIDurationMS int64             `json:"duration_api_ms"`
	QueuedMS      int64             `json:"queued_ms"`
	CreatedUnixMS int64             `json:"created_unix_ms"`
	EndedUnixMS   int64             `json:"ended_unix_ms,omitempty"`
	Denials       []engine.Denial   `json:"permission_denials,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
	RateLimit     any               `json:"rate_limit,omitempty"`
	MaxUSD        float64           `json:"max_usd,omitempty"`
	SessionUSD    float64           `json:"session_cost_usd,omitempty"` // of the session that asked
	TodayUSD      float64           `json:"today_cost_usd,omitempty"`   // of the identity that asked
	Context       *material.Context `json:"context,omitempty"`
	Exit          string            `json:"exit,omitempty"`
	Fault         any               `json:"fault,omitempty"`
}

// Value returns the whole answer as render=json shows it, for the command line.
func (a *Answer) Value(d tool.Detail) any {
	v, _ := a.value(0, 0, d)
	return v
}

// value returns the page of the answer that begins at character offset, as a value and
// as text. limit is in units of [cost]; 0 means no limit. The structured answer is only
// on the first page, and only if it fits.
func (a *Answer) value(offset, limit int, d tool.Detail) (value, string) {
	if limit == 0 {
		limit = maxAnswer * 6
	}
	part, next, total := page(a.Text, offset, limit)
	v := value{
		Answer: part, ConsultID: a.ID, State: a.State, Partial: a.Partial, NextOffset: next, Length: total,
		SessionID: a.SessionID,
		Models:    a.Models, CostUSD: a.CostUSD, NumTurns: a.NumTurns, DurationMS: a.DurationMS,
		StopReason: a.StopReason,
		Level:      a.Level, EnforcedBy: a.EnforcedBy, DenialN: len(a.Denials),
		Engine: a.Engine, Window: a.Window,
	}
	if offset == 0 && len(a.Structured) <= limit {
		v.Structured = a.Structured
	}
	if a.State == Queued || a.State == Running || a.State == Cancelled {
		v.Progress = a.Why
	}
	if d == tool.Full {
		v.extra = &extra{
			Cwd: a.Cwd, MaxUSD: a.MaxUSD, SessionUSD: a.SessionUSD, TodayUSD: a.TodayUSD, Context: a.Context,
			EngineVersion: a.EngineVersion, Model: a.Model, Usage: a.Usage, APIDurationMS: a.APIDurationMS,
			QueuedMS: a.QueuedMS, CreatedUnixMS: a.CreatedUnixMS, EndedUnixMS: a.EndedUnixMS, Denials: a.Denials,
			Notes: a.Notes,
			Exit:  a.Exit,
		}
		if len(a.RateLimit) > 0 {
			v.extra.RateLimit = a.RateLimit
		}
		if len(a.Fault) > 0 {
			v.extra.Fault = a.Fault
		}
	}
	return v, part
}

// leastPage is the least part of an answer that a result carries, in units of [cost],
// even if the rest of the result is long.
const leastPage = 4_000

// fitting returns a page of the answer as render=json shows it, within [tool.MaxText],
// the size that clients accept. If it is too long, it leaves out the structured answer,
// then most of the context, and then shortens the page. Nothing is lost: the structured
// answer is also the text of the pages.
func (a *Answer) fitting(offset int, d tool.Detail) value {
	v, _ := a.value(offset, pageUnits, d)
	over := func() int { return units(v) - tool.MaxText }
	if over() > 0 {
		v.Structured = nil
	}
	if n := over(); n > 0 && v.extra != nil {
		v.Context = v.Context.Brief()
	}
	// What the page costs now is where the shortening begins: its bound may be far higher.
	limit := 0
	for _, r := range v.Answer {
		limit += cost(r)
	}
	for n := over(); n > 0 && limit > leastPage; n = over() {
		limit = max(limit-n, leastPage)
		v.Answer, v.NextOffset, _ = page(a.Text, offset, limit)
	}
	return v
}

// units returns the length of v as JSON in UTF-16 units, as clients count it, and 0 if
// v cannot be encoded.
func units(v any) int {
	b, err := jsonrpc.Marshal(v) // as the result is written
	if err != nil {
		return 0
	}
	n := 1 // the end of the line
	for _, r := range string(b) {
		if n++; r > 0xffff {
			n++
		}
	}
	return n
}

// footer returns the line below an answer: id, state, cost and what held the run to its
// level. With detail full it adds tokens, versions, sums of cost, directory and
// context.
func (a *Answer) footer(d tool.Detail) string {
	parts := []string{"consult " + a.ID}
	if a.State != Done {
		parts = append(parts, string(a.State))
	}
	if a.Partial && a.State == Done {
		parts = append(parts, "time was up: this is the best answer so far")
	}
	if a.SessionID != "" {
		parts = append(parts, "session "+a.SessionID)
	}
	if len(a.Models) > 0 {
		parts = append(parts, strings.Join(a.Models, "+"))
	}
	switch {
	case a.CostUSD != nil:
		parts = append(parts, fmt.Sprintf("$%.4f", *a.CostUSD))
	case a.State == Done:
		parts = append(parts, "cost not told by "+a.Engine)
	}
	if a.NumTurns > 0 {
		parts = append(parts, plural(a.NumTurns, "turn"))
	}
	parts = append(parts, seconds(time.Duration(a.DurationMS)*time.Millisecond))
	if a.Level != "" {
		parts = append(parts, "level "+a.Level+" enforced by "+a.EnforcedBy)
	}
	if n := len(a.Denials); n > 0 {
		parts = append(parts, plural(n, "tool use")+" denied")
	}
	if text := a.Window.String(); text != "" && (d == tool.Full || a.Window.Used >= tellUsed) {
		parts = append(parts, text)
	}
	if d == tool.Full {
		parts = append(parts, fmt.Sprintf("%d tokens in, %d out", a.Usage.Input+a.Usage.CacheRead+a.Usage.CacheWrite,
			a.Usage.Output))
		if a.EngineVersion != "" {
			parts = append(parts, a.Engine+" "+a.EngineVersion)
		}
		if a.TodayUSD > 0 {
			parts = append(parts, fmt.Sprintf("$%.4f in this session and $%.4f today", a.SessionUSD, a.TodayUSD))
		}
		parts = append(parts, "in "+a.Cwd)
		parts = append(parts, a.Notes...)
		parts = append(parts, a.Context.Lines()...)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// plural returns n with the word what, in the plural unless n is 1.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// seconds returns a duration for people: "12.3 s", or "2m5s" from a minute on.
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// more returns a line that says how to fetch the rest of an answer, or "" if there is
// none.
func (v *value) more() string {
	if v.NextOffset == 0 {
		return ""
	}
	return fmt.Sprintf("\n[the answer goes on: consult_result {\"consult_id\":%q,\"offset\":%d}; %d characters in all]",
		v.ConsultID, v.NextOffset, v.Length)
}

// ended returns the result of a call whose job has ended: the answer, or the fault with
// the part of an answer that there is. The later pages of a failed answer are no
// faults, since the fault was on the first.
func (m *Manager) ended(a *Answer, offset int, d tool.Detail) tool.Result {
	if a.State == Failed && offset == 0 {
		v, part := a.value(0, partialUnits, d)
		text := a.footer(d)
		if part != "" {
			text = "What there is of an answer:\n" + part + v.more() + "\n" + text
		}
		return tool.Result{Fault: a.Failure(), FaultText: text}
	}
	return m.settled(a, offset, d)
}

// settled returns the end of a job as a result that is no fault, whatever the end was.
// consult_control needs that: a cancelled consult is what its caller wanted.
func (m *Manager) settled(a *Answer, offset int, d tool.Detail) tool.Result {
	v, part := a.value(offset, pageUnits, d)
	shown := a.fitting(offset, d)
	var text strings.Builder
	switch a.State {
	case Cancelled:
		text.WriteString("The consult was cancelled (" + a.Why + ").")
		if part != "" {
			text.WriteString(" What there is of an answer:\n" + part)
		}
	case Failed:
		if offset == 0 {
			text.WriteString("The consult had failed before: " + a.Failure().Fault.Detail)
		} else {
			text.WriteString(part)
		}
	case Done, Queued, Running:
		text.WriteString(part)
	}
	if offset > 0 && offset >= v.Length {
		fmt.Fprintf(&text, "[offset %d is beyond the end: the answer has %d characters, from 0 on]", offset, v.Length)
	}
	text.WriteString(v.more())
	text.WriteString("\n\n" + a.footer(d))
	return tool.Result{Text: text.String(), Value: shown}
}

// pending returns the result of a call whose wait was over before its job had ended:
// the id, how to use it, and what the program has said so far. It first writes to disk
// that the job is a background job: see [job.saveDetached].
func (m *Manager) pending(j *job, d tool.Detail) tool.Result {
	a := m.sofar(j)
	if err := j.saveDetached(); err != nil { // the client has the id and can come back all the same
		m.opt.Log.Error("consult cannot be written down as a background one", "consult", a.ID, "err", err)
		a.Why += "; it cannot be written down that you know of it, so it ends if the daemon does, and what it has " +
			"said is kept"
	}
	_, part := a.value(0, pageUnits, d)
	text := fmt.Sprintf("No answer yet: %s. The consult goes on in the background.\nGet it with: consult_result "+
		"{\"consult_id\":%q}\n"+
		"End it with: consult_control {\"consult_id\":%q,\"action\":\"cancel\"}\n", a.Why, a.ID, a.ID)
	if part != "" {
		text += "\nWhat was said so far:\n" + part + "\n"
	}
	return tool.Result{Text: text + "\n" + a.footer(d), Value: a.fitting(0, d)}
}

// listing returns the result of consult_result without an id: the latest consults of an
// identity, as many as fit into a result.
func (m *Manager) listing(identity string, d tool.Detail) tool.Result {
	all := m.List(identity)
	list := all[:min(len(all), listed)]
	for len(list) > 0 && units(map[string]any{"consults": list, "total": len(all)}) > tool.MaxText {
		list = list[:len(list)-1]
	}
	var text strings.Builder
	if len(list) == 0 {
		text.WriteString("No consult is running or kept.")
	}
	for _, i := range list {
		fmt.Fprintf(&text, "%s %s, asked %s ago, took %s", i.ID, i.State,
			seconds(time.Since(time.UnixMilli(i.CreatedUnixMS))), seconds(time.Duration(i.TookMS)*time.Millisecond))
		if i.Code != "" {
			text.WriteString(", " + i.Code)
		}
		if i.Note != "" {
			text.WriteString(", " + i.Note)
		}
		if d == tool.Full {
			text.WriteString(", in " + i.Cwd)
		}
		text.WriteString("\n")
	}
	if n := len(all) - len(list); n > 0 {
		fmt.Fprintf(&text, "and %d older ones\n", n)
	}
	return tool.Result{
		Text:  strings.TrimRight(text.String(), "\n"),
		Value: map[string]any{"consults": list, "total": len(all)},
	}
}
