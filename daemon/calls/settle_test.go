package calls

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestDoneRecordsAreRead checks that a record's list of done records holds even if a later
// record says that it is done itself.
func TestDoneRecordsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	for id := int64(1); id <= 9; id++ {
		if err := j.Append(note(id, id, 1)); err != nil {
			t.Fatal(err)
		}
		if id != 4 {
			j.Forget(id) // the next record says that it is done
		}
	}
	if _, records := journal(t, path); !slices.Equal(ids(records), []int64{4, 9}) {
		t.Errorf("records %v, want 4, which is needed, and 9, of which nothing is said yet", ids(records))
	}
	j.from, j.due = 1, 1 // make the next append rewrite the file
	j.Forget(9)
	if err := j.Append(note(10, 10, 1)); err != nil {
		t.Fatal(err)
	}
	if _, records := journal(t, path); !slices.Equal(ids(records), []int64{4, 10}) {
		t.Errorf("records %v after a rewriting, want 4 and 10", ids(records))
	}
}

// TestSettle checks that nothing that was forgotten before Settle is read again: more ids
// than one record can list, with records behind it, and after rewrites.
func TestSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	const most = 3*maxDone + 1
	for id := int64(1); id <= most; id++ {
		if err := j.Append(note(id, id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for id := int64(1); id <= most; id++ {
		if id != 7 {
			j.Forget(id)
		}
	}
	if err := j.Settle(); err != nil {
		t.Fatal(err)
	}
	size := j.size
	if err := j.Settle(); err != nil || j.size != size {
		t.Errorf("Settle again = %v, and the file has %d bytes, want %d: nothing was new", err, j.size, size)
	}
	if _, records := journal(t, path); !slices.Equal(ids(records), []int64{7}) {
		t.Errorf("%d records, want 7 alone", len(records))
	}
	// The highest write was not made, so its number is used again.
	if err := j.Append(note(most, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, records := journal(t, path); !slices.Equal(ids(records), []int64{7, most}) {
		t.Errorf("records %v, want 7 and %d", ids(records), most)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j.Forget(7)
	if err := j.Settle(); err == nil {
		t.Error("Settle after Close succeeds")
	}
}

// TestForgottenNumberGivenAgain checks that forgetting a write that was not made does not
// remove the later record with the same number.
func TestForgottenNumberGivenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	for id := int64(1); id <= maxDone+2; id++ {
		if err := j.Append(note(id, id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for id := int64(1); id <= maxDone+2; id++ {
		j.Forget(id) // more than one record can list
	}
	if err := j.Append(note(maxDone+2, 70, 1)); err != nil {
		t.Fatal(err)
	}
	if err := j.Settle(); err != nil {
		t.Fatal(err)
	}
	_, records := journal(t, path)
	if !slices.Equal(ids(records), []int64{maxDone + 2}) || records[0].N != 70 {
		t.Errorf("records %v, want the later %d alone", ids(records), maxDone+2)
	}
}
