package upstream

import (
	"log/slog"
	"testing"

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
