// Package spelling finds the word that a user has probably meant.
package spelling

import (
	"cmp"
	"strings"
)

// Nearest returns the candidate for which s is probably a slip, or "". The shortest one that
// begins with s counts as nearest, if s has three bytes or more. Else one byte may be wrong, or
// more of a longer text whose first byte is right; of equally near ones it returns the first.
// It does not look at case, or at texts of more than 64 bytes.
func Nearest(s string, candidates []string) string {
	if len(s) > 64 {
		return ""
	}
	s = strings.ToLower(s)
	longer, best, least := "", "", 1+len(s)/4
	for _, c := range candidates {
		lower := strings.ToLower(c)
		if len(s) >= 3 && strings.HasPrefix(lower, s) && (longer == "" || len(c) < len(longer)) {
			longer = c
		}
		n := Distance(s, lower)
		if n <= least && (n <= 1 || lower[:1] == s[:1]) { // logs is no slip of bogus
			best, least = c, n-1
		}
	}
	return cmp.Or(longer, best)
}

// Distance returns how many bytes must be inserted into a, removed, changed or exchanged with
// their neighbours to make it b. It takes time in the product of their lengths, so the caller
// must bound them.
func Distance(a, b string) int {
	var before []int // the row before the last one
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
