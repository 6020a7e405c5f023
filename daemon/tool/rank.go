package tool

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// Parameters of BM25. K1 says how soon further occurrences of a word stop to raise the
// score, B how much long texts are valued less than short ones.
const (
	bm25K1 = 1.2
	bm25B  = 0.75
)

// document is a text that can be found. No two have the same name.
type document struct {
	name  string
	words []string
}

// hit is the index of a document that was found, and its score.
type hit struct {
	document int
	score    float64
}

// rank returns the documents that have a word of a query, the best first by BM25. Documents
// with equal scores are in the order of their names. A word that occurs twice in the query
// counts once.
func rank(query []string, documents []document) []hit {
	query = slices.Compact(slices.Sorted(slices.Values(query)))
	lengths := 0
	counts := make([]map[string]float64, len(documents)) // of the query's words
	having := map[string]float64{}
	for i, d := range documents {
		lengths += len(d.words)
		counts[i] = map[string]float64{}
		for _, word := range d.words {
			if _, asked := slices.BinarySearch(query, word); asked {
				counts[i][word]++
			}
		}
		for word := range counts[i] {
			having[word]++
		}
	}
	mean := float64(lengths) / float64(max(len(documents), 1))
	var hits []hit
	for i, d := range documents {
		if len(counts[i]) == 0 {
			continue
		}
		score, damp := 0.0, bm25K1*(1-bm25B+bm25B*float64(len(d.words))/mean)
		for _, word := range query { // in this order, so that equal scores are equal
			n := counts[i][word]
			rare := math.Log(1 + (float64(len(documents))-having[word]+0.5)/(having[word]+0.5))
			score += rare * n * (bm25K1 + 1) / (n + damp)
		}
		hits = append(hits, hit{i, score})
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score),
			strings.Compare(documents[a.document].name, documents[b.document].name))
	})
	return hits
}

// words splits a text into lower-case words, at all characters that are neither letters
// nor digits. It also splits words that are writtenLikeThis or likeHTTPServer, and returns
// these as a whole, too: "GitHub" is found by "github".
func words(text string) []string {
	var out []string
	isGap := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	for _, whole := range strings.FieldsFunc(text, isGap) {
		parts := humps(whole)
		for _, part := range parts {
			out = append(out, strings.ToLower(part))
		}
		if len(parts) > 1 {
			out = append(out, strings.ToLower(whole))
		}
	}
	return out
}

// humps returns the parts of a word that begin with capitals.
func humps(word string) []string {
	runes := []rune(word)
	var parts []string
	begin := 0
	for i := 1; i < len(runes); i++ {
		if !unicode.IsUpper(runes[i]) {
			continue
		}
		last := i+1 < len(runes) && unicode.IsLower(runes[i+1]) // of several capitals, the next word's
		if !unicode.IsUpper(runes[i-1]) || last {
			parts = append(parts, string(runes[begin:i]))
			begin = i
		}
	}
	return append(parts, string(runes[begin:]))
}
