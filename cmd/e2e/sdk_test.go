package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// TestSDKClients has the official SDK's client use holdline, at each version of the
// protocol.
func TestSDKClients(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.daemon()
	for _, version := range []string{"2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			progress := make(chan string, 64)
			client := mcp.NewClient(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					select {
					case progress <- r.Params.Message:
					default:
					}
				},
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
					t.Error("own tools never change")
				},
			})
			session, err := client.Connect(ctx, &mcp.CommandTransport{Command: p.command("mcp-stdio")},
				&mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			if got := session.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("version %s was agreed on, want %s", got, version)
			}

			list, err := session.ListTools(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				if strings.HasPrefix(tool.Name, "consult") && tool.Annotations == nil {
					t.Errorf("%s has no annotations", tool.Name)
				}
			}
			if want := ownToolNames(); !slices.Equal(names, want) {
				t.Errorf("tools %q, want %q", names, want)
			}

			answer := claudetest.Say("an opinion")
			answer.Delay = 1.5
			res, err := session.CallTool(ctx, &mcp.CallToolParams{
				Name: "consult", Meta: mcp.Meta{"progressToken": "p" + version},
				Arguments: map[string]any{"prompt": claudetest.Prompt("?", answer)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if text := res.Content[0].(*mcp.TextContent).Text; res.IsError || !strings.HasPrefix(text, "an opinion") ||
				res.StructuredContent != nil {
				t.Errorf("consult = %+v: %s", res, text)
			}
			select {
			case <-progress:
			case <-ctx.Done():
				t.Error("no progress came")
			}
			res, err = session.CallTool(ctx,
				&mcp.CallToolParams{
					Name: "health_snapshot", Arguments: map[string]any{"render": "json", "detail": "full"},
				})
			if err != nil || res.IsError || res.StructuredContent == nil {
				t.Errorf("health_snapshot = %+v, %v", res, err)
			}
			if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "nope"}); err == nil ||
				!strings.Contains(err.Error(), "nope") {
				t.Errorf("unknown tool: %v", err)
			}

			callCtx, stop := context.WithCancel(ctx)
			called := make(chan error, 1)
			go func() {
				_, err := session.CallTool(callCtx,
					&mcp.CallToolParams{Name: "consult", Arguments: map[string]any{"prompt": hang()}})
				called <- err
			}()
			p.until("a running consult", func(s control.StatusAnswer) bool { return s.Consults.Running == 1 })
			stop()
			if err := <-called; !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled call gave %v", err)
			}
			begin := time.Now()
			p.until("no consult",
				func(s control.StatusAnswer) bool { return s.Consults.Running == 0 && len(s.Workers) == 0 })
			t.Logf("the consult was gone %v after its cancellation", time.Since(begin))
			if version != "2026-07-28" {
				if err := session.Ping(ctx, nil); err != nil {
					t.Errorf("ping: %v", err)
				}
			}
		})
	}
}
