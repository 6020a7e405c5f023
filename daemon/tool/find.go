package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// trouble says why it is not known what a server offers, or why that cannot be used now.
type trouble struct {
	Server string `json:"server"`
	Error  string `json:"error"`
}

// Discover asks hosted servers what they offer a caller, for a limited time. It starts lazy
// servers only if start is true.
type Discover func(ctx context.Context, c Caller, start bool) []control.ServerOffers

// Limits of an answer of find_tools.
const (
	defaultLimit   = 8
	maxRanked      = 4096   // bytes of a description that are searched
	maxWords       = 280    // characters of a description in the answer
	maxLine        = 160    // characters of a description in the short text
	maxTroubles    = 16     // servers whose errors are listed
	maxTroubleText = 240    // characters of each error
	maxSchemas     = 16_000 // bytes of all schemas but the first
	maxSchema      = 24_000 // bytes of the first
	shownArguments = 16
)

// NewFindTools returns the tool find_tools.
func NewFindTools(discover Discover) Tool {
	return Tool{
		Name: FindTools,
		Description: "Finds tools of the MCP servers that are shared on this machine, by words: what you want to " +
			"do, or parts of names. Searches names, descriptions and argument names of all tools that you may use, " +
			"and answers with the best of them and the arguments that they take; call one with " + CallTool +
			". With render=json the answer has the whole input schemas, with detail=full the text has them.",
		Annotations: Annotations{Title: "Find tools", ReadOnly: true, Idempotent: true},
		Dispatch:    OnHost,
		Contract:    Convergent,
		Properties: json.RawMessage(`{
			"query": {"type":"string","pattern":"\\S","maxLength":1000,
				"description":"words, e.g. \"create github issue\""},
			"limit": {"type":"integer","minimum":1,"maximum":50,"default":8,"description":"most tools in the answer"},
			"start": {"type":"boolean","default":false,
				"description":"also start servers that have never run, to see what they offer"}
		}`),
		Required: []string{"query"},
		Handle: func(ctx context.Context, c Call) (Result, error) {
			a := struct {
				Query string `json:"query"`
				Limit int    `json:"limit"`
				Start bool   `json:"start"`
			}{Limit: defaultLimit}
			if err := json.Unmarshal(c.Args, &a); err != nil {
				return Result{}, fmt.Errorf("arguments of %s: %w", FindTools, err)
			}
			query := words(a.Query)
			if len(query) == 0 {
				return Result{}, fault.New(fault.InvalidInput, fault.Host, mcp.ToolsCall+":"+FindTools,
					"query: has no word to look for: letters or digits are wanted")
			}
			offers := discover(ctx, c.Caller, a.Start)
			if ctx.Err() != nil {
				return Result{}, context.Cause(ctx)
			}
			out := search(query, a.Limit, offers)
			return Result{Text: out.text(c.Detail), Value: out}, nil
		},
	}
}

// findings is the answer of find_tools.
type findings struct {
	Matches  int       `json:"matches"` // of which Tools are the best
	Searched int       `json:"searched"`
	Servers  int       `json:"servers"`
	Tools    []finding `json:"tools"`
	LeftOut  int       `json:"schemas_left_out,omitempty"` // schemas that are too large for one answer
	Errors   []trouble `json:"errors"`
}

// finding is a tool that was found.
type finding struct {
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Name        string          `json:"name"` // as it is exposed
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"inputSchema,omitempty"`
	Score       float64         `json:"score"`

	arguments string
}

// candidate is a tool of a hosted server that the caller may use.
type candidate struct {
	server string
	*control.ServerTool
}

// search finds the best tools for the words of a query.
func search(query []string, limit int, offers []control.ServerOffers) findings {
	out := findings{Servers: len(offers), Tools: []finding{}, Errors: []trouble{}}
	var all []candidate
	var documents []document
	for i := range offers {
		o := &offers[i]
		if o.Fault != nil && len(out.Errors) < maxTroubles {
			out.Errors = append(out.Errors, trouble{o.Server, fault.Short(o.Fault.Fault.Detail, maxTroubleText)})
		}
		for j := range o.Tools {
			t := candidate{o.Server, &o.Tools[j]}
			all, documents = append(all, t), append(documents, t.document())
		}
	}
	hits := rank(query, documents)
	out.Matches, out.Searched = len(hits), len(all)
	room := maxSchemas
	for i, h := range hits[:min(len(hits), limit)] {
		t := all[h.document]
		text, _ := mcp.String(jsonrpc.Field(t.Listing, "description"))
		f := finding{
			Server: t.server, Tool: t.Name, Name: t.Exposed, Description: fault.Short(text, maxWords),
			Score:     math.Round(h.score*1000) / 1000,
			arguments: signature(argumentsOf(t.Listing)),
		}
		schema := jsonrpc.Field(t.Listing, "inputSchema")
		switch {
		case i == 0 && len(schema) <= maxSchema:
			f.Schema = schema
		case i > 0 && len(schema) <= room:
			f.Schema = schema
			room -= len(schema)
		default:
			out.LeftOut++
		}
		out.Tools = append(out.Tools, f)
	}
	return out
}

// document returns what of a tool is searched: its names, the beginning of its description
// and the names of its arguments.
func (t candidate) document() document {
	text, _ := mcp.String(jsonrpc.Field(t.Listing, "description"))
	d := document{name: t.Exposed, words: words(t.server + " " + t.Name)}
	d.words = append(d.words, words(text[:min(len(text), maxRanked)])...)
	for _, a := range argumentsOf(t.Listing) {
		d.words = append(d.words, words(a.name)...)
	}
	return d
}

// text renders the answer for a model to read.
func (f *findings) text(d Detail) string {
	var b strings.Builder
	switch {
	case f.Searched == 0:
		b.WriteString("there are no tools to search\n")
	case f.Matches == 0:
		fmt.Fprintf(&b, "none of %d tools matches: try other words\n", f.Searched)
	default:
		fmt.Fprintf(&b, "%d of %d tools match, the best first:\n", f.Matches, f.Searched)
	}
	for i := range f.Tools {
		t := &f.Tools[i]
		fmt.Fprintf(&b, "[%d] server %s, tool %s: %s\n", i+1, t.Server, t.Tool,
			fault.Short(t.Description, maxLine))
		if d == Full && t.Schema != nil {
			fmt.Fprintf(&b, "    schema: %s\n", strings.NewReplacer("\n", " ", "\r", " ").Replace(string(t.Schema)))
		} else {
			fmt.Fprintf(&b, "    arguments: %s\n", t.arguments)
		}
	}
	for _, e := range f.Errors {
		fmt.Fprintf(&b, "server %s: %s\n", e.Server, e.Error)
	}
	if len(f.Tools) > 0 {
		b.WriteString("call one with " + CallTool + " {server, tool, arguments}")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// argument is an argument of a tool, as far as the top level of its schema says.
type argument struct {
	name     string
	kind     string // its type; "" if the schema does not name one
	required bool
}

// argumentsOf returns the arguments of a listed tool, the required ones first. A schema
// of the wrong form has none, or none that is required.
func argumentsOf(listing json.RawMessage) []argument {
	schema := jsonrpc.Field(listing, "inputSchema")
	var names []string
	_ = json.Unmarshal(jsonrpc.Field(schema, "required"), &names)
	var required, optional []argument
	_ = jsonrpc.Fields(jsonrpc.Field(schema, "properties"), func(name string, value []byte) error {
		kind, _ := mcp.String(jsonrpc.Field(value, "type"))
		if slices.Contains(names, name) {
			required = append(required, argument{name, kind, true})
		} else {
			optional = append(optional, argument{name, kind, false})
		}
		return nil
	})
	return append(required, optional...)
}

// signature renders arguments on one line, with a question mark behind those that are
// not required.
func signature(all []argument) string {
	if len(all) == 0 {
		return "none"
	}
	var out []string
	for _, a := range all[:min(len(all), shownArguments)] {
		word := fault.Short(a.name, 64)
		if !a.required {
			word += "?"
		}
		if a.kind != "" {
			word += " " + fault.Short(a.kind, 16)
		}
		out = append(out, word)
	}
	if more := len(all) - shownArguments; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}
