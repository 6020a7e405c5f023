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

// MaxText is the most characters of text in one result, counted in UTF-16 units as clients
// count them. Clients cut or hide results of 48,000 and more.
const MaxText = 40_000

// cutNote stands at the end of a text that was cut.
const cutNote = "\n... cut at %d of %d characters"

// Encode returns the result object of a tools/call that ended with res. A value that is no
// JSON object becomes an internal_failure.
func (p *Prepared) Encode(res Result, r Render) json.RawMessage {
	if f := res.Fault; f != nil {
		return mcp.ToolFailure(f, Cut(mcp.FaultText(f, res.FaultText), MaxText))
	}
	if r == Porcelain {
		return mcp.ToolResult(Cut(res.Text, MaxText), nil, false)
	}
	value, err := jsonrpc.Marshal(res.Value)
	if err == nil && value[0] != '{' {
		err = fmt.Errorf("%s is not an object", got(value))
	}
	if err != nil {
		return p.Encode(Result{Fault: fault.New(fault.InternalFailure, fault.Host, p.operation,
			"encoding the answer of %s: %v", p.Tool.Name, err)}, r)
	}
	return mcp.ToolResult(Cut(string(value), MaxText), value, false)
}

// Cut returns s if it has at most limit characters. Otherwise it returns the beginning of s
// and a last line that says so, together at most limit characters. Lengths are in UTF-16
// units, and no character is split.
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
