package doctor

import (
	"context"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// codex asks the daemon for the consult program that is not the usual one. One
// that is not installed is nothing to worry about, unless it is to answer.
func codex(ctx context.Context, c *control.Client) []Finding {
	var check control.CheckAnswer
	err := c.Call(ctx, control.ConsultCheck, control.CheckParams{Engine: "codex"}, &check, nil)
	if err != nil || check.Engine != "codex" { // a daemon of before
		return nil
	}
	f := Finding{Check: "codex", State: OK, What: check.Path + ", version " + check.Version + ", " + check.Account}
	if check.Fault == nil {
		return []Finding{f}
	}
	f.State, f.What = Problem, check.Fault.Fault.Detail
	if !check.Default {
		f.State = Note
	}
	f.Why = "consults with engine codex cannot run (as seen by the daemon)"
	switch check.Fault.Reason() {
	case fault.NotInstalled:
		f.What, f.Mend = "codex is not installed", "npm install -g @openai/codex, or name the program: HOLDLINE_CODEX_BIN, or consult.codex_bin in the configuration"
	case fault.NotLoggedIn:
		f.Mend = "run codex login; with an API key, set CODEX_API_KEY in consult.env_file"
	case fault.Version:
		f.Mend = "npm install -g @openai/codex@latest"
	default:
		f.Mend = "run codex --version yourself"
	}
	return []Finding{f}
}
