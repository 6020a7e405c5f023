package config

import (
	"slices"
	"strings"
	"testing"
)

// TestMistakeInOneEntry_CostsThatServer checks that whoever uses the file leaves out a server whose entry has
// a mistake, of whatever kind, and has all others; that the server stays known; and that a mistake anywhere
// else, or one in the name of a server, is an error.
func TestMistakeInOneEntry_CostsThatServer(t *testing.T) {
	for entry, says := range map[string]string{
		`{"command": "x", "surely_no_key": 1}`:                       `c:1:67: unknown key "mcpServers.bad.surely_no_key"`,
		`{"command": "x", "holdline": {"scop": "shared"}}`:           "did you mean scope?",
		`{"command": "x", "environment": {}}`:                        "write env",
		`{"command": 7}`:                                             "wants a string, not a number",
		`{"command": "x", "holdline": {"scope": "all"}}`:             "wants one of",
		`{"command": "x", "holdline": {"timeout": "1ms"}}`:           "wants 1s",
		`{"command": "x", "url": "https://a.example"}`:               "a command or a url, not both",
		`{"command": "x", "args": ["${"]}`:                           "mcpServers.bad.args[0]",
		`{"command": "x", "command": "y"}`:                           "duplicate key",
		`{}`:                                                         "wants a command or a url",
		`"npx server"`:                                               "wants an object",
		`null`:                                                       "wants an object",
		`{"command": "x", "` + strings.Repeat(`a":1,"b`, 9) + `":1}`: "unknown key",
	} {
		text := `{"mcpServers": {"good": {"command": "x"}, "bad": ` + entry + `, "also": {"url": "https://b.example"}},
			"views": {"v": {"servers": ["bad", "good"]}}}`
		if _, err := Parse("c", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Parse of %s: %v, want %q", entry, err, says)
		}
		c, err := ParseForUse("c", []byte(text))
		if err != nil {
			t.Errorf("%s costs more than its server: %v", entry, err)
			continue
		}
		for _, name := range []string{"good", "also"} {
			if s, ok := c.Server(name); !ok || !s.Enabled || s.Unusable() != nil {
				t.Errorf("%s costs the server %s: %v", entry, name, s.Unusable())
			}
		}
		s, ok := c.Server("bad")
		if err := s.Unusable(); !ok || s.Enabled || err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "holdline servers remove bad") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: enabled %v, %v, want %q", entry, s.Enabled, err, says)
		}
		if names := slices.Collect(func(yield func(string) bool) {
			for name := range c.Unusable() {
				yield(name)
			}
		}); !slices.Equal(names, []string{"bad"}) {
			t.Errorf("%s: left out are %q", entry, names)
		}
	}
	for _, text := range []string{
		`{"mcpServers": {"good": {"command": "x"}}, "surely_no_key": 1}`,
		`{"mcpServers": {"bad": {"no_key": 1}}, "log": {"level": "loud"}}`,
		`{"mcpServers": {"a\u001bb": {"command": "x"}}}`,
		`{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}`,
		`{"mcpServers": {"bad": {"no_key": 1}}, "views": {"v": {"servers": ["gone"]}}}`,
		`{"mcpServers": {"bad": {"no_key": 1}`,
	} {
		if c, err := ParseForUse("c", []byte(text)); err == nil {
			t.Errorf("%s is taken: %v", text, c)
		}
	}
}

// TestManyWrongEntries_EachIsLeftOut checks that the bound on the number of mistakes hides none of them.
func TestManyWrongEntries_EachIsLeftOut(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"mcpServers": {`)
	for i := range 3 * maxErrors {
		text.WriteString(`"bad` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `": {"no_key": 1},`)
	}
	text.WriteString(`"good": {"command": "x"}}}`)
	c, err := ParseForUse("c", []byte(text.String()))
	if err != nil || len(c.Unusable()) != 3*maxErrors {
		t.Errorf("%d are left out, %v", len(c.Unusable()), err)
	}
	if s, _ := c.Server("good"); !s.Enabled {
		t.Error("the good one is left out")
	}
}

// TestEditBesideWrongEntry_Allowed checks that an entry that is wrong already keeps no edit from being made,
// and that no edit makes an entry wrong.
func TestEditBesideWrongEntry_Allowed(t *testing.T) {
	const (
		good   = `{"mcpServers": {"a": {"command": "x"}}}`
		bad    = `{"mcpServers": {"a": {"command": "x"}, "b": {"no_key": 1}}}`
		edited = `{"mcpServers": {"a": {"command": "y"}, "b": {"no_key": 1}}}`
		worse  = `{"mcpServers": {"a": {"comand": "y"}, "b": {"no_key": 1}}}`
	)
	for _, x := range []struct {
		before, after string
		ok            bool
	}{
		{good, good, true},
		{bad, edited, true},
		{bad, good, true},
		{good, bad, false},
		{edited, worse, false},
		{bad, `{"no_key": 1}`, false},
		{"{", good, true},
		{"{", bad, false},
	} {
		if err := CheckEdit("c", []byte(x.before), []byte(x.after)); (err == nil) != x.ok {
			t.Errorf("%s to %s: %v", x.before, x.after, err)
		}
	}
}
