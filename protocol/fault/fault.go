// Package fault holds the one record by which every part of holdline says
// what went wrong: as the data of a JSON-RPC error, as the structured content
// of a failed tool call, and as a line in the log.
//
// The table of codes is closed: [Code] values are the only ones that exist,
// and class, directive and JSON-RPC code follow from the code alone. Nothing
// in holdline decides by searching the text of an error: the code that makes a
// record knows what happened, and sets its code and [Reason].
package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Code names a fault. See the table in [Codes].
type Code string

// The codes.
const (
	ParseError        Code = "parse_error"
	InvalidRequest    Code = "invalid_request"
	UnknownMethod     Code = "unknown_method"
	InvalidInput      Code = "invalid_input"
	UnknownTool       Code = "unknown_tool"
	NotInitialized    Code = "not_initialized"
	TransportFailure  Code = "transport_failure"
	ProcessFailure    Code = "process_failure"
	SpawnFailure      Code = "spawn_failure"
	DownstreamFailure Code = "downstream_failure"
	Unauthenticated   Code = "unauthenticated"
	Timeout           Code = "timeout"
	ResourceExhausted Code = "resource_exhausted"
	OutcomeUnknown    Code = "outcome_unknown"
	RolloutFailure    Code = "rollout_failure"
	Denied            Code = "denied"
	BudgetExceeded    Code = "budget_exceeded"
	Ejected           Code = "ejected"
	IdentityRefused   Code = "identity_refused"
	CircuitOpen       Code = "circuit_open"
	Cancelled         Code = "cancelled" // never sent, log only
	InternalFailure   Code = "internal_failure"
)

// Class groups codes for telemetry.
type Class string

// The classes.
const (
	ClassProtocol   Class = "protocol"
	ClassTransport  Class = "transport"
	ClassProcess    Class = "process"
	ClassDownstream Class = "downstream"
	ClassTimeout    Class = "timeout"
	ClassResource   Class = "resource"
	ClassReplay     Class = "replay"
	ClassRollout    Class = "rollout"
	ClassPolicy     Class = "policy"
	ClassInvariant  Class = "invariant"
)

// Stage says where on the line it happened.
type Stage string

// The stages.
const (
	Host      Stage = "Host"
	Worker    Stage = "Worker"
	Engine    Stage = "Engine"
	Server    Stage = "Server"
	Transport Stage = "Transport"
	Protocol  Stage = "Protocol"
	Rollout   Stage = "Rollout"
)

// Reason is the closed list of causes that a person can act on.
type Reason string

// The reasons.
const (
	NotInstalled Reason = "not_installed"
	NotLoggedIn  Reason = "not_logged_in"
	// InsufficientScope is a login that was granted too little for the call.
	InsufficientScope Reason = "insufficient_scope"
	// SecretCommand is a command of the user that should print a secret, and did not.
	SecretCommand Reason = "secret_command"
	// SaysNothing is a configuration file that is empty or gone, though it had settings.
	SaysNothing   Reason = "says_nothing"
	Rejected      Reason = "rejected"
	RateLimited   Reason = "rate_limited"
	Overloaded    Reason = "overloaded"
	Unreachable   Reason = "unreachable"
	NotAnswering  Reason = "not_answering" // not even a ping
	PromptTooLong Reason = "prompt_too_long"
	Refused       Reason = "refused"
	MaxTurns      Reason = "max_turns"
	Budget        Reason = "budget"
	Deadline      Reason = "deadline"
	EmptyAnswer   Reason = "empty_answer"
	Killed        Reason = "killed"
	BadOutput     Reason = "bad_output"
	Version       Reason = "version"
)

// Directives: what the daemon does about a fault.
const (
	abortRequest     = "abort_request"
	restartAndReplay = "restart_and_replay"
	retryInPlace     = "retry_in_place"
)

// row is what follows from a code.
type row struct {
	code      Code
	class     Class
	directive string
	jsonrpc   int // the code of the JSON-RPC error
}

// table is closed: no other code exists. Its last row is also that of an unknown code.
var table = []row{
	{ParseError, ClassProtocol, abortRequest, -32700},
	{InvalidRequest, ClassProtocol, abortRequest, -32600},
	{UnknownMethod, ClassProtocol, abortRequest, -32601},
	{InvalidInput, ClassProtocol, abortRequest, -32602},
	{UnknownTool, ClassProtocol, abortRequest, -32602},
	{NotInitialized, ClassProtocol, abortRequest, -32002},
	{TransportFailure, ClassTransport, restartAndReplay, -32603},
	{ProcessFailure, ClassProcess, restartAndReplay, -32603},
	{SpawnFailure, ClassProcess, abortRequest, -32603},
	{DownstreamFailure, ClassDownstream, abortRequest, -32603},
	{Unauthenticated, ClassDownstream, abortRequest, -32603},
	{Timeout, ClassTimeout, abortRequest, -32603},
	{ResourceExhausted, ClassResource, retryInPlace, -32603},
	{OutcomeUnknown, ClassReplay, abortRequest, -32603},
	{RolloutFailure, ClassRollout, retryInPlace, -32603},
	{Denied, ClassPolicy, abortRequest, -32603},
	{BudgetExceeded, ClassPolicy, abortRequest, -32603},
	{Ejected, ClassPolicy, abortRequest, -32603},
	{IdentityRefused, ClassPolicy, abortRequest, -32603},
	{CircuitOpen, ClassPolicy, retryInPlace, -32603},
	{Cancelled, ClassProtocol, abortRequest, -32603},
	{InternalFailure, ClassInvariant, abortRequest, -32603},
}

// rowOf returns the row of a code.
func rowOf(c Code) row {
	for _, r := range table {
		if r.code == c {
			return r
		}
	}
	return table[len(table)-1]
}

// Codes returns every code in the order of the table.
func Codes() []Code {
	codes := make([]Code, len(table))
	for i, r := range table {
		codes[i] = r.code
	}
	return codes
}

// Body is the inner object of a [Record].
type Body struct {
	Generation int64  `json:"generation"` // of the worker concerned, 0 if none
	Class      Class  `json:"class"`
	Code       Code   `json:"code"`
	Directive  string `json:"directive"`
	Detail     string `json:"detail"` // for people; never parsed
}

// Cause is what is known of the process or system call behind a fault.
type Cause struct {
	Reason     Reason   `json:"reason,omitempty"`
	ExitCode   *int     `json:"exit_code"`   // nil unless the process exited
	Signal     *string  `json:"signal"`      // that ended the process; nil if none did
	Errno      *string  `json:"errno"`       // by name, such as "ENOENT"; nil if no system call failed
	StderrTail []string `json:"stderr_tail"` // the last lines of the process
	// Program is the name that was on no PATH of the daemon's. A user's shell may know it.
	Program string `json:"program,omitempty"`
}

// Record is the fault record. It is an error; make one with [New].
type Record struct { //nolint:errname // it is a record first, in the wire's words
	Fault        Body   `json:"fault"`
	Stage        Stage  `json:"stage"`
	Operation    string `json:"operation"`
	JSONRPCCode  int    `json:"jsonrpc_code"`
	Retryable    bool   `json:"retryable"`
	Retried      bool   `json:"retried"`
	RetryAfterMS *int64 `json:"retry_after_ms,omitempty"`
	Limit        *Limit `json:"limit,omitempty"`
	Cause        *Cause `json:"cause,omitempty"`
	// MayHaveActed is true if the failed call was dispatched and may have had its
	// effect, and its contract forbids the daemon to make it again.
	MayHaveActed bool `json:"may_have_acted,omitempty"`
}

// Limit is a limit of one caller that a call has reached, and how much of it was spent. A
// fault without a Limit is about a resource that all callers share.
type Limit struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
	Spent int64  `json:"spent"`
}

// Limits of [Record.LastWords].
const (
	maxLastLines = 5
	maxLastLine  = 512 // bytes
)

// LastWords returns the end of what the process behind the fault wrote to
// stderr, a few lines at most. It returns nothing if the detail says it already.
func (r *Record) LastWords() []string {
	if r.Cause == nil {
		return nil
	}
	var lines []string
	for _, line := range r.Cause.StderrTail {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, clipText(line, maxLastLine))
		}
	}
	lines = lines[max(0, len(lines)-maxLastLines):]
	if len(lines) == 1 && strings.Contains(r.Fault.Detail, lines[0]) {
		return nil
	}
	return lines
}

// Limits of what a record repeats of words of others, in bytes:
// a line of the greatest size must not come back several times as large.
const (
	maxDetail    = 4 << 10
	maxOperation = 256
)

// New makes a record of code c. Format and args are its detail; a very long
// detail or operation is cut.
func New(c Code, stage Stage, operation, format string, args ...any) *Record {
	r := rowOf(c)
	return &Record{
		Fault: Body{
			Class: r.class, Code: c, Directive: r.directive,
			Detail: clipText(fmt.Sprintf(format, args...), maxDetail),
		},
		Stage:       stage,
		Operation:   clipText(operation, maxOperation),
		JSONRPCCode: r.jsonrpc,
		Retryable:   r.directive != abortRequest,
	}
}

// clipText is s, or its first most bytes and an ellipsis; no rune is cut.
func clipText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) { // what is not UTF-8 may have no start at all
		most--
	}
	return strings.Clone(s[:most]) + "…"
}

// Error is the detail.
func (r *Record) Error() string { return r.Fault.Detail }

// WithReason sets the cause's reason and returns r.
func (r *Record) WithReason(reason Reason) *Record {
	if r.Cause == nil {
		r.Cause = &Cause{}
	}
	r.Cause.Reason = reason
	return r
}

// WithCause sets the cause and returns r.
func (r *Record) WithCause(c Cause) *Record {
	r.Cause = &c
	return r
}

// WithMayHaveActed sets MayHaveActed, says so in the detail as well, and returns
// r.
func (r *Record) WithMayHaveActed() *Record {
	r.MayHaveActed = true
	r.Fault.Detail += "; whether it had its effect is not known"
	return r
}

// Reason is the cause's reason, or "" if there is none.
func (r *Record) Reason() Reason {
	if r == nil || r.Cause == nil {
		return ""
	}
	return r.Cause.Reason
}

// WithLimit sets the limit of the caller's own that the call ran into, and
// returns r.
func (r *Record) WithLimit(name string, value, spent int) *Record {
	r.Limit = &Limit{Name: name, Value: int64(value), Spent: int64(spent)}
	return r
}

// IsOwn reports whether the fault is the caller's own doing: what it asked for,
// what it may not have, or a limit of its own. It says nothing of the health of
// anything else.
func (r *Record) IsOwn() bool {
	switch r.Fault.Code {
	case Denied, BudgetExceeded, IdentityRefused:
		return true
	case ResourceExhausted:
		return r.Limit != nil
	default:
		return r.Fault.Class == ClassProtocol
	}
}

// IsTransport reports whether telemetry counts the fault as a transport fault;
// the rest, and all that are the caller's own, count as response errors.
func (r *Record) IsTransport() bool {
	if r.IsOwn() {
		return false
	}
	switch r.Fault.Class {
	case ClassTransport, ClassProcess, ClassTimeout, ClassResource, ClassReplay, ClassRollout:
		return true
	case ClassProtocol, ClassDownstream, ClassPolicy, ClassInvariant:
	}
	return false
}

// JSON is the record as one line. A record holds only plain fields, so it
// always encodes.
func (r *Record) JSON() json.RawMessage {
	b, err := json.Marshal(r)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return b
}

// From is the record in err's chain; any other error becomes an
// internal_failure of stage and operation with err's text as detail.
func From(err error, stage Stage, operation string) *Record {
	if r, ok := errors.AsType[*Record](err); ok {
		return r
	}
	return New(InternalFailure, stage, operation, "%v", err)
}

// maxQuote is how much [Quote] keeps, in bytes.
const maxQuote = 512

// Quote returns the beginning of what another program said, as valid UTF-8, to
// be repeated in a fault or in the log.
func Quote(said []byte) string {
	return string(bytes.ToValidUTF8(said[:min(len(said), maxQuote)], []byte("?")))
}

// Short returns s on one line, cut to at most most characters. Each run of white space and
// control characters becomes one space, so that no value of another program can look like
// a line of ours. A cut text ends with "…".
func Short(s string, most int) string {
	runes := []rune(strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " "))
	if len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return string(runes)
}
