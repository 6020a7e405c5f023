package spelling

import (
	"slices"
	"testing"
)

// TestNamesWithNumbers_InTheOrderOfTheNumbers checks the order of names, also of ones that differ in nothing but
// zeros, begin or end with numbers, or have numbers longer than an int.
func TestNamesWithNumbers_InTheOrderOfTheNumbers(t *testing.T) {
	want := []string{
		"", "02", "2", "10", "99999999999999999998", "99999999999999999999", "a", "a1b2", "a1b10", "a2", "b",
		"srv", "srv01", "srv1", "srv2", "srv2-x", "srv10", "srv10-x", "é",
	}
	for i, a := range want {
		for j, b := range want {
			got := Compare(a, b)
			if got > 0 != (i > j) || got < 0 != (i < j) {
				t.Errorf("Compare(%q, %q) = %d", a, b, got)
			}
		}
	}
	shuffled := slices.Clone(want)
	slices.Reverse(shuffled)
	if got := Sorted(slices.Values(shuffled)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
