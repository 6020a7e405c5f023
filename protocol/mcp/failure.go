package mcp

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Names of holdline's own tools for the tools of hosted servers.
const (
	FindTools = "find_tools" // finds them by words
	CallTool  = "call_tool"  // calls one of them
)

// AppendFault appends the answer to a request that ended with a fault, without a
// newline. It is the one place that decides the answer's shape: a failed call of
// a tool is a result with isError, which models get to read; everything else is
// a JSON-RPC error, and so is a call that breaks the protocol. The members of
// modern, spelled as JSON, stand before those of a result.
func AppendFault(dst []byte, id jsonrpc.ID, method, modern string, f *fault.Record) []byte {
	if method != ToolsCall || f.Fault.Class == fault.ClassProtocol {
		return jsonrpc.AppendError(dst, id, f.JSONRPCCode, faultMessage(f), f.JSON())
	}
	result := ToolFailure(f, FaultText(f, ""))
	if modern != "" {
		result = jsonrpc.Prepend(result, modern)
	}
	return jsonrpc.AppendResult(dst, id, result)
}

// ToolFailure returns the result object of a tool call that failed. It has text, which the
// client's model reads, and the fault record as structured content. Callers without words of
// their own pass [FaultText].
func ToolFailure(f *fault.Record, text string) json.RawMessage {
	return ToolResult(text, f.JSON(), true)
}

// ToolResult returns the result object of a tool call. structured is an object, or nil if
// the result has no structured content: clients that get both show a model that alone.
func ToolResult(text string, structured json.RawMessage, isError bool) json.RawMessage {
	quoted, _ := jsonrpc.Marshal(text) // strings encode
	b := append(append([]byte(`{"content":[{"type":"text","text":`), quoted...), `}]`...)
	if structured != nil {
		b = append(append(b, `,"structuredContent":`...), structured...)
	}
	return append(strconv.AppendBool(append(b, `,"isError":`...), isError), '}')
}

// faultMessage returns the message of a JSON-RPC error, with the last lines of stderr of the
// process behind the fault: clients show only the message, not the data.
func faultMessage(f *fault.Record) string {
	words := f.LastWords()
	if words == nil {
		return f.Fault.Detail
	}
	return f.Fault.Detail + "; the last that it wrote to stderr: " + strings.Join(words, " / ")
}

// FaultText returns a failed call for a model to read: the detail, the code, what
// to do next and the last words of the process behind the fault, then more if
// that is not empty. Clients show only this text of a failed call.
func FaultText(f *fault.Record, more string) string {
	var b strings.Builder
	detail := f.Fault.Detail
	if detail == "" {
		detail = "the call failed"
	}
	b.WriteString(detail)
	b.WriteString("\n[")
	b.WriteString(string(f.Fault.Code))
	if reason := f.Reason(); reason != "" {
		b.WriteString(", ")
		b.WriteString(string(reason))
	}
	b.WriteString("] ")
	b.WriteString(advice(f))
	if words := f.LastWords(); words != nil {
		b.WriteString("\n\nThe last that it wrote to stderr:\n")
		b.WriteString(strings.Join(words, "\n"))
	}
	if more != "" {
		b.WriteString("\n\n")
		b.WriteString(more)
	}
	return b.String()
}

// checkFirst is what to do about a call that may have had its effect.
const checkFirst = "It may or may not have taken effect: check before calling again."

// advice returns what a model should do about a fault. It depends on the fields of the
// record, never on its text.
func advice(f *fault.Record) string {
	when := "in a moment"
	if f.RetryAfterMS != nil {
		wait := time.Duration(*f.RetryAfterMS) * time.Millisecond
		when = "in " + max(wait.Round(time.Second), time.Second).String()
	}
	if f.MayHaveActed {
		return checkFirst
	}
	switch f.Fault.Code {
	case fault.InvalidInput, fault.ParseError, fault.InvalidRequest:
		return "Correct the arguments and call again."
	case fault.UnknownTool, fault.UnknownMethod:
		if f.Operation == ToolsCall+":"+CallTool {
			return "Take server and tool from " + FindTools + "."
		}
		return "Take a name from tools/list."
	case fault.NotInitialized:
		return "Finish the handshake first."
	case fault.OutcomeUnknown:
		return checkFirst
	case fault.TransportFailure, fault.ProcessFailure, fault.ResourceExhausted,
		fault.RolloutFailure, fault.CircuitOpen:
		return "Call again " + when + "."
	case fault.Timeout:
		if f.Reason() == fault.NotAnswering {
			return "Call again later; if it stays so, a user can restart the server: holdline servers restart."
		}
		return "Allow more time, or ask for less."
	case fault.Denied, fault.BudgetExceeded, fault.IdentityRefused:
		return "Do not repeat the call; the configuration decides this."
	case fault.Unauthenticated:
		return "A user has to log in first; repeating the call does not help."
	case fault.SpawnFailure:
		return "The installation must be fixed first; repeating the call does not help."
	case fault.Ejected:
		return "It stays off until a user starts it again."
	case fault.DownstreamFailure:
		if f.RetryAfterMS != nil {
			return "Call again " + when + "."
		}
		return "Repeating the same call is unlikely to help."
	case fault.Cancelled, fault.InternalFailure:
	}
	return "If it happens again, `holdline doctor` and `holdline logs` say more."
}
