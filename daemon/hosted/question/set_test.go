package question

import (
	"encoding/json"
	"testing"

	"holdline/daemon/calls"
	"holdline/protocol/jsonrpc"
)

// TestStates checks that the table of transitions is the one in the doc comment.
func TestStates(t *testing.T) {
	table := map[State][4]State{
		Open:     {Shown, Open, Answered, Closed},
		Shown:    {Shown, Open, Answered, Closed},
		Answered: {Answered, Answered, Answered, Closed},
		Closed:   {Closed, Closed, Closed, Closed},
	}
	c := calls.NewCall(calls.Key{}, "t", false)
	for from, row := range table {
		for event, want := range row {
			s := NewSet("w")
			q := s.Add("w:1.0", jsonrpc.IntID(1), &jsonrpc.Message{Method: "m"}, false)
			q.state = from
			if from == Shown {
				q.with = c
			}
			switch event {
			case 0:
				s.Show(c, []*Question{q})
			case 1:
				s.Hide(c)
			case 2:
				s.Answer(q)
			case 3:
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
	if all := s.Waiting(false); len(all) != 1 || all[0] != person || !s.AwaitPerson() || !s.AwaitClient() {
		t.Errorf("%d requests wait", len(all))
	}
	c := calls.NewCall(calls.Key{}, "t", false)
	s.Show(c, s.Waiting(false))
	if len(s.Waiting(false)) != 0 || len(s.Waiting(true)) != 1 || !s.AwaitPerson() {
		t.Error("a request that was shown waits to be shown, or does not wait for its answer")
	}
	s.Answer(person)
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
	if all := s.Waiting(false); all[0].ID != "w:9.0" {
		t.Errorf("the client is asked %s first, want w:9.0", all[0].ID)
	}
}
