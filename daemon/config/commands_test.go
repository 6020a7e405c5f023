package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestCommandValues checks that the values of commands come into env and headers, are secrets, and
// that their errors name the key. Without Run no command is run.
func TestCommandValues(t *testing.T) {
	c, err := Parse("c", []byte(`{
		"commands": {"work": {"command": ["op", "read", "x"]}},
		"mcpServers": {
			"a": {"command": "x", "env": {"TOKEN": {"command": ["pass", "show"]}, "AUTH": "Bearer ${cmd:work}", "N": "1"}},
			"b": {"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${cmd:work}"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.Server("a")
	b, _ := c.Server("b")
	run := func(argv []string) (string, error) { return "out-" + strings.Join(argv, "-"), nil }
	p, err := a.Process(Around{Home: "/", Root: "/", Run: run})
	for _, kv := range []string{"TOKEN=out-pass-show", "AUTH=Bearer out-op-read-x", "N=1"} {
		if !slices.Contains(p.Env, kv) {
			t.Errorf("the environment is %q, %v, want %s", p.Env, err, kv)
		}
	}
	if !slices.Contains(p.Secrets, "out-pass-show") || !slices.Contains(p.Secrets, "out-op-read-x") {
		t.Errorf("the secrets are %q", p.Secrets)
	}
	at, err := b.Address(Around{Run: run})
	if at.Headers["Authorization"] != "Bearer out-op-read-x" || !slices.Contains(at.Secrets, "out-op-read-x") {
		t.Errorf("the address is %+v, %v", at, err)
	}
	locked := errors.New("locked")
	fails := func([]string) (string, error) { return "", locked }
	if _, err = a.Process(Around{Home: "/", Run: fails}); !errors.Is(err, locked) ||
		!strings.HasPrefix(err.Error(), "mcpServers.a.env.AUTH: ") {
		t.Errorf("a command that fails: %v", err)
	}
	if _, err = a.Process(Around{Home: "/"}); err != nil || a.Unset(Around{Home: "/"}) != nil {
		t.Errorf("without running commands: %v, unset %q", err, a.Unset(Around{Home: "/"}))
	}
	uses := a.CommandUses()
	if len(uses) != 2 || uses[0].Key != "env.AUTH" || uses[1].Key != "env.TOKEN" || uses[1].Shown() != "pass show" {
		t.Errorf("the uses are %+v", uses)
	}
}

// TestCommandsRefused checks the mistakes that a file can make with commands.
func TestCommandsRefused(t *testing.T) {
	server := func(keys string) string { return `{"mcpServers": {"a": {"command": "x", ` + keys + `}}}` }
	for in, want := range map[string]string{
		server(`"env": {"T": {}}`):                          "env.T: wants {\"command\"",
		server(`"env": {"T": {"command": []}}`):             "env.T: wants {\"command\"",
		server(`"env": {"T": {"command": "op"}}`):           "env.T.command: wants an array",
		server(`"env": {"T": {"shell": "op"}}`):             `unknown key "mcpServers.a.env.T.shell"`,
		server(`"env": {"T": {"command": ["./op"]}}`):       "env.T.command[0]: wants a path",
		server(`"env": {"T": 1}`):                           `env.T: wants a string, or {"command": [...]}`,
		server(`"env": {"T": "${cmd:none}"}`):               "env.T: the key commands has no command none",
		server(`"env": {"T": "${cmd:none:-x}"}`):            "env.T: wants ${NAME}",
		server(`"args": ["${cmd:none}"]`):                   "args[0]: ${cmd:NAME} can only stand in env and headers",
		`{"commands": {"a b": {"command": ["x"]}}}`:         "commands.a b: the name wants",
		`{"commands": {"a": {}}}`:                           "commands.a: wants",
		`{"consult": {"env": {"T": {"command": ["x"]}}}}`:   "consult.env.T: wants a string",
		`{"mcpServers": {"a": {"url": "http://${cmd:x}"}}}`: "url: ${cmd:NAME} can only stand",
	} {
		if _, err := Parse("c", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
