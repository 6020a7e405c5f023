// Package engines lists the consult engines. Everything that differs from one to the
// other outside their own packages is in a row of [All].
//
// To add an engine, write a package beside engine/claude with the interface
// [engine.Engine], add its row here, and its name to the values of the key
// consult.engine in config/keys.go.
package engines

import (
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/config"
)

// Engine is what the daemon, the engine process and doctor know about a consult engine.
type Engine struct {
	Name     string // of the engine, and of its program
	Title    string // of the program, for people
	Variable string // of the environment, which names the program
	Key      string // of the configuration, which names the program, too; "" for none
	Package  string // of npm, which has the program
	Login    string // what the user does to log in
	ByKey    string // what the user does to use an API key instead

	// Bin returns the field behind Key. It is nil if there is no Key; then New finds
	// the program by its name or by Variable.
	Bin func(c *config.Consult) *string
	// New returns the engine for an environment. extra are the variables that the
	// configuration adds to it.
	New func(c *config.Consult, environ, extra []string) engine.Engine
}

// All are the engines. The levels of consults are checked with the first.
var All = []Engine{
	{
		Name: "claude", Title: "Claude Code", Variable: "HOLDLINE_CLAUDE_BIN", Key: "consult.claude_bin",
		Package: "@anthropic-ai/claude-code",
		Login:   "run claude and /login", ByKey: "set consult.env_file or give the daemon ANTHROPIC_API_KEY",
		Bin: func(c *config.Consult) *string { return &c.ClaudeBin },
		New: func(c *config.Consult, environ, extra []string) engine.Engine {
			return claude.New(claude.Options{Bin: c.ClaudeBin, Env: environ, Extra: extra})
		},
	},
	{
		Name: "codex", Title: "Codex", Variable: "HOLDLINE_CODEX_BIN", Key: "consult.codex_bin",
		Package: "@openai/codex",
		Login:   "run codex login", ByKey: "set CODEX_API_KEY in consult.env_file",
		Bin: func(c *config.Consult) *string { return &c.CodexBin },
		New: func(c *config.Consult, environ, extra []string) engine.Engine {
			return codex.New(codex.Options{Bin: c.CodexBin, Env: environ, Extra: extra, Config: c.CodexConfig})
		},
	},
}

// Find returns the engine with that name, or nil.
func Find(name string) *Engine {
	for i := range All {
		if All[i].Name == name {
			return &All[i]
		}
	}
	return nil
}

// Names returns the names of all engines, in order.
func Names() []string {
	names := make([]string, len(All))
	for i := range All {
		names[i] = All[i].Name
	}
	return names
}

// Join returns what text returns for each engine, in order, with " or " between.
func Join(text func(*Engine) string) string {
	texts := make([]string, len(All))
	for i := range All {
		texts[i] = text(&All[i])
	}
	return strings.Join(texts, " or ")
}

// Titles returns the titles of all engines, such as "Claude Code or Codex".
func Titles() string { return Join(func(e *Engine) string { return e.Title }) }

// UseVariables makes c name the programs that the environment names. getenv returns
// the value of a variable, or "".
func UseVariables(c *config.Consult, getenv func(string) string) {
	for _, e := range All {
		if bin := getenv(e.Variable); bin != "" && e.Bin != nil {
			*e.Bin(c) = bin
		}
	}
}

// Program returns what c says of where the engine's program is; "" leaves that to New.
func (e *Engine) Program(c *config.Consult) string {
	if e.Bin == nil {
		return ""
	}
	return *e.Bin(c)
}
