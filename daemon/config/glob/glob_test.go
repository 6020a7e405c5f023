package glob

import (
	"path"
	"strings"
	"testing"
)

// TestMatch checks which names a pattern matches.
func TestMatch(t *testing.T) {
	for _, x := range []struct {
		glob, name string
		want       bool
	}{
		{"*", "anything", true},
		{"*", "", true},
		{"*", "a/b/c", true}, // a slash is an ordinary character
		{"a?c", "a/c", true},
		{"", "", true},
		{"", "x", false},
		{"get_*", "get_issue", true},
		{"get_*", "forget_issue", false},
		{"*_issue", "get_issue", true},
		{"*_issue", "get_issues", false},
		{"a*b*c", "a-bb-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"?", "ä", true},
		{"?", "", false},
		{"[a-c]x", "bx", true},
		{"[^a-c]x", "bx", false},
		{"[^a-c]x", "dx", true},
		{`\*`, "*", true},
		{`\*`, "x", false},
		{`[\]]`, "]", true},
		{"Get", "get", false},
		{"[", "[", false}, // an invalid pattern matches nothing
		{`a\`, "a", false},
		{"*[", "x[", false},
	} {
		if got := Match(x.glob, x.name); got != x.want {
			t.Errorf("Match(%q, %q) = %v", x.glob, x.name, got)
		}
	}
}

// TestMatchIsQuick checks that no pattern makes matching slow.
func TestMatchIsQuick(t *testing.T) {
	if Match(strings.Repeat("*a", 60)+"b", strings.Repeat("a", 20_000)) {
		t.Error("it matches")
	}
}

// FuzzMatch compares the matcher with path.Match, where the two must agree. They differ for
// slashes, and for names beyond ASCII, where path.Match takes part of a letter for a
// letter.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{{"a*", "abc"}, {"[a-", "a"}, {`\`, ""}, {"[^]", "x"}, {"*?*", "ab"}, {"[]a]", "]"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		want, err := path.Match(glob, name)
		if err != nil || strings.Contains(glob+name, "/") ||
			strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }) {
			_ = Match(glob, name)
			return
		}
		if got := Match(glob, name); got != want {
			t.Errorf("Match(%q, %q) = %v, path.Match %v", glob, name, got, want)
		}
	})
}
