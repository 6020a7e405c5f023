package answer

import (
	"fmt"
	"strings"
	"time"

	"holdline/daemon/plural"
	"holdline/daemon/tool"
)

// listed bounds the rows of a list of consults.
const listed = 20

// Result returns the result of a call whose job has ended: the page of the answer that
// begins at character offset, or the fault with the part of an answer that there is. The
// later pages of a failed answer are no faults, since the fault was on the first.
func (a *Answer) Result(offset int, d tool.Detail) tool.Result {
	if a.State == Failed && offset == 0 {
		v := a.page(0, partialUnits, d)
		text := a.footer(d)
		if v.Answer != "" {
			text = "What there is of an answer:\n" + v.Answer + v.more() + "\n" + text
		}
		return tool.Result{Fault: a.Fault, FaultText: text}
	}
	return a.Ending(offset, d)
}

// Ending returns the end of a job as a result that is no fault, whatever the end was.
// consult_control needs that: a cancelled consult is what its caller wanted.
func (a *Answer) Ending(offset int, d tool.Detail) tool.Result {
	v := a.page(offset, pageUnits, d)
	var text strings.Builder
	switch a.State {
	case Cancelled:
		text.WriteString("The consult was cancelled (" + a.Why + ").")
		if v.Answer != "" {
			text.WriteString(" What there is of an answer:\n" + v.Answer)
		}
	case Failed:
		// The fault belongs to the first page. The others are parts of the text alone.
		if offset == 0 {
			text.WriteString("The consult had failed before: " + a.Fault.Fault.Detail)
		} else {
			text.WriteString(v.Answer)
		}
	case Done, Queued, Running:
		text.WriteString(v.Answer)
	}
	if offset > 0 && offset >= v.Length {
		fmt.Fprintf(&text, "[offset %d is beyond the end: the answer has %d characters, from 0 on]", offset, v.Length)
	}
	text.WriteString(v.more() + "\n\n" + a.footer(d))
	return tool.Result{Text: text.String(), Value: a.fitting(offset, d)}
}

// Pending returns the result of a call whose wait was over before its job had ended: the
// id, how to use it, and what the program has said so far. The caller must have written to
// disk that the client knows the id.
func (a *Answer) Pending(d tool.Detail) tool.Result {
	text := fmt.Sprintf("No answer yet: %s. The consult goes on in the background.\nGet it with: consult_result "+
		"{\"consult_id\":%q}\n"+
		"End it with: consult_control {\"consult_id\":%q,\"action\":\"cancel\"}\n", a.Why, a.ID, a.ID)
	if len(a.Steps) > 0 {
		text += "\nWhat it did last:\n" + strings.Join(a.Steps, "\n") + "\n"
	}
	if said := a.page(0, pageUnits, d).Answer; said != "" {
		text += "\nWhat was said so far:\n" + said + "\n"
	}
	return tool.Result{Text: text + "\n" + a.footer(d), Value: a.fitting(0, d)}
}

// List returns the result of consult_result without an id: the first of all, which are
// the latest, as many as fit into a result.
func List(all []Info, d tool.Detail) tool.Result {
	list := all[:min(len(all), listed)]
	value := func() map[string]any { return map[string]any{"consults": list, "total": len(all)} }
	for len(list) > 0 && units(value()) > tool.MaxText {
		list = list[:len(list)-1]
	}
	var text strings.Builder
	if len(list) == 0 {
		text.WriteString("No consult is running or kept.")
	}
	for _, i := range list {
		fmt.Fprintf(&text, "%s %s, asked %s ago, took %s", i.ID, i.State,
			plural.Seconds(time.Since(time.UnixMilli(i.CreatedUnixMS))),
			plural.Seconds(time.Duration(i.TookMS)*time.Millisecond))
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
	return tool.Result{Text: strings.TrimRight(text.String(), "\n"), Value: value()}
}
