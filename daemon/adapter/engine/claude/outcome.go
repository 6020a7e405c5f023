package claude

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Words of the stream that decide.
const (
	subtypeSuccess = "success"
	stopRefusal    = "refusal"
	// statusOverloaded is the API's own status for "too many requests for us
	// all", beside 429, which is "too many of yours".
	statusOverloaded = 529
)

// Outcome returns what came of the run. Whatever the ending, it has all that is known:
// text, session, cost and denials. The cost is nil if one of the models has no known
// price.
func (r *Run) Outcome(exit engine.Exit, why engine.Why) engine.Outcome {
	out := engine.Outcome{
		Session: r.session, Models: r.models(), Turns: r.turns, Stop: r.last.StopReason,
		APIMS: r.api.Milliseconds(), RateLimit: r.limit, Window: r.window().share(),
		FastMode: fault.Short(r.last.FastMode, maxWord), UUID: fault.Short(r.last.UUID, maxWord),
	}
	if b, err := jsonrpc.Marshal(r.spent); err == nil && len(r.spent) > 0 && len(b) <= maxUsage {
		out.ModelUsage = b
	}
	if r.costKnown {
		cost := r.cost // not a pointer into the run: outcomes are kept, prompts are not
		out.CostUSD = &cost
	}
	for _, u := range r.spent {
		out.Usage.Input += u.Input
		out.Usage.Output += u.Output
		out.Usage.CacheRead += u.CacheRead
		out.Usage.CacheWrite += u.CacheWrite
		if u.CostBasis == "unknown" {
			out.CostUSD = nil
		}
	}
	for _, d := range r.last.Denials {
		if len(out.Denials) < maxDenials {
			out.Denials = append(out.Denials, engine.Denial{Tool: d.ToolName})
		}
	}
	if r.results == 0 {
		out.Denials = r.denied
	}
	if r.req.Session != "" && !r.started {
		out.Session = "" // the id of a session that never came to be
	}

	out.Fault = r.fault(exit, why)
	if out.Fault == nil {
		out.Answer, out.Structured = r.last.Answer, r.last.Structured
		out.Partial = why.Late()
		return out
	}
	out.Answer = r.Text()
	out.Partial = out.Answer != ""
	if after := r.retryAfter(out.Fault).Milliseconds(); after > 0 {
		out.Fault.RetryAfterMS = &after
	}
	return out
}

// answered reports whether the last result is an answer: a success with text that is no
// refusal.
func (r *Run) answered() bool {
	return r.results > 0 && !r.last.IsError && r.last.subtype == subtypeSuccess &&
		strings.TrimSpace(r.last.Answer) != "" && r.last.StopReason != stopRefusal
}

// named is Claude Code in faults.
var named = engine.Program{Name: "Claude Code", Operation: engine.Operation}

// fault returns nil if the last result is an answer, else why there is none. An answer
// counts even if the runner ended the program afterwards. The result of an interrupt
// says nothing of its own: then the fault is the deadline.
func (r *Run) fault(exit engine.Exit, why engine.Why) *fault.Record {
	if r.answered() {
		return nil
	}
	if f := named.Ended(exit, why); f != nil {
		return f
	}
	switch {
	case r.results > 0 && (!why.Late() || !r.aborted()):
		return r.resultFault(exit)
	case why.Late():
		return named.Late(exit, why)
	}
	return named.Silent(exit, &r.Stream)
}

// aborted reports whether the last result is the one that the program gives for an
// interrupt.
func (r *Run) aborted() bool {
	return r.last.TerminalReason == "aborted_streaming" || r.last.TerminalReason == "aborted_tools"
}

// resultFault returns the fault of a result that is no answer. It decides by the
// result's fields, which are stable words; the text of a result only becomes part of
// the message.
func (r *Run) resultFault(exit engine.Exit) *fault.Record {
	res := r.last
	down := func(reason fault.Reason, format string, args ...any) *fault.Record {
		return named.Down(exit, reason, format, args...)
	}
	said := fault.Short(res.Answer, 400) // of an error, the program's own words
	if said == "" && len(res.Errors) > 0 {
		said = fault.Short(strings.Join(res.Errors, "; "), 400)
	}
	switch {
	case res.StopReason == stopRefusal || r.stop == stopRefusal:
		return down(fault.Refused, "the model refused to answer: rephrase the prompt, or name another model")
	case res.TerminalReason == "max_turns" || res.subtype == "error_max_turns":
		limit := "all its turns"
		if r.req.MaxTurns > 0 {
			limit = fmt.Sprintf("its %d turns", r.req.MaxTurns)
		}
		return down(fault.MaxTurns, "the run used up %s before there was an answer; give a larger max_turns, "+
			"or go on from its session", limit)
	case res.TerminalReason == "budget_exhausted" || res.subtype == "error_max_budget_usd":
		return exit.Explain(fault.Budget, fault.New(fault.BudgetExceeded, fault.Engine, engine.Operation,
			"the run spent its budget before there was an answer"))
	case res.TerminalReason == "prompt_too_long", res.TerminalReason == "blocking_limit",
		res.TerminalReason == "image_error",
		res.APIErrorStatus != nil && *res.APIErrorStatus == http.StatusRequestEntityTooLarge:
		return down(fault.PromptTooLong, "the prompt is too long for the model: %s", said)
	case res.subtype == "error_max_structured_output_retries",
		res.TerminalReason == "structured_output_retry_exhausted":
		return down(fault.BadOutput, "the model never gave an answer of the form that schema asks for")
	case r.aborted():
		return down(fault.Killed, "the run was interrupted before there was an answer")
	case res.subtype == subtypeSuccess && !res.IsError:
		return down(fault.EmptyAnswer, "the model gave an empty answer")
	case res.subtype == subtypeSuccess:
		status := res.APIErrorStatus
		if status == nil && r.retry != nil { // 2.1.197 names no status after three times 529
			status = r.retry.ErrorStatus
		}
		return r.apiFault(exit, status, r.apiError, said)
	case !r.started && r.req.Session != "":
		return exit.Explain("", fault.New(fault.InvalidInput, fault.Engine, engine.Operation,
			"session: cannot go on from %s: %s", r.req.Session, said))
	case r.retry != nil:
		return r.apiFault(exit, r.retry.ErrorStatus, word(r.retry.Error), said)
	}
	return down("", "the run ended in an error (%s): %s", res.subtype, said)
}

// apiFault returns the fault of an error of the API. It decides by the HTTP status
// where there is one, and otherwise by kind, the program's word for the error. said is
// the program's text.
func (r *Run) apiFault(exit engine.Exit, status *int, kind, said string) *fault.Record {
	code, reason, what := fault.DownstreamFailure, fault.Rejected, "the API rejected the request"
	n := 0
	if status != nil {
		n = *status
	}
	switch {
	case n == http.StatusUnauthorized || n == http.StatusForbidden:
		code, what = fault.Unauthenticated, "the API rejected the credentials"
	case n == 0 && kind == "authentication_failed":
		code, reason, what = fault.Unauthenticated, fault.NotLoggedIn, "Claude Code is not logged in"
	case n == http.StatusTooManyRequests || n == 0 && kind == "rate_limit":
		reason, what = fault.RateLimited, "the rate limit is reached"
		if text := r.window().limitText(); text != "" {
			what = text
		}
	case n == statusOverloaded || n == 0 && kind == "overloaded":
		reason, what = fault.Overloaded, "the API is overloaded"
	case n == http.StatusRequestTimeout:
		reason, what = fault.Unreachable, "the API did not answer in time"
	case n >= http.StatusInternalServerError:
		reason, what = fault.Overloaded, fmt.Sprintf("the API failed (status %d)", n)
	case n == 0 && (r.last.APIError == "connection_failed" || kind == "server_error" || kind == "unknown"):
		reason, what = fault.Unreachable, "the API cannot be reached"
	case n == 0 && kind == "":
		reason, what = "", "the run ended in an error"
	}
	return exit.Explain(reason, fault.New(code, fault.Engine, engine.Operation, "%s: %s", what, said))
}

// retryAfter returns how long a client should wait before it asks again after a rate
// limit or an overload, and 0 if the program has not said.
func (r *Run) retryAfter(f *fault.Record) time.Duration {
	switch f.Reason() {
	case fault.RateLimited, fault.Overloaded:
	default:
		return 0
	}
	if w := r.window(); w.Status == "rejected" && w.ResetsAt > 0 {
		if d := time.Until(time.Unix(int64(w.ResetsAt), 0)); d > 0 {
			return d.Round(time.Second)
		}
	}
	if r.retry != nil {
		return r.retry.retryDelay()
	}
	return 0
}
