package resolve

import (
	"slices"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/redact"
)

// TestProcessSecrets checks which values are hidden in what a process prints: those hidden
// in its arguments, those of variables with such names, and of a secret of several lines
// each line.
func TestProcessSecrets(t *testing.T) {
	s := config.Settings{
		Name: "s", Transport: config.Stdio, Command: "x",
		Args: []string{"--token", "in-full-1", "--root", "${HOME}", "--", "${MY_TOKEN}"},
		Env:  map[string]redact.Secret{"KEY": "first line\nsecond line\n-\n"},
	}
	p, err := Around{
		Environ: []string{"HOME=/home/somebody", "MY_TOKEN=from-variable"}, Home: "/", Root: "/",
	}.Process(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in-full-1", "from-variable", "first line", "second line"} {
		if !slices.Contains(p.Secrets, want) {
			t.Errorf("%q is no secret: %q", want, p.Secrets)
		}
	}
	if slices.Contains(p.Secrets, "/home/somebody") || slices.Contains(p.Secrets, "-") {
		t.Errorf("too much is secret: %q", p.Secrets)
	}
	s = config.Settings{Name: "s", Transport: config.HTTP, URL: "https://host/mcp?key=in-full-1&other=${MY_TOKEN}"}
	a, err := Around{Environ: []string{"MY_TOKEN=from-variable"}}.Address(s)
	if err != nil || !slices.Contains(a.Secrets, "in-full-1") || !slices.Contains(a.Secrets, "from-variable") {
		t.Errorf("of an address: %q, %v", a.Secrets, err)
	}
}
