package tool

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestWords checks how texts and names are split into words.
func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"get_issue":            "get issue",
		"getIssue":             "get issue getissue",
		"HTTPServer":           "http server httpserver",
		"parseJSON":            "parse json parsejson",
		"GitHub's API-v2":      "git hub github s api v2",
		"files__read_file":     "files read file",
		"Größe übrig, ÄNDERN!": "größe übrig ändern",
		" --- ":                "",
		"":                     "",
		"x":                    "x",
		"ABc":                  "a bc abc",
	} {
		if got := strings.Join(words(text), " "); got != want {
			t.Errorf("words(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestRank checks the order of hits, and one score calculated by hand.
func TestRank(t *testing.T) {
	documents := []document{
		{"b", words("read a file")},
		{"a", words("read a file")},
		{"often", words("read, read; read a file")},
		{"long", words("read a file and then tell what else there is to be told of all that was read before it")},
		{"rare", words("write a file")},
		{"none", words("draws pictures")},
	}
	names := func(query string) string {
		var out []string
		for _, h := range rank(words(query), documents) {
			out = append(out, documents[h.document].name)
		}
		return strings.Join(out, " ")
	}
	for query, want := range map[string]string{
		"read":             "often a b long", // more hits are better, longer texts worse; ties are ordered by name
		"write file":       "rare a b often long",
		"file, file write": "rare a b often long",
		"zebra":            "",
	} {
		if got := names(query); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
	// One document of three has the word, twice among its four words; the mean length is
	// 8/3.
	hits := rank([]string{"x"}, []document{{"1", words("x y x z")}, {"2", words("y z")}, {"3", words("z, z")}})
	rare := math.Log(1 + (3-1+0.5)/(1+0.5))
	want := rare * 2 * 2.2 / (2 + 1.2*(0.25+0.75*4/(8.0/3)))
	if len(hits) != 1 || hits[0].document != 0 || math.Abs(hits[0].score-want) > 1e-9 {
		t.Errorf("hits %v, want one of score %v", hits, want)
	}
	if hits := rank(nil, documents); len(hits) != 0 {
		t.Errorf("no words find %v", hits)
	}
	if hits := rank([]string{"x"}, nil); len(hits) != 0 {
		t.Errorf("of no documents %v were found", hits)
	}
}

func BenchmarkSearch(b *testing.B) {
	var d []control.ServerOffers
	for i := range 1000 {
		d = append(d,
			offer("server", fmt.Sprintf("tool_%d", i), strings.Repeat("some words of a description ", 10),
				`{"path":{},"line":{}}`))
	}
	query := words("words of tool 500")
	for b.Loop() {
		if f := search(query, 8, d); f.Tools[0].Tool != "tool_500" {
			b.Fatal(f.Tools[0])
		}
	}
}

// TestRankIsSteady checks that equal documents are ordered by name, in whichever order they
// are given.
func TestRankIsSteady(t *testing.T) {
	var documents []document
	for i := range 50 {
		documents = append(documents, document{fmt.Sprintf("n%02d", i), words("one two three four five")})
	}
	slices.Reverse(documents)
	last := ""
	for _, h := range rank(words("five three one"), documents) {
		if name := documents[h.document].name; name <= last {
			t.Fatalf("%s comes after %s", name, last)
		} else {
			last = name
		}
	}
}
