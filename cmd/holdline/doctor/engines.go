package doctor

import (
	"fmt"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// engine is what a user needs to know about one consult program.
type engine struct {
	name          string // of the engine, and of its program
	npm           string // its package
	variable, key string // of the environment and of the configuration, which name the program
	login, byKey  string // ways to log it in
}

// engines are all of them; the levels of consults are checked with the first.
var engines = []engine{
	{
		name: "claude", npm: "@anthropic-ai/claude-code", variable: "HOLDLINE_CLAUDE_BIN", key: "consult.claude_bin",
		login: "run claude and /login", byKey: "set consult.env_file or give the daemon ANTHROPIC_API_KEY",
	},
	{
		name: "codex", npm: "@openai/codex", variable: "HOLDLINE_CODEX_BIN", key: "consult.codex_bin",
		login: "run codex login", byKey: "set CODEX_API_KEY in consult.env_file",
	},
}

// checkEngines says how the consult programs are and what enforces the levels, from the
// answer of ask for each engine. seenBy is who has looked.
func (o *Options) checkEngines(ask func(engine string) (control.CheckAnswer, error), seenBy string) []Finding {
	var found []Finding
	for _, e := range engines {
		check, err := ask(e.name)
		switch isFirst := e.name == engines[0].name; {
		case err != nil:
			found = append(found, Finding{Check: e.name}.with(Problem, err.Error(),
				"whether consults with it can run is not known", "holdline logs"))
		case check.Engine == e.name || isFirst: // an older daemon knows the first alone, and does not name it
			found = append(found, e.judge(check, seenBy, o.lookHere(e.name)))
			if isFirst { // the other has a sandbox of its own
				found = append(found, checkLevels(check)...)
			}
		}
	}
	return found
}

// judge judges the check of one program. A program that cannot be used is only noted if
// it is not the default one. here is where this shell finds it.
func (e *engine) judge(c control.CheckAnswer, seenBy, here string) Finding {
	f := Finding{Check: e.name, State: OK, What: fmt.Sprintf("%s, version %s, %s", c.Path, c.Version, c.Account)}
	if c.Fault == nil {
		return f
	}
	state, why := Problem, fmt.Sprintf("consults cannot run (as seen by %s)", seenBy)
	if c.Engine != "" && !c.Default {
		state, why = Note, fmt.Sprintf("consults with engine %s cannot run (as seen by %s)", e.name, seenBy)
	}
	var fix string
	switch c.Fault.Reason() {
	case fault.NotInstalled:
		fix = fmt.Sprintf("npm install -g %s, or name the program: %s, or %s in the configuration", e.npm, e.variable, e.key)
		if here != "" && seenBy != "this shell" {
			fix = "this shell finds it at " + here + ": holdline install --path"
		}
	case fault.NotLoggedIn:
		fix = e.login + "; with an API key, " + e.byKey
	case fault.Version:
		fix = fmt.Sprintf("npm install -g %s@latest", e.npm)
	case "": // consult.env_file is wrong; the fault says how
		fix = "correct it; each consult reads the file again"
	default:
		fix = fmt.Sprintf("run %s --version yourself", e.name)
	}
	return f.with(state, c.Fault.Fault.Detail, why, fix)
}
