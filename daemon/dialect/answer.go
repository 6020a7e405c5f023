package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// If an answer cannot be read, its call would wait until it times out. So a line that is no
// message is searched for the id of a call. It must be certain that the line is the answer
// of that call: the server's own requests have ids, too, which may be equal to those of
// calls.

// LineEnds is how many bytes of the beginning and of the end of an answer
// [AnswerID] needs.
const LineEnds = 512

// answerForms recognise an answer by its beginning or its end. Whatever the order of its
// members, the id is the first or the last one, not counting "jsonrpc".
type answerForms struct {
	head *regexp.Regexp // id first; with the id
	late *regexp.Regexp // result or error first
	tail *regexp.Regexp // id last; with the id
	note *regexp.Regexp // a notification
}

var forms = sync.OnceValue(func() answerForms {
	const version, id, ws = `"jsonrpc"\s*:\s*"2\.0"`, `"id"\s*:\s*([0-9.eE+]+)`, `\s*`
	const begin = `^\s*\{\s*(?:` + version + `\s*,\s*)?`
	return answerForms{
		head: regexp.MustCompile(begin + id + ws + `,\s*(?:` + version + `\s*,\s*)?"(?:result|error)"\s*:`),
		late: regexp.MustCompile(begin + `"(?:result|error)"\s*:`),
		tail: regexp.MustCompile(`,\s*` + id + ws + `(?:,\s*` + version + ws + `)?\}\s*$`),
		note: regexp.MustCompile(begin + `"method"\s*:\s*"notifications/`),
	}
})

// AnswerID returns the id of an answer of which only the first and the last [LineEnds]
// bytes are known. It returns nil if these do not show an id.
func AnswerID(head, tail []byte) jsonrpc.ID {
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

// IsNotification reports whether a line that begins with head is certainly a notification, which
// answers nothing and asks for nothing.
func IsNotification(head []byte) bool { return forms().note.Match(head) }

// BrokenAnswerID returns the id of the call that a line answers, although the line is no
// message for the reason err. It returns nil unless that is certain.
func BrokenAnswerID(line []byte, err error) jsonrpc.ID {
	if !errors.Is(err, jsonrpc.ErrInvalid) {
		return AnswerID(line[:min(len(line), LineEnds)], line[max(len(line)-LineEnds, 0):])
	}
	// It is JSON, in which keys may stand twice, or in another case.
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	var id jsonrpc.ID
	for d.More() {
		token, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		key, _ := token.(string)
		isID := jsonrpc.IsSameKey(key, "id")
		switch {
		case err != nil, jsonrpc.IsSameKey(key, "method"):
			return nil
		case isID && id != nil && !bytes.Equal(id, value):
			return nil
		case isID:
			id = jsonrpc.ID(value)
		}
	}
	return id
}

// quoteBytes is how much of a line that cannot be read is quoted, in bytes.
const quoteBytes = 200

// Unreadable says, to follow the name of a server, that it answered with a line that is no
// message, and why. It quotes the begin of the line, from which mask removes secrets.
func Unreadable(line []byte, why error, mask func(text string) string) string {
	begin := mask(strings.ToValidUTF8(string(line[:min(len(line), 8*quoteBytes)]), "\uFFFD"))
	return fmt.Sprintf("answered with a line that cannot be read: %v; it begins: %s",
		why, fault.Quote([]byte(begin[:min(len(begin), quoteBytes)])))
}

// TooLong says, to follow the name of a server, that its answer exceeds the limit of a
// message.
func TooLong() string {
	return fmt.Sprintf("gave an answer of more than %d MiB, the most that a message may have: it was left out",
		jsonrpc.MaxFrame>>20)
}

// CheckAnswer returns nil if clients accept the response to a call as one of MCP. Otherwise
// it returns why not; clients would then wait for another answer until they give up. A
// result of MCP is always an object. Nor is one accepted that clients may read in another way than
// Holdline does. asks says that the result is [AsksForInput].
func CheckAnswer(msg *jsonrpc.Message) (asks bool, err error) {
	if msg.Error == nil {
		if msg.Result[0] != '{' {
			return false, errors.New("its result is not an object")
		}
		err = mcp.ResultObject.Fields(msg.Result, func(key string, value []byte) error {
			asks = asks || key == "resultType" && string(value) == inputRequired
			return nil
		})
		return asks, err
	}
	return false, checkError(msg)
}

// checkError is [CheckAnswer] for an error.
func checkError(msg *jsonrpc.Message) error {
	if msg.Error[0] != '{' {
		return errors.New("its error is not an object")
	}
	if err := mcp.ErrorObject.Check(msg.Error); err != nil {
		return err
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

// Number returns the write id in an id or a progress token, or 0 if it is none. Some servers
// have only floating-point numbers, and answer 7.0 to request 7. Others keep ids as
// strings, and answer "7".
func Number(raw []byte) int64 {
	raw = bytes.Trim(raw, `"`)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil && len(raw) > 0 && (raw[0] >= '0' && raw[0] <= '9') {
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil && f == math.Trunc(f) && f < 1<<53 {
			return max(int64(f), 0)
		}
	}
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// A RefusalError is a JSON-RPC error with which a server answered a request of the
// daemon's own.
type RefusalError struct {
	Method string
	Raw    json.RawMessage
}

func (e *RefusalError) Error() string {
	words, ok := mcp.String(jsonrpc.Field(e.Raw, "message"))
	if !ok || words == "" {
		return fmt.Sprintf("%s is refused: %s", e.Method, fault.Quote(e.Raw))
	}
	return fmt.Sprintf("%s is refused: %s (%s)", e.Method, fault.Quote([]byte(words)),
		fault.Quote(jsonrpc.Field(e.Raw, "code")))
}

// IsUnknownMethod reports whether the server says that it knows no such method.
func (e *RefusalError) IsUnknownMethod() bool {
	return string(jsonrpc.Field(e.Raw, "code")) == strconv.Itoa(jsonrpc.CodeUnknownMethod)
}

// OtherVersions returns which of these versions of MCP a server names that has refused to be introduced
// with the version asked: see [mcp.OtherVersions].
func (e *RefusalError) OtherVersions(all []string, asked string) []string {
	return mcp.OtherVersions(e.Raw, all, asked)
}

// ResultOf returns the result in the answer to a request of the daemon's own, or why it
// has none: a [*RefusalError] if that is the server's word. A result that other programs may read in
// another way is none.
func ResultOf(method string, msg jsonrpc.Message) (json.RawMessage, error) {
	if msg.Error != nil && msg.Kind != jsonrpc.Response { // it answered with something else
		words, _ := mcp.String(jsonrpc.Field(msg.Error, "message"))
		return nil, fmt.Errorf("%s: %s", method, words)
	}
	if msg.Error != nil {
		return nil, &RefusalError{method, msg.Error}
	}
	if err := mcp.CheckResult(method, msg.Result); err != nil {
		return nil, fmt.Errorf("the answer to %s cannot be read: %w", method, err)
	}
	return msg.Result, nil
}
