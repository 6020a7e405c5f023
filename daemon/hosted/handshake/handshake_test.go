package handshake_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/listing"
	"holdline/protocol/mcp"
)

var errEnded = errors.New("it ended")

// A peer answers from a table with the result of a method. "!" is a refusal, "…" silence,
// and "x" the end of the process. An answer behind "late " comes a little after the next
// question is answered, and one behind "slow " after some seconds. A method that is not in the
// table is refused.
type peer struct {
	answers map[string]string
	mu      sync.Mutex
	asked   []string // guarded by mu
	ended   bool     // guarded by mu
	era     string
}

func (p *peer) Request(ctx context.Context, _, method string, _ json.RawMessage) (json.RawMessage, error) {
	p.mu.Lock()
	p.asked = append(p.asked, method)
	ended := p.ended
	p.mu.Unlock()
	if ended {
		return nil, errEnded
	}
	answer, late := strings.CutPrefix(p.answers[method], "late ")
	if late {
		time.Sleep(1050 * time.Millisecond)
	}
	answer, slow := strings.CutPrefix(answer, "slow ")
	if slow {
		time.Sleep(4 * time.Second)
	}
	switch answer {
	case "", "!":
		return nil, &dialect.RefusalError{Method: method, Raw: json.RawMessage(`{"code":-32601,"message":"no"}`)}
	case "…":
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case "x":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
		return nil, errEnded
	default:
		return json.RawMessage(answer), nil
	}
}

func (p *peer) Initialized(context.Context) error {
	p.asked = append(p.asked, mcp.Initialized)
	return nil
}
func (p *peer) Capabilities() json.RawMessage { return json.RawMessage(`{}`) }
func (p *peer) Envelope() dialect.Envelope    { return dialect.Envelope{Era: p.era} }
func (p *peer) Introduced(era string, _ json.RawMessage) error {
	p.era = era
	return nil
}

func (p *peer) Ended() (exited, byItself bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended, p.ended
}

// TestEras checks how a server of unknown era is asked for its era: no server of the other
// era fails permanently because of the question.
func TestEras(t *testing.T) {
	const modern = `{"supportedVersions":["` + mcp.Modern + `"]}`
	for _, x := range []struct {
		name, era string
		answers   map[string]string
		asked     string
		want      string
		fails     bool
	}{
		{"modern", "", map[string]string{mcp.Discover: modern}, mcp.Discover, dialect.Modern, false},
		{
			"legacy", "",
			map[string]string{mcp.Initialize: "{}"},
			mcp.Discover + " " + mcp.Initialize + " " + mcp.Initialized, dialect.Legacy, false,
		},
		{
			"legacy that says nothing", "",
			map[string]string{mcp.Discover: "…", mcp.Initialize: "{}"},
			mcp.Discover + " " + mcp.Initialize + " " + mcp.Initialized, dialect.Legacy, false,
		},
		{
			"modern that starts slowly", "",
			map[string]string{mcp.Discover: "late " + modern, mcp.Initialize: "{}"},
			mcp.Discover + " " + mcp.Initialize, dialect.Modern, false,
		},
		{
			"modern that starts slowly and ends at initialize", "",
			map[string]string{mcp.Discover: "late " + modern, mcp.Initialize: "x"},
			mcp.Discover + " " + mcp.Initialize, dialect.Modern, false,
		},
		{
			"modern that is slow", "",
			map[string]string{mcp.Discover: "slow " + modern},
			mcp.Discover + " " + mcp.Initialize + " " + mcp.Discover, dialect.Modern, false,
		},
		{
			"legacy that starts slowly", "",
			map[string]string{mcp.Discover: "late !", mcp.Initialize: "{}"},
			mcp.Discover + " " + mcp.Initialize + " " + mcp.Initialized, dialect.Legacy, false,
		},
		{"legacy that ends", "", map[string]string{mcp.Discover: "x"}, mcp.Discover, dialect.Legacy, true},
		{
			"legacy that ends late", "",
			map[string]string{mcp.Discover: "…", mcp.Initialize: "x"},
			mcp.Discover + " " + mcp.Initialize, dialect.Legacy, true,
		},
		{
			"one that ends for another reason", "",
			map[string]string{mcp.Initialize: "x"},
			mcp.Discover + " " + mcp.Initialize, "", true,
		},
		{
			"known legacy", dialect.Legacy,
			map[string]string{mcp.Initialize: "{}"},
			mcp.Initialize + " " + mcp.Initialized, dialect.Legacy, false,
		},
		{
			"legacy that was replaced", dialect.Legacy,
			map[string]string{mcp.Discover: modern},
			mcp.Initialize + " " + mcp.Discover, dialect.Modern, false,
		},
		{
			"neither", dialect.Modern,
			map[string]string{},
			mcp.Discover + " " + mcp.Initialize, "", true,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{answers: x.answers}
			era, err := handshake.Introduce(t.Context(), p, mcp.Implementation{}, x.era)
			if asked := strings.Join(p.asked, " "); era != x.want || (err != nil) != x.fails || asked != x.asked {
				t.Errorf("%s: asked %q, era %q, %v; want %q, %q, failure %v", x.name, asked, era, err, x.asked,
					x.want, x.fails)
			}
		})
	}
}

// TestListWithoutAnswer checks that a server that does not answer for its prompts keeps its
// earlier ones, and that its tools are read all the same.
func TestListWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{era: dialect.Legacy, answers: map[string]string{
			mcp.ToolsList: `{"tools":[{"name":"t"}]}`, listing.Prompts.MCP().List: "…",
		}}
		about := json.RawMessage(`{"capabilities":{"tools":{},"prompts":{},"resources":{}}}`)
		before := listing.Lists{listing.Prompts: {json.RawMessage(`{"name":"p"}`)}}
		begin := time.Now()
		lists, err := handshake.ReadLists(t.Context(), p, slog.New(slog.DiscardHandler), about, before)
		if err != nil || !lists.Unheard || len(lists.Cut) != 1 || time.Since(begin) > 6*time.Second {
			t.Errorf("%+v after %v: %v", lists, time.Since(begin), err)
		}
		if len(lists.Raw[listing.Tools]) != 1 || len(lists.Raw[listing.Prompts]) != 1 {
			t.Errorf("tools %s, prompts %s", lists.Raw[listing.Tools], lists.Raw[listing.Prompts])
		}
		p.answers[mcp.ToolsList] = "!"
		if _, err := handshake.ReadLists(t.Context(), p, slog.New(slog.DiscardHandler), about, before); err == nil {
			t.Error("a server without its tools is of use")
		}
	})
}

// TestListOfMostEntries checks that no note says that entries are left out of a list that has
// as many as it may have, however the server says that nothing follows.
func TestListOfMostEntries(t *testing.T) {
	tools := strings.TrimSuffix(strings.Repeat(`{"name":"t"},`, listing.MaxEntries), ",")
	for next, cut := range map[string]int{
		``: 0, `,"nextCursor":null`: 0, `,"nextCursor":""`: 0, `,"nextCursor":"2"`: 1,
	} {
		p := &peer{era: dialect.Legacy, answers: map[string]string{
			mcp.ToolsList: `{"tools":[` + tools + `]` + next + `}`,
		}}
		about := json.RawMessage(`{"capabilities":{"tools":{}}}`)
		lists, err := handshake.ReadLists(t.Context(), p, slog.New(slog.DiscardHandler), about, listing.Lists{})
		if err != nil || len(lists.Cut) != cut || len(lists.Raw[listing.Tools]) != listing.MaxEntries {
			t.Errorf("%s: %d tools, notes %q, %v", next, len(lists.Raw[listing.Tools]), lists.Cut, err)
		}
	}
}
