package proxy

import (
	"fmt"
	"slices"
	"testing"
)

// cancelLine cancels the request with that id, as the client spells it.
func cancelLine(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// callWith is a tool call with that id, as the client spells it.
func callWith(id, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q}}`, id, name)
}

// resultOf is the result that the call of a tool has, with that id.
func resultOf(id, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"of":%q}}`, id, name)
}

// TestIDUsedAgainAfterCancellation_LateAnswerIsNotTheNewCalls checks that the answer to a cancelled
// call, and its progress, which were on their way, are not taken for those of a later call that has
// its id and its progress token, and that the later call gets its own.
func TestIDUsedAgainAfterCancellation_LateAnswerIsNotTheNewCalls(t *testing.T) {
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`
	for _, id := range []string{`5`, `"5"`, `"\u0035"`} {
		inBubble(t, nil, func(r *rig) {
			d, g := r.accept()
			if !g.Numbers {
				t.Error("the daemon is not asked for the numbers of lines")
			}
			d.send(welcomeLine)
			r.send(callWith(id, "first"), cancelLine(id), callWith(id, "second"))
			d.want(callWith(id, "first"), cancelLine(id), callWith(id, "second"))
			d.send(progress+" 1", resultOf(id, "first")+" 1", progress+" 3", resultOf(id, "second")+" 3",
				resultOf(id, "second")+" 3")
			r.wantOut(progress, resultOf(id, "second"))
			// Once more, and the late answer comes last.
			r.send(callWith(id, "third"), cancelLine(id), callWith(id, "fourth"))
			d.want(callWith(id, "third"), cancelLine(id), callWith(id, "fourth"))
			d.send(resultOf(id, "fourth")+" 6", resultOf(id, "third")+" 4", progress+" 4", progress+" 6")
			r.wantOut(resultOf(id, "fourth"))
			r.in.Close()
			d.want(byeClient)
			d.wantEnd()
			r.wantEnd(ExitDone)
		})
	}
}

// TestDaemonKilledAfterIDWasUsedAgain_NewCallIsAnswered checks that a resume lists the later call of
// an id alone, and that it gets its own answer.
func TestDaemonKilledAfterIDWasUsedAgain_NewCallIsAnswered(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		r.send(callWith("5", "first"), cancelLine("5"), callWith("5", "second"))
		d.want(callWith("5", "first"), cancelLine("5"), callWith("5", "second"))
		d.send(resultOf("5", "first") + " 1")
		d.conn.Close()
		d, g := r.accept()
		if g.Next != 4 || !slices.Equal(g.Pending, []int64{3}) {
			t.Errorf("the next line is %d, pending are %v", g.Next, g.Pending)
		}
		d.send(welcomeLine)
		d.want(`{"holdline":1,"replay":3,"answered":false}`, callWith("5", "second"))
		d.send(resultOf("5", "first")+" 1", resultOf("5", "second")+" 3")
		r.wantOut(resultOf("5", "second"))
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestIDUsedTwiceInFlight_EachLineHasItsOwnAnswer checks that of two requests in flight with one id
// the one that the daemon has answered is not pending any more, and the other is; and that a
// cancellation ends the wait for both.
func TestIDUsedTwiceInFlight_EachLineHasItsOwnAnswer(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		refused := `{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"in use"}}`
		r.send(callWith("5", "first"), callWith("5", "second"), callWith("5", "third"))
		d.want(callWith("5", "first"), callWith("5", "second"), callWith("5", "third"))
		d.send(refused + " 2")
		r.wantOut(refused)
		d.conn.Close()
		d, g := r.accept()
		if !slices.Equal(g.Pending, []int64{1, 3}) {
			t.Errorf("pending are %v", g.Pending)
		}
		d.send(welcomeLine)
		d.want(`{"holdline":1,"replay":1,"answered":false}`, callWith("5", "first"),
			`{"holdline":1,"replay":3,"answered":false}`, callWith("5", "third"))
		r.send(cancelLine("5"), callWith("5", "fourth"))
		d.want(cancelLine("5"), callWith("5", "fourth"))
		d.send(refused+" 3", resultOf("5", "first")+" 1", resultOf("5", "fourth")+" 5")
		r.wantOut(resultOf("5", "fourth"))
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}
