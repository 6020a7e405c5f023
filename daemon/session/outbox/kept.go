package outbox

import (
	"cmp"
	"slices"
)

// Kept has the answers that wait for a client without a connection. It has no lock of its own.
type Kept struct {
	answers []Answer
	bytes   int // size of them all
}

// Add keeps an answer, and returns the size in bytes of all that it keeps. It keeps no answer that
// is never asked for again, and no stored one: the executor has that.
func (k *Kept) Add(a Answer) (bytes int) {
	if a.N != 0 && !a.Stored {
		k.answers = append(k.answers, a)
		k.bytes += len(a.Line)
	}
	return k.bytes
}

// Take removes all answers, and returns those to the pending lines, in the order of the lines.
func (k *Kept) Take(pending map[int64]struct{}) []Answer {
	again := slices.DeleteFunc(k.answers, func(a Answer) bool {
		_, ok := pending[a.N]
		return !ok
	})
	*k = Kept{}
	slices.SortFunc(again, func(a, b Answer) int { return cmp.Compare(a.N, b.N) })
	return again
}
