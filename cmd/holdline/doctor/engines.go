package doctor

import (
	"fmt"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// engine is what a user is told about one consult program.
type engine struct {
	name          string // of the engine, and of its program
	npm           string // its package
	variable, key string // by which the program is named
	login, byKey  string // ways to log it in
}

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

// consults says how the consult programs are and what the levels are held by,
// as ask tells it of each engine.
func (o *Options) consults(ask func(engine string) (control.CheckAnswer, error), seenBy string) []Finding {
	var found []Finding
	for _, e := range engines {
		check, err := ask(e.name)
		switch {
		case err != nil:
			found = append(found, Finding{
				Check: e.name, State: Problem, What: err.Error(), Why: "whether consults with it can run is not known", Mend: "holdline logs",
			})
		case check.Engine == e.name || e.name == engines[0].name: // a daemon of before knows the first alone, and does not name it
			found = append(found, e.finding(check, seenBy, o.here(e.name)))
		}
		if e.name == engines[0].name && err == nil { // the other has a sandbox of its own
			found = append(found, levels(check)...)
		}
	}
	return found
}

// finding judges one program. That one cannot be used is nothing to worry about
// if the other is to answer. here is where this shell finds its program.
func (e *engine) finding(c control.CheckAnswer, seenBy, here string) Finding {
	f := Finding{Check: e.name, State: OK, What: fmt.Sprintf("%s, version %s, %s", c.Path, c.Version, c.Account)}
	if c.Fault == nil {
		return f
	}
	f.State, f.What = Problem, c.Fault.Fault.Detail
	f.Why = fmt.Sprintf("consults cannot run (as seen by %s)", seenBy)
	if c.Engine != "" && !c.Default {
		f.State, f.Why = Note, fmt.Sprintf("consults with engine %s cannot run (as seen by %s)", e.name, seenBy)
	}
	switch c.Fault.Reason() {
	case fault.NotInstalled:
		if here != "" && seenBy != "this shell" {
			f.Mend = "this shell finds it at " + here + ": holdline install --path"
			break
		}
		f.Mend = fmt.Sprintf("npm install -g %s, or name the program: %s, or %s in the configuration", e.npm, e.variable, e.key)
	case fault.NotLoggedIn:
		f.Mend = e.login + "; with an API key, " + e.byKey
	case fault.Version:
		f.Mend = fmt.Sprintf("npm install -g %s@latest", e.npm)
	case "": // consult.env_file, not the program's doing; what is wrong with it is said
		f.Mend = "mend it; each consult looks at the file again"
	default:
		f.Mend = fmt.Sprintf("run %s --version yourself", e.name)
	}
	return f
}
