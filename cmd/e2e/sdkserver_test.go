package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"holdline/protocol/control"
)

// sdkServerMain is a server made with the official SDK, with tools, a prompt, a resource, a
// template and completion. For the era "legacy" it does not know server/discover. With a
// directory that has no file "go" it answers nothing.
func sdkServerMain(args []string) int {
	if len(args) > 1 && mute(args[1]) {
		return 0
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "sdkserver", Version: "1"}, &mcp.ServerOptions{
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Ref.Name +
				r.Params.Ref.URI + ":" + r.Params.Argument.Value}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	type said struct {
		Word string `json:"word"`
	}
	mcp.AddTool(s,
		&mcp.Tool{Name: "say", Description: "says it again", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
			if in.Word == "bad" {
				return nil, said{}, errors.New("a bad word")
			}
			return nil, in, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "tell", Description: "says it in a log message"},
		func(ctx context.Context, r *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
			return nil, in, r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "notice", Logger: "sdk", Data: in.Word}) //nolint:staticcheck // deprecated, and used
		})
	mcp.AddTool(s, &mcp.Tool{Name: "touch", Description: "changes the resource of that URI"},
		func(ctx context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
			return nil, in, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: in.Word})
		})
	mcp.AddTool(s, &mcp.Tool{Name: "grow", Description: "adds a prompt of that name"},
		func(_ context.Context, _ *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
			s.AddPrompt(&mcp.Prompt{Name: in.Word},
				func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
					return nil, errors.New("nothing")
				})
			return nil, in, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "inquire", Description: "asks the user for a word"},
		func(_ context.Context, r *mcp.CallToolRequest, in said) (*mcp.CallToolResult, said, error) {
			if got, ok := r.Params.InputResponses["word"].(*mcp.ElicitResult); ok {
				return nil, said{in.Word + " " + got.Action + " " + fmt.Sprint(got.Content["word"])}, nil
			}
			if in.Word == "late" {
				time.Sleep(2 * time.Second)
			}
			return &mcp.CallToolResult{
				RequestState: "half way",
				InputRequests: mcp.InputRequestMap{"word": &mcp.ElicitParams{
					Message: "a word for " + in.Word,
					RequestedSchema: map[string]any{
						"type": "object", "properties": map[string]any{"word": map[string]any{"type": "string"}},
					},
				}},
			}, said{}, nil
		})
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "who"}}},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{
				Role: "user", Content: &mcp.TextContent{Text: "hello " + r.Params.Arguments["who"]},
			}}}, nil
		})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
			URI: r.Params.URI, Text: "content of " + r.Params.URI,
		}}}, nil
	}
	s.AddResource(&mcp.Resource{Name: "one", URI: "mem://one"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "some", URITemplate: "mem://some/{name}"}, read)
	if slices.Contains(args, "legacy") {
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if method == "server/discover" {
					return nil, &jsonrpc.Error{Code: -32601, Message: "unknown method"}
				}
				return next(ctx, method, r)
			}
		})
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mute reads until the end of its input without an answer, unless dir has the file "go". It
// makes the file "came" before, and reports whether it was mute.
func mute(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
		return false
	}
	if err := os.WriteFile(filepath.Join(dir, "came"), nil, 0o600); err == nil {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return true
}

// TestServerEraInterrupted checks that a server whose only session ends while it is asked
// for its era is asked again later.
func TestServerEraInterrupted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"sdk": map[string]any{
		"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern", p.dir}, "holdline": hosting{},
	}}).daemon()
	a := p.agent().shake()
	came := filepath.Join(p.dir, "came")
	waitFor(t, "the server", func() bool { _, err := os.Stat(came); return err == nil })
	a.rest()
	p.until("the server is ended", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 })
	if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := p.agent().shake()
	p.untilReady("sdk")
	if raw := p.introduction("sdk"); !strings.Contains(raw, `"era":"modern"`) {
		t.Errorf("introduced as %s", raw)
	}
	b.rest()
}

// TestServerForsaken checks that a server whose only session ends while its process is
// being started is ended, too.
func TestServerForsaken(t *testing.T) {
	t.Parallel()
	const point = "hosted.spawned"
	p := newPlace(t).faults().serve("project")
	p.dieAs(point, death{held: true})
	p.daemon()
	a := p.agent().shake()
	waitFor(t, "a process", func() bool { return p.died(point) })
	a.rest()
	p.until("no session", func(s control.StatusAnswer) bool { return len(s.Sessions) == 0 })
	p.letGo(point)
	p.until("no process", func(s control.StatusAnswer) bool { return len(s.Workers) == 0 })
}

// introduction returns the recorded handshake with a server's only process.
func (p *place) introduction(server string) string {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/s"+server+"-*/server.json"))
	if err != nil || len(files) != 1 {
		p.t.Fatalf("%q, %v", files, err)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return string(raw)
}

// TestServerOffered checks that a server of scope session gets that session's client's
// capabilities, however late the client sends them.
func TestServerOffered(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{
		"own": p.toolsEntry(hosting{"scope": "session"}), "all": p.toolsEntry(hosting{"scope": "shared"}),
	}).daemon()
	a := p.agent()
	p.untilReady("all")
	if s := p.server("own"); s.State != "idle" { // it would have been started together with the other
		t.Errorf("before the client has said anything: %+v", s)
	}
	a.ask("initialize",
		map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{"sampling": map[string]any{}},
			"clientInfo": map[string]string{"name": "test", "version": "1"},
		})
	p.untilReady("own")
	if raw := p.introduction("own"); !strings.Contains(raw, `"offered":{"sampling":{}}`) {
		t.Errorf("introduced as %s", raw)
	}
	a.rest()
}

// TestSDKServers has the official SDK's client use the SDK's servers through holdline, for
// each era of either.
func TestSDKServers(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		p := newPlace(t)
		dir := filepath.Join(p.dir, "home/.config/holdline")
		cfg := fmt.Sprintf(`{"mcpServers": {"sdk": {"command": %q, "args": [%q]}}}`,
			filepath.Join(programs, "sdkserver"), era)
		if err := errors.Join(os.MkdirAll(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "config.json"), []byte(cfg), 0o600)); err != nil {
			t.Fatal(err)
		}
		p.daemon()
		for _, version := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
			t.Run(era+" server, client of "+version, func(t *testing.T) { sdkThrough(t, p, version, "sdk__") })
			t.Run(era+" server alone, client of "+version,
				func(t *testing.T) { sdkThrough(t, p, version, "", "--server", "sdk") })
		}
	}
}

// TestServerAlone checks that a session for one server sees that server alone, and that an
// unknown server is reported in the handshake.
func TestServerAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("project")
	p.daemon()
	p.must("servers", "start", "tools") // the handshake does not wait for a server that is starting
	a := p.agent("--server", "tools")
	hello := map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	}
	if x := a.ask("initialize", hello); !strings.Contains(x.raw, `"serverInfo":{"name":"toolserver"`) {
		t.Errorf("initialize: %s", x.raw)
	}
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	x := a.ask("tools/list", map[string]any{})
	for _, tool := range x.Result.Tools {
		if strings.Contains(tool.Name, "__") || strings.Contains(tool.Name, "consult") ||
			tool.Name == "health_snapshot" {
			t.Errorf("tool %s", tool.Name)
		}
	}
	if x := a.wait(a.call("effect", map[string]any{"token": "alone", "ms": 0})); x.Result.IsError ||
		p.effectsOf("end alone") != 1 {
		t.Errorf("effect: %s", x.raw)
	}
	for _, name := range []string{"tools__effect", "health_snapshot"} {
		if x := a.wait(a.call(name, map[string]any{"token": "other"})); x.Error == nil || x.Error.Code != -32602 {
			t.Errorf("%s: %s", name, x.raw)
		}
	}
	b := p.agent("--server", "nope")
	if x := b.ask("initialize", hello); x.Error != nil ||
		!strings.Contains(x.raw, `no server \"nope\"`) && !strings.Contains(x.raw, `nope`) {
		t.Errorf("initialize for a server that is not there: %s", x.raw)
	}
	a.rest()
	b.rest()
}

// sdkThrough uses a server through holdline, by names with this prefix.
func sdkThrough(t *testing.T, p *place, version, prefix string, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	c, err := client.Connect(ctx, &mcp.CommandTransport{Command: p.command(append([]string{"mcp-stdio"}, flags...)...)},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.ListTools(ctx, nil)
	if err != nil || !slices.ContainsFunc(tools.Tools, func(one *mcp.Tool) bool { return one.Name == prefix+"say" }) {
		t.Fatalf("tools: %+v, %v", tools, err)
	}
	if alone := prefix == ""; alone != (len(tools.Tools) == 5) ||
		alone != (c.InitializeResult().ServerInfo.Name == "sdkserver") {
		t.Errorf("%d tools, of %+v", len(tools.Tools), c.InitializeResult().ServerInfo)
	}
	res, err := c.CallTool(ctx, &mcp.CallToolParams{Name: prefix + "say", Arguments: map[string]any{"word": "hi"}})
	if err != nil || res.IsError {
		t.Fatalf("say: %+v, %v", res, err)
	}
	if b, err := json.Marshal(res.StructuredContent); err != nil || string(b) != `{"word":"hi"}` {
		t.Errorf("say answered %s, %v", b, err)
	}
	if res, err := c.CallTool(ctx,
		&mcp.CallToolParams{Name: prefix + "say", Arguments: map[string]any{"word": "bad"}}); err != nil ||
		!res.IsError {
		t.Errorf("a bad word: %+v, %v", res, err)
	}
	prompts, err := c.ListPrompts(ctx, nil)
	if err != nil || len(prompts.Prompts) != 1 || prompts.Prompts[0].Name != prefix+"greet" {
		t.Errorf("prompts: %+v, %v", prompts, err)
	}
	prompt, err := c.GetPrompt(ctx,
		&mcp.GetPromptParams{Name: prefix + "greet", Arguments: map[string]string{"who": "you"}})
	if err != nil || prompt.Messages[0].Content.(*mcp.TextContent).Text != "hello you" {
		t.Errorf("greet: %+v, %v", prompt, err)
	}
	resources, err := c.ListResources(ctx, nil)
	if err != nil || len(resources.Resources) != 1 || resources.Resources[0].URI != "mem://one" {
		t.Errorf("resources: %+v, %v", resources, err)
	}
	templates, err := c.ListResourceTemplates(ctx, nil)
	if err != nil || len(templates.ResourceTemplates) != 1 ||
		templates.ResourceTemplates[0].URITemplate != "mem://some/{name}" {
		t.Errorf("templates: %+v, %v", templates, err)
	}
	for _, uri := range []string{"mem://one", "mem://some/thing"} {
		got, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil || got.Contents[0].Text != "content of "+uri {
			t.Errorf("%s: %+v, %v", uri, got, err)
		}
	}
	refusal := "no hosted server"
	if prefix == "" {
		refusal = "Resource not found" // the server's own text
	}
	if _, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "other://x"}); err == nil ||
		!strings.Contains(err.Error(), refusal) {
		t.Errorf("a resource that nobody has: %v", err)
	}
	done, err := c.Complete(ctx, &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: prefix + "greet"},
		Argument: mcp.CompleteParamsArgument{Name: "who", Value: "y"},
	})
	if err != nil || !slices.Equal(done.Completion.Values, []string{"greet:y"}) {
		t.Errorf("completion: %+v, %v", done, err)
	}
}

// TestSDKServersSay checks that log messages and notifications of the official SDK's
// servers reach its clients, for each era of either, also after the daemon's death.
func TestSDKServersSay(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
			t.Run(era+" server, client of "+version, func(t *testing.T) {
				p := newPlace(t).login()
				p.configure(map[string]any{"sdk": map[string]any{
					"command": filepath.Join(programs, "sdkserver"), "args": []string{era},
					"holdline": hosting{"scope": "shared"},
				}})
				sdkSays(t, p, version)
			})
		}
	}
}

// sdkSays checks what reaches a client of this version.
func sdkSays(t *testing.T, p *place, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	said := make(chan string, 64)
	client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { //nolint:staticcheck // deprecated, and used
			said <- fmt.Sprint(r.Params.Level, " ", r.Params.Logger, " ", r.Params.Data)
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			said <- "updated " + r.Params.URI
		},
		PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) { said <- "prompts" },
	})
	c, err := client.Connect(ctx, &mcp.CommandTransport{Command: p.command("mcp-stdio")},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var meta mcp.Meta
	if version == "2026-07-28" {
		meta = mcp.Meta{mcp.MetaKeyLogLevel: "info"} //nolint:staticcheck // deprecated, and used
	} else if err := c.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil { //nolint:staticcheck // deprecated, and used
		t.Fatal(err)
	}
	use := func(tool, word string) {
		t.Helper()
		res, err := c.CallTool(ctx,
			&mcp.CallToolParams{Meta: meta, Name: "sdk__" + tool, Arguments: map[string]any{"word": word}})
		if err != nil || res.IsError {
			t.Fatalf("%s: %+v, %v", tool, res, err)
		}
	}
	// until repeats an action until its effect arrives: the client does not report when a
	// modern subscription is acknowledged.
	until := func(want, tool, word string) {
		t.Helper()
		use(tool, word)
		for {
			select {
			case got := <-said:
				if got == want {
					return
				}
			case <-time.After(300 * time.Millisecond):
				use(tool, word)
			case <-ctx.Done():
				t.Fatalf("%s was not said", want)
			}
		}
	}
	if _, err := c.ListPrompts(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"mem://one", "mem://some/thing"} {
		if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: "other://x"}); err == nil && version != "2026-07-28" {
		t.Error("a resource that nobody has is subscribed to")
	}
	for life := range 2 {
		until(fmt.Sprint("notice sdk word", life), "tell", fmt.Sprint("word", life))
		until("updated mem://one", "touch", "mem://one")
		until("updated mem://some/thing", "touch", "mem://some/thing")
		if _, err := c.ListPrompts(ctx, nil); err != nil {
			t.Fatal(err)
		}
		until("prompts", "grow", fmt.Sprint("more", life))
		if life == 0 {
			kill9(t, p.pid(0))
		}
	}
}

// TestSDKServersAsk checks that a question that the official SDK's servers ask during a
// call reaches its clients, and the answer the server, for each era of either.
func TestSDKServersAsk(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(era+" server, client of "+version, func(t *testing.T) {
				p := newPlace(t)
				p.configure(map[string]any{"sdk": map[string]any{
					"command": filepath.Join(programs, "sdkserver"), "args": []string{era},
					"holdline": hosting{"scope": "session"},
				}}).daemon()
				ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
				defer cancel()
				client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ClientOptions{
					ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"word": r.Params.Message}},
							nil
					},
				})
				c, err := client.Connect(ctx, &mcp.CommandTransport{Command: p.command("mcp-stdio")},
					&mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				res, err := c.CallTool(ctx,
					&mcp.CallToolParams{Name: "sdk__inquire", Arguments: map[string]any{"word": "w"}})
				if err != nil {
					t.Fatal(err)
				}
				if b, err := json.Marshal(res.StructuredContent); err != nil ||
					string(b) != `{"word":"w accept a word for w"}` {
					t.Errorf("answered %s, %+v, %v", b, res, err)
				}
			})
		}
	}
}
