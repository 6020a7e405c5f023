package hosted

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/config"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// An answer that cannot be read is no answer, and its call would wait for one
// until its time is over. So a line that is no message is looked at for the id of
// a call under way. It must be certain that the line answers that call: the
// requests of a server have ids of its own, which may be equal to those of calls.

// answerForms recognise an answer by one of its ends: in every order of its
// members the id stands at one of them, beside "jsonrpc" at most.
type answerForms struct {
	head *regexp.Regexp // id first; with the id
	late *regexp.Regexp // result or error first
	tail *regexp.Regexp // id last; with the id
}

var forms = sync.OnceValue(func() answerForms {
	const version, id, ws = `"jsonrpc"\s*:\s*"2\.0"`, `"id"\s*:\s*([0-9.eE+]+)`, `\s*`
	const begin = `^\s*\{\s*(?:` + version + `\s*,\s*)?`
	return answerForms{
		head: regexp.MustCompile(begin + id + ws + `,\s*(?:` + version + `\s*,\s*)?"(?:result|error)"\s*:`),
		late: regexp.MustCompile(begin + `"(?:result|error)"\s*:`),
		tail: regexp.MustCompile(`,\s*` + id + ws + `(?:,\s*` + version + ws + `)?\}\s*$`),
	}
})

// answerOf is the id of the answer whose first and last bytes are given; nil if
// they do not show one.
func answerOf(head, tail []byte) jsonrpc.ID {
	f := forms()
	if m := f.head.FindSubmatch(head); m != nil {
		return bytes.Clone(m[1])
	}
	if !f.late.Match(head) {
		return nil
	}
	if m := f.tail.FindSubmatch(tail); m != nil {
		return bytes.Clone(m[1])
	}
	return nil
}

// brokenAnswerOf is the id of the answer that a line is meant to be which is no
// message, for the reason err; nil if it is none, or not certainly.
func brokenAnswerOf(line []byte, err error) jsonrpc.ID {
	if !errors.Is(err, jsonrpc.ErrInvalid) {
		return answerOf(line[:min(len(line), lineEnds)], line[max(len(line)-lineEnds, 0):])
	}
	// It is JSON, in which keys may stand twice.
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var id jsonrpc.ID
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		switch {
		case err != nil, key == "method":
			return nil
		case key == "id" && id != nil && !bytes.Equal(id, value):
			return nil
		case key == "id":
			id = jsonrpc.ID(value)
		}
	}
	return id
}

// quoteBytes is how much of a line that cannot be read is quoted, in bytes.
const quoteBytes = 200

// unreadable makes the fault of a call whose answer is a line that is no
// message, for the reason err.
func (u *upstream) unreadable(line []byte, err error) func(server, operation string) *fault.Record {
	begin := strings.ToValidUTF8(string(line[:min(len(line), 8*quoteBytes)]), "\uFFFD")
	begin = config.Mask(begin, u.secrets) // before it is cut, which could leave half a secret
	if u.withheld {
		begin = unknownSecrets
	}
	return func(server, operation string) *fault.Record {
		return fault.New(fault.DownstreamFailure, fault.Server, operation,
			"server %s answered with a line that cannot be read: %v; it begins: %s",
			server, err, fault.Quote([]byte(begin[:min(len(begin), quoteBytes)]))).WithReason(fault.BadOutput)
	}
}

// failAnswer ends whatever waits for the answer with an id, which came and cannot
// be read: a call, or a request of the daemon's own.
func (u *upstream) failAnswer(id jsonrpc.ID, describe func(server, operation string) *fault.Record) {
	if own, ok := u.takeInquiry(number(id)); ok {
		f := describe(u.name(), "run:"+u.name())
		line := jsonrpc.AppendError(nil, id, f.JSONRPCCode, f.Fault.Detail, nil)
		own.take(jsonrpc.Message{Error: jsonrpc.Field(line, "error")}) // of no kind, since it is not the server's
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	c := u.answeredLocked(id)
	if c == nil || c.Phase() != calls.Open {
		return
	}
	u.failLocked(c, describe)
}

// failLocked ends a call with the fault of its answer.
func (u *upstream) failLocked(c *call, describe func(server, operation string) *fault.Record) {
	c.Answer.Fault = describe(u.name(), mcp.ToolsCall+":"+c.Name)
	c.Answer.Fault.Fault.Detail += ". The call was made"
	u.settledLocked(c)
}

// misshapen returns why clients would take a response for no message, although it
// is one of JSON-RPC: their call would then wait until they give up. A result of
// MCP is always an object.
func misshapen(msg *jsonrpc.Message) error {
	if msg.Error == nil {
		if msg.Result[0] != '{' {
			return errors.New("its result is not an object")
		}
		return nil
	}
	if msg.Error[0] != '{' {
		return errors.New("its error is not an object")
	}
	code, err := strconv.ParseFloat(string(jsonrpc.Field(msg.Error, "code")), 64)
	if err != nil || code != math.Trunc(code) {
		return errors.New("its error has no code that is a whole number")
	}
	if _, ok := mcp.String(jsonrpc.Field(msg.Error, "message")); !ok {
		return errors.New("its error has no message that is a string")
	}
	return nil
}

// settledLocked notes that a call has its answer, in the line that begins at
// u.begin.
func (u *upstream) settledLocked(c *call) {
	c.Apply(calls.Reply)
	if !c.Claim().Wanted() {
		u.m.dropLocked(c)
		return
	}
	u.marks = append(u.marks, mark{seq: u.begin, c: c, at: time.Now()})
}
