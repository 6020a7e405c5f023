package remote

import (
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestProbe asks a server of the older era server/discover. It answers without the newer
// version, and a handshake by initialize works afterwards.
func TestProbe(t *testing.T) {
	s := newSDKServer(t, mcp.StreamableHTTPOptions{})
	b := startServe(t.Context(), t, Options{Name: "far", URL: s.URL})
	b.say(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}}}`)
	if m := b.hear(); string(m.ID) != "1" || strings.Contains(string(m.Result), "2026-07-28") {
		t.Errorf("server/discover: %s %s", m.Result, m.Error)
	}
	b.say(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if m := b.hear(); string(m.ID) != "2" || m.Result == nil {
		t.Errorf("initialize: %s %s", m.Result, m.Error)
	}
	b.say(readyLine)
	for i := range 3 {
		b.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}`, i+3))
		if m := b.hear(); m.Result == nil {
			t.Errorf("tools/list: %s", m.Error)
		}
	}
	b.in.Close()
	if err := b.end(); err != nil {
		t.Error(err)
	}
}
