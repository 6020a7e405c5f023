package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"holdline/protocol/fault"
)

// Stream reads the lines of a program that writes a JSON object on each, and counts what is
// wrong with them. A [Run] embeds it.
type Stream struct {
	noise   int      // lines that were no JSON objects
	torn    bool     // the output ended inside a line
	printed []string // the first of these lines
}

// Limits of the lines that are kept for people. A longer line is left out: a piece of a secret would
// not be found in it later.
const (
	maxPrinted     = 3
	maxPrintedLine = 300 // bytes
)

// Printed returns the first lines that were no messages, quoted; "" if there are none. They may have
// secrets in them.
func (s *Stream) Printed() string {
	if len(s.printed) == 0 {
		return ""
	}
	text := strings.Join(s.printed, " / ")
	return `"` + fault.Short(text, len(text)+1) + `"`
}

// Decode reads a line into message. Fields of another type than the message's are skipped:
// the rest is there. ok is false for an empty line, and for noise, for which Decode returns
// the event.
func (s *Stream) Decode(line []byte, message any) (events []Event, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, false
	}
	err := json.Unmarshal(line, message)
	_, mistyped := errors.AsType[*json.UnmarshalTypeError](err)
	if line[0] != '{' || err != nil && !mistyped {
		s.noise++
		if len(s.printed) < maxPrinted && len(line) <= maxPrintedLine {
			s.printed = append(s.printed, strings.ToValidUTF8(string(line), "\uFFFD"))
		}
		return []Event{{Kind: Noise}}, false
	}
	return nil, true
}

// Torn records that the output ended inside a line.
func (s *Stream) Torn() { s.torn = true }

// EndOutput gives r what stood behind the last newline when the output ended. If that is a
// whole message, only its newline is missing, and it counts.
func EndOutput(r Run, rest []byte) {
	switch rest = bytes.TrimSpace(rest); {
	case len(rest) == 0:
	case json.Valid(rest):
		r.Line(rest)
	default:
		r.Torn()
	}
}
