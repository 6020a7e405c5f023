// Package engines lists the consult engines. Everything that differs from one to the
// other outside their own packages is in a row: of [BuiltIn], or of an agent that the
// configuration names. [List] has both.
//
// To add an engine, write a package beside engine/claude with the interface
// [engine.Engine], add its row here, and its name to builtIn of config/agent.go.
package engines

import (
	"maps"
	"slices"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/codex"
	"holdline/daemon/config"
)

// Engine is what the daemon, the engine process and doctor know about a consult engine.
type Engine struct {
	Name     string // of the engine, and of its program if it is built in
	Title    string // of the program, for people
	Variable string // of the environment, which names the program; "" for none
	Key      string // of the configuration, which names the program, too; "" for none
	Package  string // of npm, which has the program; "" if that is not known
	Login    string // what the user does to log in
	ByKey    string // what the user does to use an API key instead
	IsAgent  bool   // it speaks the Agent Client Protocol, and is in the configuration

	// Bin returns the field behind Key. It is nil if there is no Key; then New finds
	// the program by its name or by Variable.
	Bin func(c *config.Consult) *string
	// New returns the engine for an environment. extra are the variables that the
	// configuration adds to it.
	New func(c *config.Consult, environ, extra []string) engine.Engine
}

// BuiltIn are the engines that need no configuration. The levels of consults are checked with the first.
var BuiltIn = []Engine{
	{
		Name: "claude", Title: "Claude Code", Variable: "HOLDLINE_CLAUDE_BIN", Key: "consult.claude_bin",
		Package: "@anthropic-ai/claude-code",
		Login:   "run claude and /login", ByKey: "run holdline env set ANTHROPIC_API_KEY",
		Bin: func(c *config.Consult) *string { return &c.ClaudeBin },
		New: func(c *config.Consult, environ, extra []string) engine.Engine {
			return claude.New(claude.Options{Bin: c.ClaudeBin, Env: environ, Extra: own(c, "claude", extra)})
		},
	},
	{
		Name: "codex", Title: "Codex", Variable: "HOLDLINE_CODEX_BIN", Key: "consult.codex_bin",
		Package: "@openai/codex",
		Login:   "run codex login", ByKey: "run holdline env set CODEX_API_KEY",
		Bin: func(c *config.Consult) *string { return &c.CodexBin },
		New: func(c *config.Consult, environ, extra []string) engine.Engine {
			return codex.New(codex.Options{
				Bin: c.CodexBin, Env: environ, Extra: own(c, "codex", extra), Emptied: engine.Names(extra),
				Config: c.CodexConfig,
			})
		},
	},
}

// List returns the engines that c has, in order: those that are built in, and its agents.
func List(c *config.Consult) []*Engine {
	var all []*Engine
	for i := range BuiltIn {
		all = append(all, &BuiltIn[i])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		all = append(all, agent(name))
	}
	return all
}

// Find returns the engine of c with that name, or nil.
func Find(c *config.Consult, name string) *Engine {
	for _, e := range List(c) {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// agent returns the engine of an agent.
func agent(name string) *Engine {
	key := "consult.agents." + name
	return &Engine{
		Name: config.AgentPrefix + name, Title: name, Key: key + ".command",
		Login: "log in with " + name + " itself, and name the files of its login in " + key + ".login",
		ByKey: "set " + key + ".env", IsAgent: true,
		New: func(c *config.Consult, environ, extra []string) engine.Engine {
			a := c.Agents[name]
			return acp.New(acp.Options{
				Agent: engine.Agent{
					Name: name, Args: a.Args, Login: a.Login, Writable: a.Writable, Mode: a.Mode, Auth: a.Auth,
					FS: a.FS,
				},
				Command: a.Command, Env: environ, Extra: extra, NoWeb: !c.Web,
			})
		},
	}
}

// Names returns the names of the engines of c, in order.
func Names(c *config.Consult) []string {
	var names []string
	for _, e := range List(c) {
		names = append(names, e.Name)
	}
	return names
}

// Pattern returns the regular expression of the names of engines. Tools show it to clients, so it
// does not depend on the configuration.
func Pattern() string {
	var names strings.Builder
	for _, e := range BuiltIn {
		names.WriteString(e.Name + "|")
	}
	return "(" + names.String() + config.AgentPrefix + "[A-Za-z0-9_-]{1,32})"
}

// Join returns what text returns for each engine that is built in, in order, with " or " between.
func Join(text func(*Engine) string) string {
	texts := make([]string, len(BuiltIn))
	for i := range BuiltIn {
		texts[i] = text(&BuiltIn[i])
	}
	return strings.Join(texts, " or ")
}

// Titles returns the titles of the engines that are built in, such as "Claude Code or Codex".
func Titles() string { return Join(func(e *Engine) string { return e.Title }) }

// UseVariables makes c name the programs that the environment names. getenv returns
// the value of a variable, or "".
func UseVariables(c *config.Consult, getenv func(string) string) {
	for _, e := range BuiltIn {
		if e.Variable == "" || e.Bin == nil {
			continue
		}
		if bin := getenv(e.Variable); bin != "" {
			*e.Bin(c) = bin
		}
	}
}

// Program returns what c says of where the engine's program is; "" leaves that to New.
func (e *Engine) Program(c *config.Consult) string {
	if e.Bin == nil {
		a, _ := c.Agent(e.Name)
		return a.Command
	}
	return *e.Bin(c)
}
