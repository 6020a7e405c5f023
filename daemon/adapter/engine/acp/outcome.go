package acp

import (
	"encoding/json"
	"slices"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// Text returns what the model has said so far.
func (r *Run) Text() string {
	texts := r.said.List()
	if r.text.Len() > 0 {
		texts = append(slices.Clip(texts), r.text.String())
	}
	return strings.Join(texts, "\n\n")
}

// answered reports whether the last turn ended with an answer.
func (r *Run) answered() bool {
	return r.failed == nil && r.stop == stopEnd && strings.TrimSpace(strings.Join(r.answer, "")) != ""
}

// Outcome returns what came of the run. Its session is in the agent's words; see [Agent.Keep].
func (r *Run) Outcome(exit engine.Exit, why engine.Why) engine.Outcome {
	out := engine.Outcome{
		Session: r.session.Session, Turns: r.turns, Stop: r.stop, Usage: r.usage, CostUSD: r.spent(),
		Denials: r.denials, EngineVersion: fault.Short(r.caps.Agent.Version, 40),
	}
	if model := r.model(); model != "" && r.turns > 0 {
		out.Models = []string{model}
	}
	if out.Fault = r.fault(exit, why); out.Fault != nil {
		out.Answer = r.Text()
		out.Partial = out.Answer != ""
		return out
	}
	out.Answer, out.Partial = strings.Join(r.answer, "\n\n"), r.best
	if len(r.req.Schema) > 0 {
		out.Structured = lastObject(out.Answer)
	}
	return out
}

// fault returns nil if there is an answer, else why there is none.
func (r *Run) fault(exit engine.Exit, why engine.Why) *fault.Record {
	if r.answered() {
		return nil
	}
	if f := r.named.Ended(exit, why); f != nil {
		return f
	}
	down := func(reason fault.Reason, text string) *fault.Record { return r.named.Down(exit, reason, "%s", text) }
	switch {
	case why.Late() && !r.Introduced() && (why == engine.Stalled || r.Printed() != ""):
		return r.mute(exit)
	case why.Late():
		return r.named.Late(exit, why)
	case r.failed != nil:
		return exit.Explain(r.failed.Reason(), r.failed)
	case r.step != idle: // it has ended in the middle of something
		return r.named.Silent(exit, &r.Stream)
	case r.stop == stopTokens || r.stop == stopRequests:
		return down(fault.MaxTurns, "the agent used up what it may use for a turn ("+r.stop+"); go on from its session")
	case r.stop == stopRefusal:
		return down(fault.Refused, "the model refused to answer: rephrase the prompt, or name another model")
	case r.stop == stopEnd:
		return down(fault.EmptyAnswer, "the model gave an empty answer")
	case r.stop == stopCancelled:
		return down(fault.Killed, "the agent cancelled its turn by itself")
	}
	return down(fault.BadOutput, "the agent ended its turn for a reason that is not known: "+fault.Short(r.stop, 80))
}

// mute returns the fault of an agent that has not answered initialize. More time would not help it.
func (r *Run) mute(exit engine.Exit) *fault.Record {
	printed := "It printed nothing"
	if said := r.Printed(); said != "" {
		printed = "It printed: " + said
	}
	return r.named.Down(exit, fault.BadOutput, "%s has not answered initialize, with which the Agent Client Protocol "+
		"begins. %s. Most agents speak that protocol only with an argument, such as --acp or acp: see "+
		"consult.agents.%s.args", r.agent.Name, printed, r.agent.Name)
}

// maxTries bounds the places at which [lastObject] looks for an object.
const maxTries = 200

// lastObject returns the last JSON object in a text, and nil if there is none.
func lastObject(text string) (last json.RawMessage) {
	for range maxTries {
		at := strings.IndexByte(text, '{')
		if at < 0 {
			break
		}
		text = text[at:]
		var object json.RawMessage
		dec := json.NewDecoder(strings.NewReader(text))
		if dec.Decode(&object) != nil {
			text = text[1:]
			continue
		}
		last, text = object, text[dec.InputOffset():]
	}
	return last
}
