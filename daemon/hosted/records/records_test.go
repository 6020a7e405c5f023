package records_test

import (
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/question"
	"holdline/daemon/hosted/records"
)

// TestMade checks that records of answers to a server stay until no daemon can read their
// requests again, and that the others go at once.
func TestMade(t *testing.T) {
	var r records.Records
	r.Made(calls.KindCancel, 1)
	r.Made(calls.KindNote, 2)
	r.Made(calls.KindSetLevel, 3) // it stands
	r.Made(calls.KindList, 4)     // of an earlier daemon
	if forget, files := r.Take(); len(forget) != 3 || len(files) != 0 {
		t.Errorf("the records %v and the files %v go", forget, files)
	}
	for n := range int64(2 * question.Max) {
		r.Made(calls.KindRespond, 10+n)
	}
	if forget, _ := r.Take(); len(forget) != 0 {
		t.Errorf("%d records of answers go", len(forget))
	}
	r.Made(calls.KindRespond, 9999)
	if forget, _ := r.Take(); len(forget) != question.Max+1 || forget[0] != 10 {
		t.Errorf("%d records of answers go, want the %d oldest", len(forget), question.Max+1)
	}
}
