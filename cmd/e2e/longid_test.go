package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestLongNamesHarmNobody checks that a session whose request ids, tokens, names and URIs
// have megabytes gets a refusal for each, with its own id, and that all other sessions'
// calls work.
func TestLongNamesHarmNobody(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"})}).daemon()
	bad, good := p.agent().shake(), p.agent().shake()
	long := strings.Repeat("i", 16<<20)
	refused := func(what, id, line string, code int) {
		t.Helper()
		bad.send(line)
		for {
			got := bad.read()
			if strings.Contains(got[:min(len(got), 100)], `"method"`) {
				continue
			}
			if !strings.Contains(got, `"id":`+id) || !strings.Contains(got, fmt.Sprintf(`"code":%d`, code)) {
				t.Errorf("%s: answered with %.200s", what, got)
			}
			return
		}
	}
	const call = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"odd__say","arguments":{"text":"{}"}%s}}`
	refused("a long id", `"`+long+`"`, fmt.Sprintf(call, `"`+long+`"`, ""), -32600)
	refused("an id one too long", `"`+long[:1023]+`"`, fmt.Sprintf(call, `"`+long[:1023]+`"`, ""), -32600)
	refused("a number", strings.Repeat("7", 2000), fmt.Sprintf(call, strings.Repeat("7", 2000), ""), -32600)
	refused("a token", "1", fmt.Sprintf(call, "1", `,"_meta":{"progressToken":"`+long+`"}`), -32602)
	n := 1
	ask := func(what, method, params string) {
		t.Helper()
		n++
		refused(what, fmt.Sprint(n),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, n, method, params), -32602)
	}
	ask("a tool", "tools/call", `"name":"odd__`+long+`"`)
	ask("a prompt", "prompts/get", `"name":"odd__`+long+`"`)
	ask("a resource", "resources/read", `"uri":"mem://`+long+`"`)
	ask("a subscription", "resources/subscribe", `"uri":"mem://`+long+`"`)
	ask("its end", "resources/unsubscribe", `"uri":"mem://`+long+`"`)
	ask("a completion", "completion/complete", `"ref":{"type":"ref/resource","uri":"mem://`+long+`"}`)
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	ask("a modern subscription", "subscriptions/listen",
		modern+`,"notifications":{"resourceSubscriptions":["mem://`+long+`"]}`)
	if x := good.wait(good.call("odd__say",
		map[string]any{"text": `{"content":[{"type":"text","text":"well"}]}`})); x.text() != "well" {
		t.Errorf("another session's call: %.300s", x.raw)
	}
	// The longest allowed id and URI work.
	id := `"` + long[:1022] + `"`
	bad.send(fmt.Sprintf(call, id, ""))
	if got := bad.read(); !strings.Contains(got, `"id":`+id+`,"result"`) {
		t.Errorf("an id of 1 KiB: %.200s", got)
	}
	bad.rest()
	good.rest()
}
