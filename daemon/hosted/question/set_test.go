package question

import (
	"encoding/json"
	"testing"

	"holdline/daemon/calls"
	"holdline/protocol/jsonrpc"
)

// open returns the call of a write that is under way, and that its client awaits.
func open(write int64) *calls.Call {
	c := calls.Restore(&calls.Record{Write: write, N: write}, false)
	c.Demand(calls.Ask)
	return c
}

// TestTwoCallsAsk_EachGetsItsOwnRequest checks that a request that one call's client was told of, by
// this daemon or an earlier one, is shown to no other call's, until that call has ended.
func TestTwoCallsAsk_EachGetsItsOwnRequest(t *testing.T) {
	first, second := open(1), open(2)
	s := NewSet("w")
	s.WasShown(second, "w:2.0") // before it is read
	for _, seq := range []int64{1, 2, 3} {
		s.Add(ID("w", seq, 0), jsonrpc.IntID(seq), &jsonrpc.Message{}, false).Line = []byte("line")
	}
	s.WasShown(first, "w:1.0") // afterwards
	ids := func(all []*Question) (ids string) {
		for _, q := range all {
			ids += q.ID + " "
		}
		return ids
	}
	if got := ids(s.Of(first, true)); got != "w:1.0 w:3.0 " {
		t.Errorf("the first call's client is asked %s", got)
	}
	if got := ids(s.Of(second, false)); got != "w:2.0 " || s.HasShown(second) {
		t.Errorf("the second call's client is asked %s, has been asked: %v", got, s.HasShown(second))
	}
	second.Demand(calls.Suspend)
	if got := ids(s.ToShow()); got != "w:1.0 w:3.0 " || !s.HasShown(second) {
		t.Errorf("%s are to be shown, the second call's client has been asked: %v", got, s.HasShown(second))
	}
	second.Apply(calls.Reply)
	if got := ids(s.Of(first, true)); got != "w:1.0 w:2.0 w:3.0 " {
		t.Errorf("the first call's client is asked %s once the second call has ended", got)
	}
}

// TestAnswerGivenTwiceBeforeItIsAskedAgain_FirstCounts checks that of two answers that arrive before
// the request is read again the first one counts, and that a line that is sent again is no second
// answer.
func TestAnswerGivenTwiceBeforeItIsAskedAgain_FirstCounts(t *testing.T) {
	s := NewSet("w")
	first := jsonrpc.Message{Result: json.RawMessage(`{"a":1}`)}
	for range 2 {
		if !s.KeepEarly("w:1.0", Early{N: 4, Msg: first}) {
			t.Error("an answer is not kept, or not when its line comes again")
		}
	}
	if s.KeepEarly("w:1.0", Early{N: 5, Msg: jsonrpc.Message{Result: json.RawMessage(`{"a":2}`)}}) {
		t.Error("a second answer is kept")
	}
	if e, ok := s.TakeEarly("w:1.0"); !ok || e.N != 4 || string(e.Msg.Result) != `{"a":1}` {
		t.Errorf("the answer is %+v", e)
	}
}

// TestStates checks that the table of transitions is the one in the doc comment.
func TestStates(t *testing.T) {
	table := map[State][2]State{
		Open:     {Answered, Closed},
		Answered: {Answered, Closed},
		Closed:   {Closed, Closed},
	}
	for from, row := range table {
		for event, want := range row {
			s := NewSet("w")
			q := s.Add("w:1.0", jsonrpc.IntID(1), &jsonrpc.Message{Method: "m"}, false)
			q.state = from
			if event == 0 {
				s.Answer(q, 1)
			} else {
				s.Close(q)
			}
			if q.state != want {
				t.Errorf("state %d after event %d is %d, want %d", from, event, q.state, want)
			}
		}
	}
}

// TestWaits checks which requests wait for a client: those that the daemon relays, until
// they have an answer; and that the bounds hold until requests are closed.
func TestWaits(t *testing.T) {
	s := NewSet("w")
	own := s.Add(ID("w", 1, 0), jsonrpc.IntID(1), &jsonrpc.Message{Method: "ping"}, false)
	person := s.Add(ID("w", 2, 0), jsonrpc.IntID(2), &jsonrpc.Message{Method: "elicitation/create"}, true)
	person.Line = []byte("line")
	if all := s.ToShow(); len(all) != 1 || all[0] != person || !s.AwaitPerson() || !s.AwaitClient() {
		t.Errorf("%d requests wait", len(all))
	}
	c := open(1)
	c.Demand(calls.Suspend)
	s.Show(c, s.ToShow())
	if len(s.ToShow()) != 0 || len(s.Waiting()) != 1 || !s.AwaitPerson() {
		t.Error("a request that was shown waits to be shown, or does not wait for its answer")
	}
	s.Answer(person, 7)
	if !person.IsAnsweredBy(7) || person.IsAnsweredBy(8) {
		t.Error("the line with the answer is not known")
	}
	if s.AwaitClient() || person.NeedsLine() || !own.NeedsLine() {
		t.Error("a request that has its answer waits, or a line is lost")
	}
	for i := range int64(Max) {
		s.Add(ID("w", 3, i), jsonrpc.IntID(9), &jsonrpc.Message{}, false)
	}
	if s.Add("w:4.0", jsonrpc.IntID(9), &jsonrpc.Message{}, false) != nil {
		t.Error("there is no bound")
	}
	if !s.Close(person) || s.Close(person) || s.Knows(person.ID) {
		t.Error("a request that is closed is still known, or closed twice")
	}
	if names := s.TakeSettled(); len(names) != 1 || names[0] != "2.0" || len(s.TakeSettled()) != 0 {
		t.Errorf("the files %v go", names)
	}
	params := json.RawMessage(make([]byte, maxBytes+1))
	if s.Add("w:5.0", jsonrpc.IntID(9), &jsonrpc.Message{Params: params}, false) != nil {
		t.Error("there is no bound of bytes")
	}
}

// TestKept checks that a request of a file is opened unless it has its answer, or the
// process cannot read one any more, and is ignored when it is read again.
func TestKept(t *testing.T) {
	for _, lives := range []bool{true, false} {
		s := NewSet("w")
		s.Restore([]Kept{{Seq: 1, Msg: jsonrpc.Message{Method: "elicitation/create"}}, {Seq: 2}})
		s.MarkAnswered("w:2.0")
		if !s.AwaitPerson() {
			t.Error("a person is not awaited before the request is opened")
		}
		kept := s.Kept(lives)
		if open := len(kept) == 1 && kept[0].Seq == 1; open != lives {
			t.Errorf("a process that lives (%v) gets the requests %v", lives, kept)
		}
		s.Reopened()
		if !s.Knows("w:1.0") || s.AwaitPerson() {
			t.Error("a request of a file is handled when it is read again")
		}
	}
}

// TestWaitingInOrder checks that a client is asked in the order in which the server asked.
func TestWaitingInOrder(t *testing.T) {
	s := NewSet("w")
	for _, seq := range []int64{9, 10} {
		s.Add(ID("w", seq, 0), jsonrpc.IntID(seq), &jsonrpc.Message{}, false).Line = []byte("line")
	}
	if all := s.ToShow(); all[0].ID != "w:9.0" {
		t.Errorf("the client is asked %s first, want w:9.0", all[0].ID)
	}
}
