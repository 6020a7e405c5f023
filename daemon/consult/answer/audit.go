package answer

import (
	"crypto/sha256"
	"encoding/hex"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
)

// Audit is the audit line of a consult that has ended. It says what ran and what that
// did. It holds neither prompt nor answer: of the prompt it has the hash and the size.
type Audit struct {
	Event         string          `json:"event"` // "consult"
	ID            string          `json:"consult_id"`
	CreatedUnixMS int64           `json:"created_unix_ms"`
	EndedUnixMS   int64           `json:"ended_unix_ms"`
	Identity      string          `json:"identity"`
	Client        string          `json:"client,omitempty"`
	Caller        string          `json:"caller"` // hash of the session that asked
	Project       string          `json:"project,omitempty"`
	Cwd           string          `json:"cwd"`
	PromptSHA256  string          `json:"prompt_sha256"` // of the prompt with its context
	PromptBytes   int             `json:"prompt_bytes"`
	Engine        string          `json:"engine"`
	EngineVersion string          `json:"engine_version,omitempty"`
	Argv          []string        `json:"argv"`
	Level         string          `json:"level"`
	EnforcedBy    string          `json:"enforced_by"`
	Session       string          `json:"session_id,omitempty"` // the program's own
	Models        []string        `json:"models,omitempty"`
	Turns         int             `json:"num_turns"`
	Usage         engine.Usage    `json:"usage"`
	CostUSD       *float64        `json:"cost_usd"`
	Denials       []engine.Denial `json:"denials,omitempty"`
	DurationMS    int64           `json:"duration_ms"`
	State         State           `json:"state"`
	Partial       bool            `json:"partial,omitempty"`
	Code          string          `json:"code,omitempty"`   // of the fault
	Reason        string          `json:"reason,omitempty"` // of the fault
	Why           string          `json:"why,omitempty"`    // of a cancelled one
	Exit          string          `json:"exit,omitempty"`   // of the program
}

// Bounds of a command line in an audit line.
const (
	maxArgs = 64  // words
	maxArg  = 256 // bytes
)

// Audit returns the audit line of a consult that has ended. What was asked comes from the
// record, since the answer has only the beginning of the prompt. argv is the program's command line; nil if it is
// not known.
func (a *Answer) Audit(rec *jobdir.Record, argv []string) Audit {
	// The hash lets a user prove which prompt it was, without the log holding it.
	sum := sha256.Sum256([]byte(rec.Request.Prompt))
	line := Audit{
		Event: "consult", ID: rec.ID, CreatedUnixMS: rec.CreatedUnixMS, EndedUnixMS: a.EndedUnixMS,
		Identity: rec.Identity, Client: rec.Client,
		Caller: rec.Session, Project: rec.Project, Cwd: rec.Request.Cwd, PromptSHA256: hex.EncodeToString(sum[:]),
		PromptBytes: len(rec.Request.Prompt),
		Engine:      rec.Engine, EngineVersion: a.EngineVersion, Argv: bounded(argv), Level: a.Level,
		EnforcedBy: a.EnforcedBy, Session: a.SessionID,
		Models: a.Models, Turns: a.NumTurns, Usage: a.Usage, CostUSD: a.CostUSD, Denials: a.Denials,
		DurationMS: a.DurationMS, State: a.State,
		Partial: a.Partial, Why: a.Why, Exit: a.Exit,
	}
	if f := a.Fault; f != nil {
		line.Code, line.Reason = string(f.Fault.Code), string(f.Reason())
	}
	return line
}

// bounded returns a copy of a command line, cut to what an audit line keeps.
func bounded(argv []string) []string {
	out := make([]string, 0, min(len(argv), maxArgs))
	for _, arg := range argv[:min(len(argv), maxArgs)] {
		if len(arg) > maxArg {
			arg = arg[:maxArg] + "…"
		}
		out = append(out, arg)
	}
	return out
}
