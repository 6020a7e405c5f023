package tool

import (
	"encoding/json"
	"fmt"
	"unicode/utf16"
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
	if res.Task != nil {
		return res.Task
	}
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
// units, and no character is split. limit must be above the length of that line.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	all := utf16.Encode([]rune(s))
	if len(all) <= limit {
		return s
	}
	kept := limit - len(fmt.Sprintf(cutNote, limit, len(all)))
	if utf16.DecodeRune(rune(all[kept-1]), rune(all[kept])) != utf8.RuneError {
		kept-- // these are the two halves of one character
	}
	return string(utf16.Decode(all[:kept])) + fmt.Sprintf(cutNote, kept, len(all))
}
