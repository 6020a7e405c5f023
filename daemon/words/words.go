// Package words compares names, for errors that say what may have been meant.
package words

// Distance is how many bytes must be put into a, taken out or changed to make
// it b (Levenshtein). It takes time in the product of their lengths: the caller
// bounds them.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
