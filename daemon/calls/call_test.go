package calls

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLeft checks that the channel of [Call.Left] is open only while the call is Open.
func TestLeft(t *testing.T) {
	left := func(c *Call) bool {
		select {
		case <-c.Left():
			return true
		default:
			return false
		}
	}
	c := NewCall(Key{Session: "s", N: 1}, "t", false)
	if !left(c) {
		t.Error("a new call waits")
	}
	c.Apply(Sent)
	if before := c.Left(); left(c) {
		t.Error("an open call does not wait")
	} else {
		c.Apply(Lose)
		<-before
	}
	c.Apply(Sent)
	if left(c) {
		t.Error("a call that was made again does not wait")
	}
	c.Apply(Reply)
	c.Apply(Settle)
	if !left(c) || c.Phase() != Over {
		t.Errorf("a settled call is %v", c.Phase())
	}
}

// TestRepetition_KeptUntilOnRecord checks that the place of a lost answer is kept until the call's new
// write is on record, or the call is over.
func TestRepetition_KeptUntilOnRecord(t *testing.T) {
	for _, end := range []func(c *Call){
		(*Call).Repeated,
		func(c *Call) { c.Apply(Settle) },
		func(c *Call) { c.Apply(Reply) },
	} {
		c := NewCall(Key{Session: "s", N: 1}, "t", true)
		c.Apply(Sent)
		r := c.Repeat()
		if c.Phase() != Lost || !r.NeedsLine() || r.BeginWriting() {
			t.Errorf("a call whose answer is lost is %v, and its place is kept: %v", c.Phase(), r.NeedsLine())
		}
		c.Apply(Sent)
		if !r.NeedsLine() {
			t.Error("the place goes before the new write is on record")
		}
		if end(c); r.NeedsLine() {
			t.Errorf("the place is kept for a call that is %v", c.Phase())
		}
	}
}

// TestAnswerInFile checks that an answer written to a file is read unchanged by this daemon
// and the next, and that an answer stays in memory if its file cannot be written.
func TestAnswerInFile(t *testing.T) {
	dir := t.TempDir()
	c := NewCall(Key{Session: "s", N: 1}, "t", false)
	c.Apply(Sent)
	c.Apply(Reply)
	c.Answer = Answer{Result: []byte(`{"a":1}`)}
	if !c.BeginWriting() || c.BeginWriting() {
		t.Fatal("an answer is not written once")
	}
	if grown := c.Written(0, 0, errors.New("full")); grown != 0 || c.Answer.IsZero() || c.keeping != InMemory {
		t.Errorf("a file that cannot be written: grown %d, keeping %d, answer %+v", grown, c.keeping, c.Answer)
	}
	c.BeginWriting()
	if _, _, err := WriteAnswer(dir, 7, c.Answer); err == nil {
		t.Error("an answer is written into a directory that is not there")
	}
	if err := os.Mkdir(filepath.Join(dir, DirAnswers), 0o700); err != nil {
		t.Fatal(err)
	}
	size, sum, err := WriteAnswer(dir, 7, c.Answer)
	if grown := c.Written(size, sum, err); err != nil || grown != size || !c.Answer.IsZero() || c.keeping != InFile {
		t.Errorf("written: %v, grown %d of %d, keeping %d", err, grown, size, c.keeping)
	}
	if _, _, err := WriteAnswer(dir, 8, Answer{Error: []byte(`{"code":1,"message":"m"}`)}); err != nil {
		t.Fatal(err)
	}
	sizes, err := AnswersIn(dir)
	if err != nil || len(sizes) != 2 || sizes[7] != size {
		t.Errorf("AnswersIn = %v, %v", sizes, err)
	}
	if known, by := c.FileSum(); known != size || by != sum {
		t.Errorf("FileSum = %d, %d, want %d, %d", known, by, size, sum)
	}
	if a, err := ReadAnswer(dir, 7, size, sum); err != nil || string(a.Result) != `{"a":1}` {
		t.Errorf("ReadAnswer = %+v, %v", a, err)
	}
	if a, err := ReadAnswer(dir, 7, size, sum^1); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), AnswerFile(dir, 7)) {
		t.Errorf("ReadAnswer of a file with a wrong bit = %+v, %v", a, err)
	}
	if a, err := ReadAnswer(dir, 8, 0, 0); err != nil || string(a.Error) != `{"code":1,"message":"m"}` {
		t.Errorf("ReadAnswer = %+v, %v", a, err)
	}
	later := Restore(&Record{Session: "s", N: 1, Write: 7}, false)
	later.RestoreAnswer(sizes[7])
	if later.Phase() != Answered || Decide(later.Facts(true, false)) != Deliver {
		t.Errorf("an answer in a file of a dead worker: %v, action %d", later.Phase(), Decide(later.Facts(true, false)))
	}
	if freed, has := later.DropAnswer(); freed != size || !has {
		t.Errorf("DropAnswer = %d, %v", freed, has)
	}
	RemoveAnswers(dir, []int64{7, 8})
	if sizes, err := AnswersIn(dir); err != nil || len(sizes) != 0 {
		t.Errorf("after RemoveAnswers: %v, %v", sizes, err)
	}
}

// TestReview checks which claim a call has after its owner was asked. The end of a session
// does not change a detached call.
func TestReview(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  []Demand
		owner Owner
		want  Claim
	}{
		{"pending at a resume", nil, Resumed{1: {}}, Unclaimed},
		{"not pending at a resume", nil, Resumed{2: {}}, Unwanted},
		{"suspended, not pending", []Demand{Ask, Suspend, Return}, Resumed{}, Suspended},
		{"its session is over", []Demand{Ask}, Gone{}, Unwanted},
		{"suspended, its session is over", []Demand{Ask, Suspend}, Gone{}, Unwanted},
		{"id told, and not pending", []Demand{Ask, Detach}, Resumed{}, Detached},
		{"id told, and cancelled before it was confirmed", []Demand{Ask, Detach, Withdraw}, Resumed{}, Unwanted},
		{"detached, its session is over", []Demand{Ask, Detach, Confirm, Close}, Resumed{}, Detached},
		{"detached, and the store has its answer", []Demand{Ask, Detach, Confirm}, Gone{}, Unwanted},
		{"the store has it, and the id is pending", []Demand{Ask, Detach, Store}, Resumed{1: {}}, Stored},
		{"the store has it, and the id is confirmed", []Demand{Ask, Detach, Store}, Resumed{}, Unwanted},
		{"confirmed, then the store has it", []Demand{Ask, Detach, Confirm, Store}, Resumed{1: {}}, Unwanted},
	} {
		c := NewCall(Key{Session: "s", N: 1}, "t", false)
		for _, d := range tc.from {
			c.Demand(d)
		}
		if settle := c.Review(tc.owner); c.Claim() != tc.want || settle != (tc.want == Unwanted) {
			t.Errorf("%s: %v, settle %v; want %v", tc.name, c.Claim(), settle, tc.want)
		}
	}
}
