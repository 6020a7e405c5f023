package answer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"holdline/daemon/plural"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
)

// pageUnits bounds the part of an answer in one result, in units of [cost]. Clients cut
// the text of a result, so the footer, and what the rendering adds, must still fit
// behind it.
const pageUnits = 37_000

// bestSoFar says of an answer that it is partial.
const bestSoFar = "time was up: this is the best answer so far"

// partialUnits bounds the part of an answer that follows a fault, in units of [cost].
const partialUnits = 20_000

// tellUsed is the share of a subscription's window from which on each answer names the
// window.
const tellUsed = 0.5

// cutPage returns the part of text that begins at character offset and costs at most limit
// units, the offset of the rest, or 0 if there is none, and the number of characters of
// text. Beyond the end the part is empty.
func cutPage(text string, offset, limit int) (part string, next, total int) {
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

// View is an answer, or a page of it, as render=json shows it. Details is nil for
// detail=concise. Response and TotalCostUSD are Answer and CostUSD by other names, which
// clients of other consult servers know.
type View struct {
	Answer       string   `json:"answer"`
	Response     string   `json:"response"`
	Model        string   `json:"model,omitempty"`           // that answered most, else that was asked for
	Requested    string   `json:"requested_model,omitempty"` // with detail=full
	TotalCostUSD *float64 `json:"total_cost_usd"`
	Summary
	Progress   string `json:"progress,omitempty"`
	NextOffset int    `json:"next_offset,omitempty"`
	Length     int    `json:"answer_length"`
	DenialN    int    `json:"permission_denial_count"`
	*Details
}

// View returns the whole answer as render=json shows it, for the command line.
func (a *Answer) View(d tool.Detail) View { return a.page(0, maxText*6, d) }

// page returns the page of the answer that begins at character offset and costs at most
// limit units, in units of [cost]. The structured answer is only on the first page, and
// only if it fits.
func (a *Answer) page(offset, limit int, d tool.Detail) View {
	v := View{Summary: a.Summary, DenialN: len(a.Denials), Model: a.model(), TotalCostUSD: a.CostUSD}
	v.turn(a.Text, offset, limit)
	if offset > 0 || len(a.Structured) > limit {
		v.Structured = nil
	}
	if a.State == Queued || a.State == Running || a.State == Cancelled {
		v.Progress = a.Why
	}
	if d == tool.Full {
		details := a.Details // a copy: fitting changes it, and the answer is shared
		v.Details, v.Requested = &details, a.Model
	}
	return v
}

// turn puts the page of text that begins at character offset into v.
func (v *View) turn(text string, offset, limit int) {
	v.Answer, v.NextOffset, v.Length = cutPage(text, offset, limit)
	v.Response = v.Answer
}

// leastPage is the least part of an answer that a result carries, in units of [cost],
// even if the rest of the result is long.
const leastPage = 4_000

// leastPrompt is the part of a prompt that a result carries if it is too long, in units of
// [cost].
const leastPrompt = 2_000

// fitting returns a page of the answer as render=json shows it, within [tool.MaxText],
// the size that clients accept. If it is too long, it leaves out the structured answer,
// then most of the context, then the end of the prompt, and then shortens the page. No
// answer is lost: the structured answer is also the text of the pages.
func (a *Answer) fitting(offset int, d tool.Detail) View {
	limit := pageUnits / 2 // the page is there twice
	if a.Answers != nil {
		limit = 0 // the answers of a panel are there already
	}
	v := a.page(offset, limit, d)
	over := func() int { return units(v) - tool.MaxText }
	if over() > 0 {
		v.Structured = nil
	}
	if n := over(); n > 0 && v.Details != nil {
		v.Context = v.Context.Brief()
		if prompt, rest, _ := cutPage(v.Prompt, 0, leastPrompt); rest > 0 && over() > 0 {
			v.Prompt = prompt + "…"
		}
	}
	// What the page costs now is where the shortening begins: its bound may be far higher.
	limit = 0
	for _, r := range v.Answer {
		limit += cost(r)
	}
	for n := over(); n > 0 && limit > leastPage; n = over() {
		limit = max(limit-(n+1)/2, leastPage)
		v.turn(a.Text, offset, limit)
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
		parts = append(parts, bestSoFar)
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
		parts = append(parts, plural.Count(a.NumTurns, "turn"))
	}
	parts = append(parts, plural.Seconds(time.Duration(a.DurationMS)*time.Millisecond))
	if a.Level != "" {
		parts = append(parts, "level "+a.Level+" enforced by "+a.EnforcedBy)
	}
	if n := len(a.Denials); n > 0 {
		parts = append(parts, plural.Count(n, "tool use")+" denied")
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

// more returns a line that says how to fetch the rest of an answer, or "" if there is
// none.
func (v *View) more() string {
	if v.NextOffset == 0 {
		return ""
	}
	return fmt.Sprintf("\n[the answer goes on: consult_result {\"consult_id\":%q,\"offset\":%d}; %d characters in all]",
		v.ID, v.NextOffset, v.Length)
}
