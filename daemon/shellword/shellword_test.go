package shellword

import (
	"os/exec"
	"testing"
)

// TestQuote checks that a shell takes each quoted text as that one word.
func TestQuote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/home/a/.config/holdline-1_2/x.json": "/home/a/.config/holdline-1_2/x.json",
		"/home/a b/c":                         "'/home/a b/c'",
		"it's":                                `'it'\''s'`,
		"":                                    "''",
		"~/x":                                 "'~/x'",
		"$HOME;`id`":                          "'$HOME;`id`'",
		"ä":                                   "'ä'",
	} {
		got := Quote(text)
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf %s "+got).Output()
		if err != nil || string(out) != text {
			t.Errorf("%s is %q for a shell, want %q (%v)", got, out, text, err)
		}
	}
}
