package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// MaxText is the most characters of text in one result, counted as UTF-16
// units as clients do: they cut or hide results of 48,000 and more.
const MaxText = 40_000

// cutNote stands at the end of a text that was cut.
const cutNote = "\n... cut at %d of %d characters"

// callResult is the result of tools/call. Structured is absent unless the
// client asked for JSON or the call failed: clients that get both show a
// model the structured content alone.
type callResult struct {
	Content    []textContent   `json:"content"`
	Structured json.RawMessage `json:"structuredContent,omitempty"`
	IsError    bool            `json:"isError"`
}

// textContent is the one sort of content that own tools answer with.
type textContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Encode makes the result object of a tools/call from what the tool's handler
// returned. An error that is no [*fault.Record] becomes an internal_failure,
// and so does a value that is no object.
func (p *Prepared) Encode(res Result, err error, r Render, d Detail) json.RawMessage {
	if err != nil {
		res.Fault = fault.From(err, fault.Host, p.operation)
	}
	if res.Fault == nil {
		b, err := p.encode(res, r, d)
		if err == nil {
			return b
		}
		res = Result{Fault: fault.New(fault.InternalFailure, fault.Host, p.operation,
			"encoding the answer of %s: %v", p.Tool.Name, err)}
	}
	return encodeFault(res.Fault, res.FaultText)
}

// encode makes the result object of a call that succeeded. It returns an error for a
// value that cannot be encoded or is no object.
func (p *Prepared) encode(res Result, r Render, d Detail) (json.RawMessage, error) {
	if r == Porcelain && res.Text != "" {
		return finish(callResult{Content: text(res.Text)})
	}
	value, err := jsonrpc.Marshal(res.Value)
	if err != nil {
		return nil, err
	}
	if value[0] != '{' {
		return nil, fmt.Errorf("%s is not an object", got(value))
	}
	if r == JSON {
		return finish(callResult{Content: text(string(value)), Structured: value})
	}
	lines, err := p.Tool.Bounds.Text(value, d)
	if err != nil {
		return nil, err
	}
	return finish(callResult{Content: text(lines)})
}

// encodeFault makes the result object of a call that failed; more follows the text of
// the fault.
func encodeFault(f *fault.Record, more string) json.RawMessage {
	return mcp.ToolFailure(f, Cut(mcp.FaultText(f, more), MaxText))
}

// finish encodes a result.
func finish(res callResult) (json.RawMessage, error) { return jsonrpc.Marshal(res) }

// text returns s, cut to [MaxText], as content.
func text(s string) []textContent {
	return []textContent{{Type: "text", Text: Cut(s, MaxText)}}
}

// Cut returns s if it has at most limit characters, else its beginning and a
// last line that says so, limit characters in all. Characters are UTF-16
// units; no character is split.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	total := 0
	for _, r := range s {
		total += units(r)
	}
	if total <= limit {
		return s
	}
	room := limit - len(fmt.Sprintf(cutNote, limit, total))
	kept, end := 0, 0
	for i, r := range s {
		if kept += units(r); kept > room {
			kept -= units(r)
			break
		}
		end = i + utf8.RuneLen(r)
		if r == utf8.RuneError { // one byte if it stands for an invalid one
			_, n := utf8.DecodeRuneInString(s[i:])
			end = i + n
		}
	}
	var b bytes.Buffer
	b.WriteString(s[:end])
	fmt.Fprintf(&b, cutNote, kept, total)
	return b.String()
}

// units returns how many UTF-16 units a character takes.
func units(r rune) int {
	if r > 0xffff {
		return 2
	}
	return 1
}
