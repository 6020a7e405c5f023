package answer

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/plural"
	"holdline/protocol/fault"
)

// panelUnits bounds the texts of all members in the answer of a panel, in units of [cost].
// What stands around them must fit on the same page.
const panelUnits = pageUnits - 5_000

// Part is the answer of one member in the answer of a panel.
type Part struct {
	Label      string   `json:"label"`
	Engine     string   `json:"engine"` // and its model, behind a slash
	ID         string   `json:"consult_id"`
	State      State    `json:"state"`
	Partial    bool     `json:"partial"` // it is the best answer that could be had in time, or a part of one
	Answer     string   `json:"answer"`
	NextOffset int      `json:"next_offset,omitempty"` // of the rest, which consult_result returns
	Length     int      `json:"answer_length"`
	CostUSD    *float64 `json:"cost_usd"`
	DurationMS int64    `json:"duration_ms"`
	Code       string   `json:"code,omitempty"`   // of the fault, if it failed
	Detail     string   `json:"detail,omitempty"` // why it failed, or what it does
}

// part returns the part of a panel's answer that a is. It has the whole text.
func (a *Answer) part() Part {
	p := Part{
		Label: a.Label, Engine: a.Engine, ID: a.ID, State: a.State, Partial: a.Partial, Answer: a.Text,
		CostUSD: a.CostUSD, DurationMS: a.DurationMS, Detail: a.Why,
	}
	if a.Model != "" {
		p.Engine += "/" + a.Model
	}
	if a.Fault != nil {
		p.Code, p.Detail = string(a.Fault.Fault.Code), fault.Short(a.Fault.Fault.Detail, maxDetail)
	}
	return p
}

// maxDetail bounds what a panel's answer has of why a member failed, in characters. The
// member's own answer has all of it.
const maxDetail = 300

// Answered returns how many members have answered.
func Answered(members []*Answer) (n int) {
	for _, m := range members {
		if m.State == Done {
			n++
		}
	}
	return n
}

// Panel makes the answer of a panel out of those of its members, in the order of the record:
// the judge, if there is one, is the last. Of a member that has not ended, the answer says how
// far it is. The text has a part of each answer, in equal shares; what one does not need goes to
// the others.
func Panel(rec *jobdir.Record, members []*Answer, state State) *Answer {
	a := New(rec, state)
	parts := make([]Part, len(members))
	rooms := make([]int, len(members))
	for i, m := range members {
		parts[i] = m.part()
		rooms[i] = units(parts[i].Answer)
		if m.CostUSD != nil {
			sum := *m.CostUSD
			if a.CostUSD != nil {
				sum += *a.CostUSD
			}
			a.CostUSD = &sum
		}
		a.DurationMS = max(a.DurationMS, m.EndedUnixMS-rec.CreatedUnixMS)
	}
	for i, room := range share(rooms, panelUnits) {
		p := &parts[i]
		p.Answer, p.NextOffset, p.Length = cutPage(p.Answer, 0, room)
	}
	a.Answers = parts
	if n := len(parts) - 1; rec.Judged && n >= 0 && parts[n].Label == rec.Members[len(rec.Members)-1].Label {
		a.Answers, a.Judge, members = parts[:n], &parts[n], members[:n]
	}
	n := Answered(members)
	a.Answered = &n
	a.Text = a.panelText(rec.Judged && a.Judge == nil && state == Done)
	return a
}

// End sets how the panel has ended: it has failed if no member has answered, and is cancelled
// if that is why.
func (a *Answer) End(at time.Time, cancelled string) {
	a.EndedUnixMS, a.State = at.UnixMilli(), Done
	switch {
	case cancelled != "":
		a.State, a.Why = Cancelled, cancelled
		a.Fault = fault.New(fault.Cancelled, fault.Host, engine.Operation, "the panel was cancelled")
	case *a.Answered == 0:
		a.State = Failed
		var lines []string
		for i := range a.Answers {
			p := &a.Answers[i]
			lines = append(lines, fmt.Sprintf("%s %s: %s: %s", p.Label, p.Engine, p.Code, p.Detail))
		}
		a.Fault = fault.New(fault.DownstreamFailure, fault.Host, engine.Operation,
			"no member of the panel has answered:\n%s", strings.Join(lines, "\n"))
	}
}

// panelText returns the answers side by side. unjudged means that there was to be a judge, who
// was not asked.
func (a *Answer) panelText(unjudged bool) string {
	var text strings.Builder
	fmt.Fprintf(&text, "panel %s: %d of %d answered, %s", a.ID, *a.Answered, len(a.Answers),
		plural.Seconds(time.Duration(a.DurationMS)*time.Millisecond))
	if a.CostUSD != nil {
		fmt.Fprintf(&text, ", $%.4f", *a.CostUSD)
	}
	text.WriteString("\n")
	parts := slices.Clone(a.Answers)
	if a.Judge != nil {
		parts = append(parts, *a.Judge)
	}
	for i := range parts {
		p := &parts[i]
		cost := "cost not known"
		if p.CostUSD != nil {
			cost = fmt.Sprintf("$%.4f", *p.CostUSD)
		}
		fmt.Fprintf(&text, "\n=== %s %s, %s, %s, %s, %s\n", p.Label, p.Engine, p.State,
			plural.Seconds(time.Duration(p.DurationMS)*time.Millisecond), cost, p.ID)
		if p.State != Done && p.Detail != "" {
			fmt.Fprintf(&text, "[%s]\n", strings.TrimPrefix(p.Code+": "+p.Detail, ": "))
		}
		if p.State == Done && p.Partial {
			text.WriteString("[" + bestSoFar + "]\n")
		}
		if p.Answer != "" {
			text.WriteString(strings.TrimRight(p.Answer, "\n") + "\n")
		}
		if p.NextOffset > 0 {
			fmt.Fprintf(&text, "[it goes on: consult_result {\"consult_id\":%q,\"offset\":%d}; %d characters in all]\n",
				p.ID, p.NextOffset, p.Length)
		}
	}
	if unjudged {
		why := "the panel ended before that"
		if *a.Answered < 2 {
			why = "fewer than two members have answered"
		}
		text.WriteString("\nThe judge was not asked: " + why + ".")
	}
	return strings.TrimRight(text.String(), "\n")
}

// share divides total among those who need so much each: in equal shares, and what one does
// not need goes to the others.
func share(needs []int, total int) []int {
	shares := make([]int, len(needs))
	order := make([]int, len(needs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return needs[a] - needs[b] })
	for n, i := range order {
		shares[i] = min(needs[i], total/(len(order)-n))
		total -= shares[i]
	}
	return shares
}

// rank returns what orders a member for the judge.
func rank(panel string, member *Answer) []byte {
	sum := sha256.Sum256([]byte(panel + ":" + member.Label))
	return sum[:]
}

// judgeUnits bounds what a judge is given of each answer, in units of [cost].
const judgeUnits = 100_000

// JudgePrompt returns what a judge is asked: to compare the answers of those members who have
// answered. Their order depends on the panel's id alone, and no engine is named.
func JudgePrompt(rec *jobdir.Record, members []*Answer) string {
	order := slices.SortedFunc(slices.Values(members), func(a, b *Answer) int {
		return bytes.Compare(rank(rec.ID, a), rank(rec.ID, b))
	})
	var text strings.Builder
	text.WriteString("Several experts were asked the question below, each by itself. Compare their answers. Say:\n" +
		"- what they agree on\n- where they contradict each other, and who says what\n- what only one of them says\n" +
		"- what should be verified, and how\n\nDo not answer the question yourself, and do not say who is right " +
		"unless you have verified it.\n\n<question>\n" + rec.Asked() + "\n</question>\n")
	next := 'A'
	for _, m := range order {
		if m.State != Done {
			continue
		}
		said, rest, _ := cutPage(m.Text, 0, judgeUnits)
		if rest > 0 {
			said += "\n[cut here]"
		}
		fmt.Fprintf(&text, "\n<answer by=\"%c\">\n%s\n</answer>\n", next, said)
		next++
	}
	return text.String()
}
