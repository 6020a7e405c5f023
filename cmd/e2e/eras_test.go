package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/mcp"
)

// Reasons for which an operation cannot work, each with the sentence of the MCP text.
const (
	// 2025-06-18, changelog: "Add support for elicitation, enabling servers to request additional
	// information from users during interactions". Revisions before have no such request.
	clientWithoutElicitation = "the client's revision has no elicitation"
	serverWithoutElicitation = "the server's revision has no elicitation"
	// 2025-11-25, transports: "A server using the Streamable HTTP transport MAY assign a session ID at
	// initialization time". One that assigns none has forgotten by the next request what logging/setLevel has set.
	levelNeedsSession = "the server keeps no session, in which the level that a request sets is kept"
	// 2026-07-28, schema, the key io.modelcontextprotocol/logLevel: "Replaces the former logging/setLevel RPC."
	// Servers of other revisions know only the latter, which sets nothing for the call to come without a session.
	levelIsNoKey = "the server's revision knows no level of a single request"
)

// eraOperations are the operations of the table, in the order in which a client tries them.
var eraOperations = []string{
	"initialize", "list", "call", "prompt", "resource", "cancel", "progress", "log level", "elicitation",
}

// impossible returns the reason for which an operation cannot work, or "".
func impossible(client, server, transport, operation string) string {
	switch {
	case operation == "elicitation" && server < "2025-06-18":
		return serverWithoutElicitation
	case operation == "elicitation" && client < "2025-06-18":
		return clientWithoutElicitation
	case operation == "log level" && transport == "bare" && server != mcp.Modern && client == mcp.Modern:
		return levelIsNoKey
	case operation == "log level" && transport == "bare" && server != mcp.Modern:
		return levelNeedsSession
	}
	return ""
}

// TestClientOfEachRevisionWithServerOfEach_WhatTheRevisionsKnowWorks has a client of each revision of
// MCP try all operations on a strict server of each revision, by stdio and remote, with and without
// a session. What a server gets must be of its own revision, to the last header.
func TestClientOfEachRevisionWithServerOfEach_WhatTheRevisionsKnowWorks(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	revisions := slices.Sorted(slices.Values(mcp.Supported()))
	mistakes := filepath.Join(p.dir, "mistakes")
	if err := os.Mkdir(mistakes, 0o700); err != nil {
		t.Fatal(err)
	}
	servers := map[string]any{}
	for _, revision := range revisions {
		for _, transport := range []string{"pipe", "kept", "bare"} {
			name := transport + "-" + revision
			entry := map[string]any{
				"command": filepath.Join(programs, "eraserver"), "args": []string{name, revision, mistakes},
			}
			if transport != "pipe" {
				s := newEraServer(name, revision, transport == "kept", func(text string) {
					t.Errorf("%s: %s", name, text)
				})
				at := httptest.NewServer(s)
				t.Cleanup(at.Close)
				entry = map[string]any{"type": "http", "url": at.URL + "/mcp"}
			}
			servers[name] = entry
			if revision >= "2025-06-18" { // a question is for the user of one client
				own := maps.Clone(entry)
				own["holdline"] = hosting{"scope": "session"}
				servers["own-"+name] = own
			}
		}
	}
	p.configure(servers).daemon()

	var mu sync.Mutex
	cells, reasons := 0, map[string]int{}
	var clients sync.WaitGroup
	for _, revision := range revisions {
		c := &eraClient{agent: p.agent("--identity", revision), revision: revision}
		c.begins()
		p.until("all servers serve", func(s control.StatusAnswer) bool { // a busy machine starts them slowly
			return !slices.ContainsFunc(s.Servers, func(one control.Server) bool { return one.State != "ready" })
		})
		clients.Go(func() {
			for _, server := range revisions {
				for _, transport := range []string{"pipe", "kept", "bare"} {
					for _, operation := range eraOperations {
						why, reason := c.try(transport, server, operation), impossible(revision, server, transport, operation)
						mu.Lock()
						cells++
						if reason != "" {
							reasons[reason]++
						}
						mu.Unlock()
						if why != "" {
							t.Errorf("client %s, server %s, %s: %s (%q): %s", revision, server, transport, operation, reason, why)
						}
					}
				}
			}
		})
	}
	clients.Wait()
	noted, err := filepath.Glob(filepath.Join(mistakes, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range noted {
		text, _ := os.ReadFile(file)
		t.Errorf("%s", text)
	}
	want := map[string]int{clientWithoutElicitation: 18, serverWithoutElicitation: 30, levelNeedsSession: 16, levelIsNoKey: 4}
	if all := 5 * 5 * 3 * len(eraOperations); cells != all || !maps.Equal(reasons, want) {
		t.Errorf("%d cells of %d, those that cannot work: %v, want %v", cells, all, reasons, want)
	}
}

// eraClient is a client of one revision.
type eraClient struct {
	*agent

	revision string
}

// isModern reports whether the client sends no initialize.
func (c *eraClient) isModern() bool { return c.revision == mcp.Modern }

// capabilities returns what the client declares.
func (c *eraClient) capabilities() map[string]any {
	if c.revision < "2025-06-18" {
		return map[string]any{}
	}
	return map[string]any{"elicitation": map[string]any{}}
}

// begins introduces the client, and has its session see all servers.
func (c *eraClient) begins() {
	c.t.Helper()
	if !c.isModern() {
		x := c.ask("initialize", map[string]any{
			"protocolVersion": c.revision, "capabilities": c.capabilities(),
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		})
		want := c.revision
		if want == "2025-03-26" { // which would have batches
			want = "2024-11-05"
		}
		if x.Result.ProtocolVersion != want {
			c.t.Fatalf("%s: initialize = %s", c.revision, x.raw)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
}

// request begins a request of the client's revision.
func (c *eraClient) request(method string, params, meta map[string]any) int {
	if c.isModern() {
		params = modernly(params, "io.modelcontextprotocol/clientCapabilities", c.capabilities())
		own := params["_meta"].(map[string]any)
		own[mcp.MetaClient] = map[string]string{"name": "test", "version": "1"}
		maps.Copy(own, meta)
	} else if len(meta) > 0 {
		params["_meta"] = meta
	}
	return c.begin(method, params)
}

// heard reads what comes before the answer to a request, and returns both. A message that the
// client's revision does not know is an error.
func (c *eraClient) heard(id int, each func(x *answer)) answer {
	return c.until(func(x *answer) bool {
		if x.Method != "" && x.ID != nil &&
			(c.isModern() || x.Method != "elicitation/create" || c.revision < "2025-06-18") {
			c.t.Errorf("client %s is asked: %s", c.revision, x.raw)
		}
		if x.answers(id) && c.isModern() && x.Error == nil && !strings.Contains(x.raw, `"resultType"`) {
			c.t.Errorf("client %s gets a result without a type: %s", c.revision, x.raw)
		}
		if each != nil {
			each(x)
		}
		return x.answers(id)
	})
}

// tool calls a tool of a server, and returns the text of its answer.
func (c *eraClient) tool(server, name string, args, meta map[string]any, each func(x *answer)) string {
	id := c.request("tools/call", map[string]any{"name": server + "__" + name, "arguments": args}, meta)
	x := c.heard(id, each)
	if x.Error != nil || x.Result.IsError {
		return x.raw
	}
	return x.text()
}

// want compares, and returns "" if both are equal.
func want(got, want string) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("got %q, want %q", got, want)
}

// try tries one operation, and returns what is wrong. One that cannot work must fail as the reason says,
// and at once.
func (c *eraClient) try(transport, revision, operation string) string {
	server := transport + "-" + revision
	switch operation {
	case "initialize":
		return want(c.tool(server, "about", nil, nil, nil), revision+" true")
	case "list":
		for method, entry := range map[string]string{
			"tools/list": server + "__echo", "prompts/list": server + "__greet", "resources/list": "mem://one",
		} {
			if x := c.heard(c.request(method, map[string]any{}, nil), nil); !strings.Contains(x.raw, entry) {
				return method + " lacks " + entry + ": " + x.raw
			}
		}
		return ""
	case "call":
		return want(c.tool(server, "echo", map[string]any{"text": "héllo"}, nil, nil), "héllo")
	case "prompt":
		id := c.request("prompts/get", map[string]any{"name": server + "__greet"}, nil)
		if x := c.heard(id, nil); !strings.Contains(x.raw, "prompt of "+revision) {
			return x.raw
		}
		return ""
	case "resource":
		id := c.request("resources/read", map[string]any{"uri": "mem://one"}, nil)
		if x := c.heard(id, nil); !strings.Contains(x.raw, "resource of ") {
			return x.raw
		}
		return ""
	case "cancel":
		return c.cancels(server)
	case "progress":
		token, counted := "p-"+server, ""
		said := c.tool(server, "count", nil, map[string]any{"progressToken": token}, func(x *answer) {
			var m struct {
				Params struct {
					ProgressToken any
					Progress      float64
				}
			}
			if decode(c.t, x.raw, &m); x.Method == "notifications/progress" && m.Params.ProgressToken == token {
				counted += fmt.Sprint(m.Params.Progress, " ")
			}
		})
		return want(counted+said, "1 2 3 counted")
	case "log level":
		return c.logs(server, impossible(c.revision, revision, transport, operation) == "")
	}
	if revision >= "2025-06-18" {
		server = "own-" + server
	}
	switch impossible(c.revision, revision, transport, operation) {
	case serverWithoutElicitation:
		return want(c.tool(server, "ask", nil, nil, nil), "this revision knows no questions")
	case clientWithoutElicitation:
		return want(c.tool(server, "ask", nil, nil, nil), "the client has no user")
	}
	return c.isAsked(server)
}

// cancels cancels a call that the server is at work on.
func (c *eraClient) cancels(server string) string {
	key := c.revision
	id := c.request("tools/call", map[string]any{"name": server + "__wait", "arguments": map[string]any{"text": key}},
		map[string]any{"progressToken": "w-" + server})
	x := c.until(func(x *answer) bool {
		return x.answers(id) || x.Method == "notifications/progress" && strings.Contains(x.raw, `"w-`+server+`"`)
	})
	if x.Method == "" {
		return x.raw
	}
	note := map[string]any{"requestId": id}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": note})
	if err != nil {
		c.t.Error(err)
	}
	c.send(string(b))
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(2 * time.Millisecond) {
		said := c.tool(server, "cancelled", map[string]any{"text": key}, nil, func(x *answer) {
			if x.answers(id) {
				c.t.Errorf("the answer to a cancelled call: %s", x.raw)
			}
		})
		if said == "true" || time.Now().After(deadline) {
			return want(said, "true")
		}
	}
}

// logs wants messages of the level info, and tries whether it gets these, and no others. A server that
// can keep no level sends none.
func (c *eraClient) logs(server string, works bool) string {
	meta := map[string]any{}
	if c.isModern() {
		meta[mcp.MetaLevel] = "info"
	} else if x := c.heard(c.request("logging/setLevel", map[string]any{"level": "info"}, nil), nil); x.Error != nil {
		return x.raw
	}
	levels := map[string]bool{} // of the messages; those of other clients' calls count, too
	said := c.tool(server, "log", nil, meta, func(x *answer) {
		var m struct {
			Params struct{ Level, Logger string }
		}
		if decode(c.t, x.raw, &m); x.Method == "notifications/message" && m.Params.Logger == server {
			levels[m.Params.Level] = true
		}
	})
	if !works {
		return want(fmt.Sprint(said, levels), "logged at map[]")
	}
	return want(fmt.Sprint(said, levels), "logged at infomap[info:true]")
}

// isAsked has the server ask the user.
func (c *eraClient) isAsked(server string) string {
	const accept = `{"action":"accept","content":{"name":"Ada"}}`
	name := server + "__ask"
	id := c.request("tools/call", map[string]any{"name": name, "arguments": map[string]any{}}, nil)
	if !c.isModern() {
		x := c.heard(id, func(x *answer) {
			if x.Method == "elicitation/create" {
				b, err := json.Marshal(x.ID)
				if err != nil {
					c.t.Error(err)
				}
				c.send(`{"jsonrpc":"2.0","id":` + string(b) + `,"result":` + accept + `}`)
			}
		})
		return want(x.text(), "asked: "+accept)
	}
	x := c.heard(id, nil)
	var m struct {
		Result struct {
			RequestState  string
			InputRequests map[string]json.RawMessage
		}
	}
	if decode(c.t, x.raw, &m); len(m.Result.InputRequests) != 1 {
		return x.raw
	}
	params := map[string]any{"name": name, "arguments": map[string]any{}, "requestState": m.Result.RequestState}
	for key := range m.Result.InputRequests {
		params["inputResponses"] = map[string]any{key: json.RawMessage(accept)}
	}
	return want(c.heard(c.request("tools/call", params, nil), nil).text(), "asked: "+accept)
}
