package listen

import "testing"

// TestFollows checks that a subscription that fails is forgotten, but not one that a later line
// asks for, and that one that the client has ended is not wanted.
func TestFollows(t *testing.T) {
	f := Follows{}
	if !f.Add("a", 1, 1) || f.Add("b", 2, 1) || !f.Add("a", 3, 1) {
		t.Fatalf("%v, want a of line 3 alone", f)
	}
	if !f.Settle("a", 1, true) || f["a"] != 3 {
		t.Errorf("the failure of line 1 has ended that of line 3: %v", f)
	}
	if !f.Settle("a", 3, true) || len(f) != 0 {
		t.Errorf("a failed subscription stays: %v", f)
	}
	if f.Settle("a", 3, false) {
		t.Error("a subscription that the client has ended is wanted")
	}
}
