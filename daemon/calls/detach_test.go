package calls

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestDetach checks that a call is found detached, for the line that it was detached for,
// behind compactions, and that the next record of its write id is not.
func TestDetach(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	put := func(write int64, detached bool) {
		t.Helper()
		err := j.Append(Record{Write: write, N: write, Session: "s", Kind: KindCall, Name: "t", Detached: detached})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, want string) {
		t.Helper()
		_, records := journal(t, path)
		var got strings.Builder
		for _, r := range records {
			fmt.Fprintf(&got, "%d:%d:%v ", r.Write, r.N, r.Detached)
			if claim := Restore(&r, false).Claim(); (claim == Promised) != r.Detached {
				t.Errorf("%s: the claim of write %d is %v", when, r.Write, claim)
			}
		}
		if got.String() != want {
			t.Errorf("%s: write, line, detached are %q, want %q", when, got.String(), want)
		}
	}
	put(1, false)
	put(2, false)
	if err := j.Detach(2, "s", 7); err != nil { // line 7 has continued it
		t.Fatal(err)
	}
	put(3, true)
	want("detached", "1:1:false 2:7:true 3:3:true ")
	j.Forget(1)
	j.from, j.due = 1, 1 // make the next append rewrite the file
	put(4, false)
	want("compacted", "2:7:true 3:3:true 4:4:false ")
	if err := j.Detach(4, "s", 4); err != nil {
		t.Fatal(err)
	}
	put(4, false) // the earlier write 4 was not taken
	put(5, false)
	want("its write id given out again", "2:7:true 3:3:true 4:4:false 5:5:false ")
}
