package config

import (
	"strings"
	"testing"
)

// TestViewsRefused checks the mistakes that a file can make with views.
func TestViewsRefused(t *testing.T) {
	view := func(keys string) string {
		return `{"mcpServers": {"tools": {"command": "x"}}, "views": {"v": {` + keys + `}}}`
	}
	for in, want := range map[string]string{
		view(`"servers": ["tolos"]`):                         "views.v.servers[0]: server tolos is not configured; did you",
		view(`"deny": [""]`):                                 "views.v.deny[0]: is no glob",
		view(`"rename": {"look": "l"}`):                      "views.v.rename.look: wants SERVER__TOOL",
		view(`"rename": {"tools__look": "a__b"}`):            "wants 1 to 49",
		view(`"rename": {"tools__look": "a b"}`):             "wants 1 to 49",
		view(`"rename": {"tools__a": "l", "tools__b": "l"}`): "views.v.rename.tools__b: is the name of tools__a already",
		`{"views": {"a b": {}}}`:                             "views.a b: the name wants",
		view(`"hide": []`):                                   `unknown key "views.v.hide"`,
	} {
		if _, err := Parse("c", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
