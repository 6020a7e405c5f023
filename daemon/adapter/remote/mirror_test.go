package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"holdline/protocol/fault"
)

// TestArgumentsInHeaders checks that calls of tools which demand arguments in headers reach
// the official server, which compares them.
func TestArgumentsInHeaders(t *testing.T) {
	s := newSDKServer(t, mcp.StreamableHTTPOptions{Stateless: true})
	schema := json.RawMessage(`{"type":"object","properties":{` +
		`"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"},` +
		`"deep":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}}}}}`)
	s.AddTool(&mcp.Tool{Name: "where", InputSchema: schema},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	// A configured header does not stand in for an argument.
	o := Options{Name: "far", URL: s.URL, Headers: map[string]string{"mcp-param-region": "mine"}}
	for _, listed := range []bool{true, false} { // without a list it is asked for after the server's refusal
		b := startServe(t.Context(), t, o)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}`
		if listed {
			b.say(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`)
			if m := b.hear(); !strings.Contains(string(m.Result), `"where"`) {
				t.Fatalf("tools/list: %s %s", m.Result, m.Error)
			}
		}
		for i, args := range []string{
			`{"region":"us-west1","count":42,"deep":{"dry":true}}`, `{"region":"Hello, 世界","count":-7.0}`,
			`{"region":"","deep":{"dry":false}}`, `{"region":null}`, `{}`, `{"region":" a\nb"}`,
			`{"region":"=?base64?x?="}`, `{"count":9007199254740991}`,
		} {
			b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call",`+
				`"params":{"name":"where","arguments":%s,%s}}`, i+2, args, meta))
			if m := b.hear(); m.Result == nil || string(m.ID) != fmt.Sprint(i+2) {
				t.Errorf("listed %v, %s: %s", listed, args, m.Error)
			}
		}
		b.in.Close()
		if err := b.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestHeaderAnnotations checks which annotations of a schema are taken, and that a tool whose
// annotations break the rules is left out of the list.
func TestHeaderAnnotations(t *testing.T) {
	const ok = `{"type":"string","x-mcp-header":"A"}`
	for _, x := range [][2]string{ // a schema, and a header with the path to its argument, or "bad"
		{`{"properties":{"a":` + ok + `}}`, "Mcp-Param-A a"},
		{`{"properties":{"o":{"type":"object","properties":{"a":` + ok + `}}}}`, "Mcp-Param-A o.a"},
		{`{"properties":{"x-mcp-header":` + ok + `}}`, "Mcp-Param-A x-mcp-header"},
		{`{"properties":{"a":{"type":"string","default":{"x-mcp-header":1}}}}`, ""},
		{`{"properties":{"a":true}}`, ""},
		{
			`{"properties":{"a":{"x-mcp-header":"!#$%&'*+-.^_|~z9","type":"boolean"}}}`,
			"Mcp-Param-!#$%&'*+-.^_|~z9 a",
		},
		{`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "bad"},
		{`{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`, "bad"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"A b"}}}`, "bad"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nB: c"}}}`, "bad"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, "bad"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`, "bad"},
		{`{"properties":{"a":` + ok + `,"b":{"type":"string","x-mcp-header":"a"}}}`, "bad"},
		{`{"x-mcp-header":"A","type":"string"}`, "bad"},
		{`{"anyOf":[{"properties":{"a":` + ok + `}}]}`, "bad"},
		{`{"properties":{"l":{"type":"array","items":` + ok + `}}}`, "bad"},
		{`{"$defs":{"x":` + ok + `},"properties":{"a":{"$ref":"#/$defs/x"}}}`, "bad"},
		{`{"properties":{"a":{"allOf":[{"prefixItems":[[],[{"properties":{"b":` + ok + `}}]]}]}}}`, "bad"},
		{`{"if":{"properties":{"a":` + ok + `}},"properties":{"b":{"type":"string","const":"x"}}}`, "bad"},
		{`{"properties":{"a":{"type":"object","additionalProperties":` + ok + `,"properties":{}}}}`, "bad"},
		{
			`{"properties":{"enum":` + ok + `,"e":{"enum":[{"x-mcp-header":"B"}],"examples":[` + ok + `]}}}`,
			"Mcp-Param-A enum",
		},
	} {
		schema, want := x[0], x[1]
		const page = `{"jsonrpc":"2.0","id":7,"result":{"tools":%s,"ttlMs":1.0}}`
		tools := `[{"name":"other"},{"name":"t","inputSchema":` + schema + `}]`
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, asJSON, fmt.Sprintf(page, tools))
		})
		c := New(Options{Name: "s", URL: url})
		got, err := send(t, c, strings.Replace(fmt.Sprintf(modern, "t"), "tools/call", "tools/list", 1))
		if want == "bad" {
			tools = `[{"name":"other"}]`
		}
		if err != nil || !slices.Equal(got, []string{fmt.Sprintf(page, tools)}) {
			t.Errorf("%s: listed %q, %v", schema, got, err)
		}
		learned := ""
		for _, m := range c.tools["t"] {
			learned = m.header + " " + strings.Join(m.path, ".")
		}
		if want != "bad" && learned != want {
			t.Errorf("%s: learned %q, want %q", schema, learned, want)
		}
	}
}

// TestMismatchWithoutChange checks that a call whose headers are refused is made once more only
// if the list of tools, of all its pages, changes the headers. Otherwise the refusal is its answer.
func TestMismatchWithoutChange(t *testing.T) {
	var calls atomic.Int32
	var lists []string
	const refusal = `{"jsonrpc":"2.0","id":7,"error":{"code":-32020,"message":"Header mismatch"}}`
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(b), "tools/call"):
			calls.Add(1)
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, refusal)
		case !strings.Contains(string(b), `"cursor":"two"`):
			lists = append(lists, string(b))
			answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{"tools":[],"nextCursor":"two"}}`)
		default:
			lists = append(lists, string(b))
			answer(w, asJSON, `{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"t"}]}}`)
		}
	})
	got, err := send(t, New(Options{Name: "s", URL: url}), fmt.Sprintf(modern, "t"))
	if err != nil || !slices.Equal(got, []string{refusal}) || calls.Load() != 1 || len(lists) != 2 {
		t.Errorf("got %q, %v after %d calls and the lists %q", got, err, calls.Load(), lists)
	}
}

// TestArgumentOfHeaderIsAmbiguous_CallNotMade checks that an argument which a gateway reads in a header
// must be one for the server, too.
func TestArgumentOfHeaderIsAmbiguous_CallNotMade(t *testing.T) {
	c := &Client{tools: map[string][]mirrored{"t": {{header: "Mcp-Param-A", path: []string{"o", "a"}}}}}
	for arguments, want := range map[string]string{
		`{"o":{"a":"x","b":"y"}}`: "x", `{"o":{"b":"y"}}`: "", `{"B":1,"b":2,"o":{"a":"x"}}`: "x", `{}`: "", `7`: "",
		`{"o":{"a":"x","A":"y"}}`: "refused", `{"o":{"A":"y"}}`: "refused", `{"o":{"a":"x","a":"y"}}`: "refused",
		`{"o":{"a":"x"},"O":{"a":"y"}}`: "refused",
	} {
		m, err := parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` + arguments + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		headers, err := c.mirror(&m)
		got := headers["Mcp-Param-A"]
		if f, ok := errors.AsType[*fault.Record](err); ok && f.Fault.Code == fault.InvalidInput && !f.MayHaveActed {
			got = "refused"
		}
		if got != want {
			t.Errorf("%s: %q, %v, want %q", arguments, got, err, want)
		}
	}
}
