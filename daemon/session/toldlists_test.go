package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"holdline/daemon/tool"
	"holdline/protocol"
)

const (
	listLine   = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	listenLine = `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{` + modernMeta +
		`,"notifications":{"toolsListChanged":true}}}`
)

// keep reads a control line, and does what a proxy does with it.
func (c *client) keep(kept map[string]string) {
	c.t.Helper()
	line := c.next()
	control, err := protocol.ParseControl([]byte(line))
	if err != nil || control.Keep == nil {
		c.t.Fatalf("got %s, want what the proxy has to keep", line)
	}
	maps.Copy(kept, control.Keep)
	maps.DeleteFunc(kept, func(_, value string) bool { return value == "" })
}

// quiet fails the test if the client is told anything before the answer to its next request.
func (c *client) quiet(when, ping string) {
	c.t.Helper()
	c.send(ping)
	if line := c.next(); !strings.Contains(line, `"id":99`) {
		c.t.Errorf("%s: the client is told %s", when, line)
	}
}

// upgraded starts a host of another version, which has one more tool.
func upgraded(t *testing.T) *host {
	t.Helper()
	return startAt(t, 8, time.Now(), tool.Tool{
		Name: "fresh", Description: "is new", Dispatch: tool.OnHost, Contract: tool.Convergent,
		Handle: func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil },
	})
}

// TestUpgradeBringsTools_ClientToldOnce gives a client the list of tools of one daemon. It checks what
// the next ones say: nothing, if they have the same tools; that the list has changed, once, if an
// upgrade has brought another tool; and nothing again at the daemons after that.
func TestUpgradeBringsTools_ClientToldOnce(t *testing.T) {
	const ping, changed = `{"jsonrpc":"2.0","id":99,"method":"ping"}`, `notifications/tools/list_changed`
	kept := map[string]string{}
	c := start(t).greet(t, protocol.Greeting{Identity: "a", Kept: kept})
	c.next()
	c.shake()
	c.send(listLine)
	want(t, c.next(), "1", `"echo"`)
	c.keep(kept) // behind the list, never before
	back := func(h *host) *client {
		c := h.again(t, protocol.Greeting{Identity: "a", Next: 4, Kept: kept})
		c.next()
		c.hand()
		return c
	}
	back(start(t)).quiet("with the same tools", ping)
	c = back(upgraded(t))
	want(t, c.next(), "", changed)
	c.keep(kept)
	c.quiet("once told", ping)
	c = back(upgraded(t))
	c.quiet("with the tools of which the client was told", ping)
	c.send(listLine)
	want(t, c.next(), "1", `"fresh"`)
	c.keep(kept)
	back(upgraded(t)).quiet("with the tools that it has listed again", ping)
	want(t, back(start(t)).next(), "", changed) // the upgrade is taken back
}

// TestUpgradeBringsTools_SubscriptionToldOnce checks the same for a client of the modern era, which is
// told in its subscription, whether it has listed the tools or not.
func TestUpgradeBringsTools_SubscriptionToldOnce(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":99,"method":"server/discover","params":{` + modernMeta + `}}`
	for _, lists := range []bool{true, false} {
		kept, next := map[string]string{}, int64(2)
		c := start(t).greet(t, protocol.Greeting{Identity: "a", Kept: kept})
		c.next()
		c.send(listenLine)
		want(t, c.next(), "", "subscriptions/acknowledged")
		c.keep(kept)
		if lists {
			c.send(strings.Replace(listLine, `}`, `,"params":{`+modernMeta+`}}`, 1))
			want(t, c.next(), "1", `"echo"`)
			c.keep(kept)
			next++
		}
		back := func(h *host) *client {
			c := h.again(t, protocol.Greeting{Identity: "a", Next: next, Pending: []int64{1}, Kept: kept})
			c.next()
			c.replay(1, listenLine) // what it gets has not changed: it is not told so again
			return c
		}
		back(start(t)).quiet(fmt.Sprintf("listed %v, with the same tools", lists), ping)
		c = back(upgraded(t))
		want(t, c.next(), "", "notifications/tools/list_changed", `"io.modelcontextprotocol/subscriptionId":7`)
		c.keep(kept)
		c.quiet("once told", ping)
		back(upgraded(t)).quiet(fmt.Sprintf("listed %v, with the tools of which it was told", lists), ping)
	}
}

// TestClientKeepsNothing_GetsNoControlLines checks that a client that does not say that it keeps what
// it is told gets the list alone, and that at the next daemon it is told nothing by that.
func TestClientKeepsNothing_GetsNoControlLines(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":99,"method":"ping"}`
	c := start(t).open(t, protocol.Greeting{Identity: "a"})
	c.send(listLine)
	want(t, c.next(), "1", `"echo"`)
	c.quiet("behind the list", ping)
	c = upgraded(t).again(t, protocol.Greeting{Identity: "a", Next: 4})
	c.next()
	c.hand()
	c.quiet("at the next daemon", ping)
}

// TestSecondPage_GivesNoDigest checks that only the first page of a list says that the client has it: a
// list that has changed between two pages must be announced.
func TestSecondPage_GivesNoDigest(t *testing.T) {
	var long []tool.Tool
	for i := range 600 {
		long = append(long, tool.Tool{
			Name: fmt.Sprintf("zz%03d", i), Description: strings.Repeat("x", 2000), Dispatch: tool.OnHost,
			Contract: tool.Convergent,
			Handle:   func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil },
		})
	}
	c := startAt(t, 8, time.Now(), long...).greet(t, protocol.Greeting{Identity: "a", Kept: map[string]string{}})
	c.next()
	c.shake()
	c.send(listLine)
	var page struct{ Result struct{ NextCursor string } }
	if err := json.Unmarshal([]byte(c.next()), &page); err != nil || page.Result.NextCursor == "" {
		t.Fatalf("the list has one page: %v", err)
	}
	c.keep(map[string]string{})
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"` + page.Result.NextCursor + `"}}`)
	want(t, c.next(), "2", `"zz599"`)
	c.quiet("behind the second page", `{"jsonrpc":"2.0","id":99,"method":"ping"}`)
}
