package calls

import (
	"path/filepath"
	"testing"
)

// TestDeadlineMoved checks that a call keeps its latest deadline over a compaction and in
// the next daemon, and that no call gets the deadline of another.
func TestDeadlineMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	j.from = 1 << 10
	j.due = j.from
	put := func(write, deadline int64) {
		t.Helper()
		if err := j.Append(Record{Kind: KindCall, Write: write, DeadlineBootMS: deadline}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, want string) {
		t.Helper()
		wantRecords(t, path, when+": write and deadline", func(r *Record) int64 { return r.DeadlineBootMS }, want)
	}
	put(1, 100)
	put(2, 200)
	for deadline := range int64(100) { // enough to make the file compact
		if err := j.MoveDeadline(2, 300+deadline); err != nil {
			t.Fatal(err)
		}
	}
	want("moved", "1:100 2:399 ")
	before := j.size
	put(3, 500)
	if j.size >= before {
		t.Errorf("the file has %d bytes behind a compaction, and %d before", j.size, before)
	}
	want("compacted", "1:100 2:399 3:500 ")
	if err := j.MoveDeadline(3, 600); err != nil {
		t.Fatal(err)
	}
	put(3, 700) // the earlier write 3 was not taken
	want("its write id given out again", "1:100 2:399 3:700 ")
	j.Forget(2)
	put(4, 800)
	j.Forget(1)
	if err := j.Settle(); err != nil {
		t.Fatal(err)
	}
	want("forgotten", "3:700 4:800 ")
}
