// Package answer has what is kept of a consult, and the forms in which tools, commands
// and the audit log show it.
//
// An [Answer] embeds a [Summary] and [Details]. So a field has one name, and one meaning,
// in answer.json and in what clients see. The forms are:
//
//   - [View]: the value of render=json, with a page of the text
//   - [Answer.Result], [Answer.Ending] and [Answer.Pending]: what a tool returns, whose
//     text ends with a footer
//   - [Info]: a row of a list, see [List]
//   - [Audit]: a line of the audit log, without prompt and text
//
// Clients cut the text of a result that is too long. A long answer is therefore shown in
// pages, and each page says how to fetch the next one. The length of a page is counted as
// clients count it: in UTF-16 units of its JSON.
package answer

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/consult/material"
	"holdline/protocol/fault"
)

// State is the state of a job.
type State string

// The states. A job is Queued until it has a slot, then Running. Done, Failed and
// Cancelled are final.
const (
	Queued    State = "queued"
	Running   State = "running"
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Bounds of what is kept of a consult, in bytes.
const (
	maxText   = 8 << 20  // of the text of an answer
	maxPrompt = 64 << 10 // of the prompt, beside what job.json has
)

// Answer is answer.json: how a job ended, and all that is kept of it. It is read-only
// once made, and is shared without a lock. Of a job that has not ended, an Answer says
// how far it is; that one is never written.
type Answer struct {
	Version  int    `json:"version"`
	Identity string `json:"identity"`
	Project  string `json:"project,omitempty"`
	Caller   string `json:"caller,omitempty"` // hash of the session that asked
	Text     string `json:"answer"`
	Cut      bool   `json:"cut,omitempty"`      // it was longer than what is kept
	Why      string `json:"why,omitempty"`      // of a cancelled one; what it does, of one that has not ended
	Question string `json:"question,omitempty"` // its beginning
	Summary
	Details
}

// Summary is what each view of an answer shows.
type Summary struct {
	ID         string          `json:"consult_id"`
	Cwd        string          `json:"cwd"`
	State      State           `json:"state"`
	Partial    bool            `json:"partial"`
	SessionID  string          `json:"session_id,omitempty"` // the program's own
	Models     []string        `json:"models,omitempty"`     // those that answered, most output first
	CostUSD    *float64        `json:"cost_usd"`             // nil if the program gives none
	NumTurns   int             `json:"num_turns"`
	DurationMS int64           `json:"duration_ms"` // from start to end of the program
	StopReason string          `json:"stop_reason,omitempty"`
	Level      string          `json:"level"`
	EnforcedBy string          `json:"enforced_by"`
	Engine     string          `json:"engine"`
	Structured json.RawMessage `json:"structured,omitempty"`
	Window     *engine.Window  `json:"window,omitempty"` // of the subscription

	// Of a panel: how many of its members have answered, what each has said, and the judge.
	Answered *int   `json:"answered,omitempty"`
	Answers  []Part `json:"answers,omitempty"`
	Judge    *Part  `json:"judge,omitempty"`
	// Of a member of a panel: the panel's id, and how the panel calls the member.
	Panel string `json:"panel,omitempty"`
	Label string `json:"label,omitempty"`
}

// Details are what detail=full shows beside the summary.
type Details struct {
	Follows       string            `json:"follows,omitempty"`  // id of the consult that it continues
	Messages      []Message         `json:"messages,omitempty"` // what was said to it while it ran
	Steps         []string          `json:"steps,omitempty"`    // the last ones of a consult that has not ended
	Prompt        string            `json:"prompt,omitempty"`   // without the context behind it, up to maxPrompt
	MaxTurns      int               `json:"max_turns"`          // 0 for no limit
	EngineVersion string            `json:"engine_version,omitempty"`
	Model         string            `json:"model,omitempty"` // that was asked for
	Usage         engine.Usage      `json:"usage"`
	ModelUsage    json.RawMessage   `json:"model_usage,omitempty"` // by model; nil if the program does not tell
	FastMode      string            `json:"fast_mode_state,omitempty"`
	UUID          string            `json:"uuid,omitempty"` // of the program's last result
	APIDurationMS int64             `json:"duration_api_ms"`
	QueuedMS      int64             `json:"queued_ms"`
	CreatedUnixMS int64             `json:"created_unix_ms"`
	EndedUnixMS   int64             `json:"ended_unix_ms,omitempty"`
	Denials       []engine.Denial   `json:"permission_denials,omitempty"`
	Notes         []string          `json:"notes,omitempty"`
	RateLimit     json.RawMessage   `json:"rate_limit,omitempty"`
	MaxUSD        float64           `json:"max_usd,omitempty"`          // what it could cost at most; 0 for no limit
	SessionUSD    float64           `json:"session_cost_usd,omitempty"` // of the session that asked, with this one
	TodayUSD      float64           `json:"today_cost_usd,omitempty"`   // of the identity on that day, with this one
	Context       *material.Context `json:"context,omitempty"`
	Exit          string            `json:"exit,omitempty"`  // of the program, for people
	Fault         *fault.Record     `json:"fault,omitempty"` // nil unless it failed or was cancelled
}

// New returns the answer of a job in that state, as far as its record says it.
func New(rec *jobdir.Record, state State) *Answer {
	return &Answer{
		Version: jobdir.Version, Identity: rec.Identity, Project: rec.Project, Caller: rec.Session,
		Question: question(rec.Request.Prompt),
		Summary: Summary{
			ID: rec.ID, Cwd: rec.Request.Cwd, State: state, Level: rec.Level, EnforcedBy: rec.EnforcedBy,
			Engine: rec.Engine, Panel: rec.Panel, Label: rec.Label,
		},
		Details: Details{
			Follows: rec.Follows,
			Prompt:  beginning(rec.Asked(), maxPrompt), MaxTurns: rec.Request.MaxTurns,
			EngineVersion: rec.EngineVersion, Model: rec.Request.Model,
			CreatedUnixMS: rec.CreatedUnixMS, Notes: rec.Notes, Context: rec.Context,
		},
	}
}

// maxQuestion bounds what is kept of a prompt to know a consult by, in characters.
const maxQuestion = 200

// question returns the beginning of a prompt on one line. The prompt may have megabytes of
// context behind it.
func question(prompt string) string {
	return fault.Short(beginning(prompt, 8*maxQuestion), maxQuestion)
}

// beginning returns the first limit bytes of a text, without a character that is cut.
func beginning(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// FromOutcome returns the answer of a job whose run ended with out at that time. why is
// the reason of a job that was asked to end.
//
// What the outcome says is stronger than what the record says: the program may have run
// at another level than the one that was expected. The text is cut to maxText.
func FromOutcome(rec *jobdir.Record, out *engine.Outcome, ended time.Time, why string) *Answer {
	a := New(rec, Done)
	a.Text, a.Partial, a.Structured = out.Answer, out.Partial, out.Structured
	a.SessionID, a.Models, a.NumTurns, a.StopReason = out.Session, out.Models, out.Turns, out.Stop
	a.CostUSD, a.Usage, a.RateLimit, a.Window = out.CostUSD, out.Usage, out.RateLimit, out.Window
	a.DurationMS, a.APIDurationMS, a.EndedUnixMS = out.DurationMS, out.APIMS, ended.UnixMilli()
	a.ModelUsage, a.FastMode, a.UUID = out.ModelUsage, out.FastMode, out.UUID
	a.Denials, a.Exit, a.Fault = out.Denials, out.Exit, out.Fault
	if out.Level != "" {
		a.Level, a.EnforcedBy, a.Notes = out.Level, out.EnforcedBy, out.Notes
	}
	a.EngineVersion = cmp.Or(out.EngineVersion, a.EngineVersion)
	// A partial answer without a fault is Done: it is the best that could be had in time.
	if out.Fault != nil {
		a.State = Failed
		if out.Fault.Fault.Code == fault.Cancelled {
			a.State, a.Why = Cancelled, why
		}
	}
	if len(a.Text) > maxText {
		a.Text, a.Cut = beginning(a.Text, maxText), true
	}
	return a
}

// Read reads the answer.json of a job's directory. One that is another job's is an error.
func Read(dir string) (*Answer, error) {
	var a Answer
	err := jobdir.Read(dir, jobdir.FileAnswer, &a, &a.Version, jobdir.Version)
	if err == nil {
		err = jobdir.CheckID(dir, jobdir.FileAnswer, a.ID)
	}
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// Write replaces answer.json in the directory dir.
func (a *Answer) Write(dir string) error { return jobdir.Write(dir, jobdir.FileAnswer, a) }

// Info is one row of a list.
type Info struct {
	ID            string   `json:"consult_id"`
	State         State    `json:"state"`
	Identity      string   `json:"identity"`
	Cwd           string   `json:"cwd"`
	Model         string   `json:"model,omitempty"`
	CreatedUnixMS int64    `json:"created_unix_ms"`
	TookMS        int64    `json:"took_ms"`
	CostUSD       *float64 `json:"cost_usd"`
	Code          string   `json:"code,omitempty"` // of the fault, if it failed
	Note          string   `json:"note,omitempty"` // what it does, if it has not ended
	Engine        string   `json:"engine"`
	Level         string   `json:"level,omitempty"`
	EnforcedBy    string   `json:"enforced_by,omitempty"`
	Question      string   `json:"question,omitempty"` // its beginning
	Panel         string   `json:"panel,omitempty"`    // id of the panel that it is a member of
	Label         string   `json:"label,omitempty"`    // how the panel calls it
}

// model returns the model with the most output, or the one that was asked for if the
// program has named none.
func (a *Answer) model() string {
	return cmp.Or(strings.Join(a.Models[:min(len(a.Models), 1)], ""), a.Model)
}

// Info returns the row of an answer.
func (a *Answer) Info() Info {
	i := Info{
		ID: a.ID, State: a.State, Identity: a.Identity, Cwd: a.Cwd, Model: a.model(), CreatedUnixMS: a.CreatedUnixMS,
		TookMS: a.EndedUnixMS - a.CreatedUnixMS, CostUSD: a.CostUSD, Engine: a.Engine, Level: a.Level,
		EnforcedBy: a.EnforcedBy, Question: a.Question, Panel: a.Panel, Label: a.Label,
	}
	if a.Fault != nil {
		i.Code = string(a.Fault.Fault.Code)
	}
	return i
}
