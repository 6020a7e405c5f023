package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// TestLine checks that long arguments are a part of their own, in the client's file, and short
// ones are not.
func TestLine(t *testing.T) {
	file := &bulk.File{Path: "/line", Offset: 3, Size: 5}
	for _, size := range []int{10, bulk.Min} {
		arguments := `{"text":"` + strings.Repeat("x", size) + `"}`
		c := &tool.RemoteCall{
			ID: "1", Params: []byte(`{"name":"a__b","arguments":` + arguments + `}`), Arguments: file,
		}
		names := NewNames(7, c, "key")
		p, err := (&Envelope{Era: Legacy}).Line(c, &listing.Offer{Method: mcp.ToolsCall, Own: "b"}, &names)
		if err != nil {
			t.Fatal(err)
		}
		if long := size == bulk.Min; long != (p.File == file) || long != (string(p.Long) == arguments) {
			t.Errorf("%d bytes: file %v, long part of %d bytes", size, p.File, len(p.Long))
		}
		line := string(p.Before) + string(p.Long) + string(p.After)
		if len(line) != p.Size() || !strings.HasSuffix(line, "\n") {
			t.Errorf("%d bytes: a line of %d", p.Size(), len(line))
		}
		msg, err := jsonrpc.Parse([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil || string(jsonrpc.Field(msg.Params, "arguments")) != arguments ||
			string(jsonrpc.Field(msg.Params, "name")) != `"b"` {
			t.Errorf("%d bytes: %v, %.200s", size, err, line)
		}
	}
}

// TestParamsForEachEra checks that a server sees the members of _meta that its era has, whatever the
// client's era is, and all members that belong to neither.
func TestParamsForEachEra(t *testing.T) {
	const own = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	modern := `{"_meta":{` + own + `,"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},` +
		`"io.modelcontextprotocol/logLevel":"debug","progressToken":1,"traceparent":"00-1","claudecode/toolUseId":"t"},"name":"a__b"}`
	bare := `{"name":"a__b","_meta":{` + own + `}}`
	for _, c := range []struct {
		about, params string
		modern        bool
		era           string
		want          string
	}{
		{
			"a modern client and a legacy server", modern, true, Legacy,
			`{"_meta":{"progressToken":"p","traceparent":"00-1","claudecode/toolUseId":"t"},"name":"b"}`,
		},
		{"a modern client with nothing else and a legacy server", bare, true, Legacy, `{"name":"b"}`},
		{
			"a modern client and a modern server", bare, true, Modern, `{"name":"b","_meta":{` + own + `}}`,
		},
		{
			"a legacy client and a modern server", `{"name":"a__b","_meta":{"x":1}}`, false, Modern,
			`{"name":"b","_meta":{"own":1,"x":1}}`,
		},
		{
			"a legacy client that names a version, and a legacy server", bare, false, Legacy, `{"name":"b"}`,
		},
		{
			"a legacy client that names a version, and a modern server", bare, false, Modern,
			`{"name":"b","_meta":{"own":1}}`,
		},
		{"a legacy client and a legacy server", `{"name":"a__b","_meta":{}}`, false, Legacy, `{"name":"b","_meta":{}}`},
	} {
		e := &Envelope{Era: c.era, Meta: []byte(`"own":1`)}
		call := &tool.RemoteCall{Params: []byte(c.params), Modern: c.modern, Progress: func(json.RawMessage) {}}
		got, err := e.Params(call, &listing.Offer{Method: mcp.ToolsCall, Own: "b"}, []byte(`"p"`))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.about, err, got, c.want)
		}
	}
}
