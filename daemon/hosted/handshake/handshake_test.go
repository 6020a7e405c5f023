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

// A peer answers from a table with the result of a method, or of a method with the cursor or the
// version of its params. "!" is a refusal, with its code or error behind it, "…" silence,
// and "x" the end of the process. An answer behind "late " comes a little after the next
// question is answered, and one behind "slow " after some seconds. A method that is not in the
// table is refused.
type peer struct {
	answers map[string]string
	mu      sync.Mutex
	asked   []string // guarded by mu
	ended   bool     // guarded by mu
	era     string

	versions []string // that it was asked for; guarded by mu
}

func (p *peer) Request(ctx context.Context, _, method string, params json.RawMessage) (json.RawMessage, error) {
	var with struct {
		Cursor, ProtocolVersion string
	}
	_ = json.Unmarshal(params, &with)
	p.mu.Lock()
	p.asked = append(p.asked, method)
	if with.ProtocolVersion != "" {
		p.versions = append(p.versions, with.ProtocolVersion)
	}
	ended := p.ended
	p.mu.Unlock()
	if ended {
		return nil, errEnded
	}
	answer, ok := p.answers[method+with.Cursor+with.ProtocolVersion]
	if !ok {
		answer = p.answers[method]
	}
	answer, late := strings.CutPrefix(answer, "late ")
	if late {
		time.Sleep(1050 * time.Millisecond)
	}
	answer, slow := strings.CutPrefix(answer, "slow ")
	if slow {
		time.Sleep(4 * time.Second)
	}
	if why, refused := strings.CutPrefix(answer, "!"); refused && why != "" {
		if why[0] != '{' {
			why = `{"code":` + why + `,"message":"no"}`
		}
		return nil, &dialect.RefusalError{Method: method, Raw: json.RawMessage(why)}
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
	})
}

// TestListThatIsRefused_OthersStand checks what becomes of a server whose declarations and lists
// disagree: it has what it lists.
func TestListThatIsRefused_OthersStand(t *testing.T) {
	const tools, prompts = `{"tools":[{"name":"t"}]}`, `{"prompts":[{"name":"p"}]}`
	for _, x := range []struct {
		name, capabilities string
		answers            map[string]string
		tools, prompts     int
		notes              int
		fails              bool
	}{
		{"declares nothing", `{}`, map[string]string{mcp.ToolsList: tools}, 1, 0, 0, false},
		{"declares null", `null`, map[string]string{mcp.ToolsList: tools}, 1, 0, 0, false},
		{"says nothing of it", ``, map[string]string{mcp.ToolsList: tools}, 1, 0, 0, false},
		{"its tools are null", `{"tools":null}`, map[string]string{mcp.ToolsList: tools}, 1, 0, 0, false},
		{"declares nothing and has nothing", `{}`, map[string]string{}, 0, 0, 0, false},
		{"declares nothing and is silent", `{}`, map[string]string{mcp.ToolsList: "…"}, 0, 0, 0, false},
		{
			"knows no list of tools", `{"tools":{},"prompts":{}}`,
			map[string]string{mcp.PromptsList: prompts},
			0, 1, 0, false,
		},
		{
			"refuses its tools", `{"tools":{},"prompts":{}}`,
			map[string]string{mcp.ToolsList: "!-32000", mcp.PromptsList: prompts},
			0, 1, 1, false,
		},
		{"refuses its tools and has nothing else", `{"tools":{}}`, map[string]string{mcp.ToolsList: "!-32000"}, 0, 0, 0, true},
		{"knows no list of tools and has nothing else", `{"tools":{}}`, map[string]string{}, 0, 0, 0, false},
		{
			"refuses the second page", `{"tools":{}}`,
			map[string]string{
				mcp.ToolsList: `{"tools":[{"name":"t"}],"nextCursor":"2"}`, mcp.ToolsList + "2": "!-32000",
			},
			1, 0, 1, false,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &peer{era: dialect.Legacy, answers: x.answers}
			about := json.RawMessage(`{}`)
			if x.capabilities != "" {
				about = json.RawMessage(`{"capabilities":` + x.capabilities + `}`)
			}
			lists, err := handshake.ReadLists(t.Context(), p, slog.New(slog.DiscardHandler), about, listing.Lists{})
			if (err != nil) != x.fails || len(lists.Raw[listing.Tools]) != x.tools ||
				len(lists.Raw[listing.Prompts]) != x.prompts || len(lists.Cut) != x.notes || lists.Unheard {
				t.Errorf("%s: %+v, %v", x.name, lists, err)
			}
		})
	}
}

// TestVersionThatIsRefused_NextCommonOne checks that a server which refuses the newest version is
// introduced in the newest one that both speak, however it says which it does.
func TestVersionThatIsRefused_NextCommonOne(t *testing.T) {
	for refusal, want := range map[string]string{
		`{"code":-32602,"message":"no","data":{"supported":["2024-11-05","2025-06-18"]}}`: "2025-11-25 2025-06-18",
		`{"code":-32602,"message":"no","data":{"supportedVersions":["2024-11-05"]}}`:      "2025-11-25 2024-11-05",
		`{"code":-32000,"message":"Unsupported protocol version (supported versions: 2025-03-26, 2024-10-07)"}`: "2025-11-25 " +
			"2025-03-26",
		`{"code":-32602,"message":"Unsupported protocol version: 2025-11-25"}`: "2025-11-25 2025-06-18",
		`{"code":-32000,"message":"no key"}`:                                   "2025-11-25",
	} {
		p := &peer{answers: map[string]string{mcp.Initialize: "{}", mcp.Initialize + "2025-11-25": "!" + refusal}}
		_, err := handshake.Introduce(t.Context(), p, mcp.Implementation{}, dialect.Legacy)
		if got := strings.Join(p.versions, " "); got != want || (err != nil) != (want == "2025-11-25") {
			t.Errorf("%s: it was asked for %q, %v; want %q", refusal, got, err, want)
		}
	}
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

// TestEmptyCursor_IsOneInTheModernEra checks that an empty cursor leads on in the modern era, and ends a list of an
// older server, and that one which comes twice ends both.
func TestEmptyCursor_IsOneInTheModernEra(t *testing.T) {
	for era, want := range map[string]int{dialect.Modern: 2, dialect.Legacy: 1} {
		p := &listPeer{peer: peer{era: era}, pages: []string{
			`{"tools":[{"name":"a"}],"nextCursor":""}`, `{"tools":[{"name":"b"}],"nextCursor":""}`,
		}}
		about := json.RawMessage(`{"capabilities":{"tools":{}}}`)
		lists, err := handshake.ReadLists(t.Context(), p, slog.New(slog.DiscardHandler), about, listing.Lists{})
		if err != nil || len(lists.Raw[listing.Tools]) != want || p.asked != want {
			t.Errorf("%s: %s after %d questions, %v", era, lists.Raw[listing.Tools], p.asked, err)
		}
	}
}

// listPeer has a list of several pages, whatever their cursors. Further questions get the last one.
type listPeer struct {
	peer

	pages []string
	asked int
}

// Request returns the next page.
func (p *listPeer) Request(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
	p.asked++
	return json.RawMessage(p.pages[min(p.asked, len(p.pages))-1]), nil
}
