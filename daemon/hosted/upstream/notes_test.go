package upstream

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/stage"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// listed is an instance that counts what its process says of its lists.
type listed struct {
	Instance
	changes int
}

func (i *listed) ListsChanged() { i.changes++ }

// TestChangedListsOfAStart checks that the instance hears that lists have changed while the process
// starts: they may have been read already.
func TestChangedListsOfAStart(t *testing.T) {
	for state, want := range map[stage.State]int{stage.Starting: 1, stage.Serving: 1, stage.Draining: 0, stage.Exited: 0} {
		h, inst := New(Options{Log: slog.New(slog.DiscardHandler)}), &listed{}
		u := h.NewProcess(inst, t.TempDir(), "s", process.Owner{})
		u.State = state
		u.notified(jsonrpc.Message{Method: mcp.ToolsChanged})
		if inst.changes != want {
			t.Errorf("a process that is %v: the instance hears of it %d times, want %d", state, inst.changes, want)
		}
	}
}

// limited is an instance whose calls may take a minute.
type limited struct{ Instance }

func (limited) Limits() (answer, most time.Duration) { return time.Minute, time.Hour }

// TestProgressWithAGuessedToken_ReachesNobody checks that progress reaches a call only with the token
// that its own process was given for it, in whatever spelling, and only while the call is open.
func TestProgressWithAGuessedToken_ReachesNobody(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler)})
	u := h.NewProcess(limited{}, t.TempDir(), "s", process.Owner{})
	other := h.NewProcess(limited{}, t.TempDir(), "s", process.Owner{})
	u.Tokens, other.Tokens = "key", "another key"
	told := 0
	c := NewCall(calls.NewCall(calls.Key{Session: "x", N: 1}, "tool", false))
	c.Up, c.write, c.OnProgress = u, 7, func(json.RawMessage) { told++ }
	c.Apply(calls.Sent)
	u.Calls[7] = c
	progress := func(by *Process, token string) int {
		told = 0
		params := json.RawMessage(`{"progressToken":` + token + `,"progress":1}`)
		by.progressed(jsonrpc.Message{Method: mcp.ProgressNote, Params: params}, false)
		return told
	}
	own := u.Tokens.Of(7)
	for _, token := range []string{
		`7`, `"7"`, `7.0`, `"7-"`, `"-"`, `null`, `{}`, other.Tokens.Of(7), u.Tokens.Of(8), own[:len(own)-2] + `"`,
	} {
		if progress(u, token) != 0 {
			t.Errorf("progress with the token %s reaches the call", token)
		}
	}
	if progress(other, own) != 0 {
		t.Error("progress of another process reaches the call")
	}
	if progress(u, own) != 1 || progress(u, strings.Replace(own, "7", `\u0037`, 1)) != 1 {
		t.Error("its own progress does not reach the call")
	}
	c.Apply(calls.Reply)
	if progress(u, own) != 0 {
		t.Error("progress reaches a call that is answered")
	}
}
