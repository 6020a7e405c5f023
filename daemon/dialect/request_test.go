package dialect

import (
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
		names := NewNames(7, c)
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
