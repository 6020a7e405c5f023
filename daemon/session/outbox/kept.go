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

// Add keeps an answer, without its Room, which stays with who has made the answer. It does not keep
// an answer that is never asked for again, nor a stored one: the executor has that. The caller must
// hold the lock of the owner of k.
func (k *Kept) Add(a Answer) {
	if a.N != 0 && !a.Stored {
		a.Room = nil
		k.answers = append(k.answers, a)
		k.bytes += len(a.Line)
	}
}

// Bytes returns the size of all answers that k keeps. The caller must hold the lock of the owner of k.
func (k *Kept) Bytes() int { return k.bytes }

// Take removes all answers from k. It returns those to the lines in pending, in the order of the
// lines; the others are lost. The caller must hold the lock of the owner of k.
func (k *Kept) Take(pending map[int64]struct{}) []Answer {
	again := slices.DeleteFunc(k.answers, func(a Answer) bool {
		_, ok := pending[a.N]
		return !ok
	})
	*k = Kept{}
	slices.SortFunc(again, func(a, b Answer) int { return cmp.Compare(a.N, b.N) })
	return again
}
