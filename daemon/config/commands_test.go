package config

import (
	"strings"
	"testing"
)

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
