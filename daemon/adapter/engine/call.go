package engine

import (
	"encoding/json"
	"path/filepath"
	"time"

	"holdline/protocol/fault"
)

// Names and versions of what passes between the daemon and an engine process.
const (
	// Tool is the one tool of an engine process. It runs a consult program once.
	Tool = "run"
	// Version is that of [Params] and [Outcome]. A process refuses a version
	// that it does not know.
	Version = 1
	// MetaProgress is the key of [Progress] in the _meta of a progress
	// notification.
	MetaProgress = "holdline/consult"
)

// Files of a consult's directory that the engine process writes.
const (
	FileTranscript = "transcript.jsonl"
	FileOutcome    = "outcome.json"
)

// SealName returns the name to which the checksum of a file of a consult's directory is bound: see package bulk.
func SealName(dir, file string) string { return filepath.Base(dir) + "/" + file }

// Params are the arguments of [Tool]. Only the prompt is required.
type Params struct {
	Version int `json:"version,omitempty"` // 0 is [Version]
	Request

	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Program is what the daemon knows of the installed program. Without it the
	// process asks the program itself.
	Program *Info `json:"program,omitempty"`
	// Dir is where the transcript and the outcome are written. Without it the
	// process writes no files.
	Dir string `json:"dir,omitempty"`
	// Mask names the variables of the environment that the configuration has
	// set. They count as secrets: their values are replaced by *** in
	// transcript, notes and faults.
	Mask   []string `json:"mask,omitempty"`
	Ladder *Ladder  `json:"ladder,omitempty"` // for tests; nil is [DefaultLadder]
}

// Progress is what a progress notification says beside its message.
type Progress struct {
	Turn      int      `json:"turn,omitempty"`
	CostUSD   *float64 `json:"cost_usd,omitempty"` // so far; nil if unknown
	Model     string   `json:"model,omitempty"`
	Session   string   `json:"session,omitempty"`
	TextBytes int      `json:"text_bytes,omitempty"` // of what the model has said so far
	Seq       int64    `json:"seq,omitempty"`        // of the transcript's last line
	Window    *Window  `json:"window,omitempty"`     // of the subscription; nil if unknown
}

// State is the way in which a run ended.
type State string

// The states of an [Outcome].
const (
	Done   State = "done"
	Failed State = "failed"
	// Aborted is the state of a run that was cancelled.
	Aborted State = "cancelled"
)

// Outcome is the result of a run. A [Run] fills in what the program has said of it, and
// the engine process adds the rest.
//
// Fault is nil if there is a whole answer, or the best answer that could be had in time
// (Partial). All other fields hold what is known, with a fault or without: a run that
// failed has cost money, too.
type Outcome struct {
	Version int    `json:"version"`
	Job     string `json:"job,omitempty"` // name of the directory of which it is the outcome
	State   State  `json:"state"`
	Why     Why    `json:"why"`

	Answer  string `json:"answer"` // the answer, or what there was of one
	Partial bool   `json:"partial"`
	// Structured is the answer in the form of the schema; nil if there is none.
	Structured json.RawMessage `json:"structured,omitempty"`
	Fault      *fault.Record   `json:"fault,omitempty"`
	Session    string          `json:"session,omitempty"`
	Models     []string        `json:"models,omitempty"` // those that answered, most output first
	CostUSD    *float64        `json:"cost_usd"`         // of this run alone; nil if the program gives none
	Usage      Usage           `json:"usage"`
	Turns      int             `json:"turns"`
	// ModelUsage is what each model has used in this run, by name, in the program's words;
	// nil if it does not tell.
	ModelUsage json.RawMessage `json:"model_usage,omitempty"`
	FastMode   string          `json:"fast_mode_state,omitempty"` // as the program says
	UUID       string          `json:"uuid,omitempty"`            // of the program's last result
	Stop       string          `json:"stop,omitempty"`            // stop reason
	APIMS      int64           `json:"api_ms,omitempty"`
	Denials    []Denial        `json:"denials,omitempty"`
	RateLimit  json.RawMessage `json:"rate_limit,omitempty"` // last rate limit event; nil if none
	Window     *Window         `json:"window,omitempty"`     // what it said; nil if none

	Level         string   `json:"level,omitempty"`
	EnforcedBy    string   `json:"enforced_by,omitempty"`
	Notes         []string `json:"notes,omitempty"`
	Argv          []string `json:"argv,omitempty"`
	EngineVersion string   `json:"engine_version,omitempty"`
	BeganUnixMS   int64    `json:"began_unix_ms,omitempty"`
	EndedUnixMS   int64    `json:"ended_unix_ms,omitempty"`
	Unwritten     []string `json:"unwritten,omitempty"` // names of files that could not be written whole
	DurationMS    int64    `json:"duration_ms,omitempty"`
	Exit          string   `json:"exit,omitempty"` // of the program, for people
}

// Ladder holds the times of the steps by which a run that must end is ended: a polite
// request, then closed stdin, then signals.
type Ladder struct {
	// At the deadline the program is interrupted, and has Interrupt to end its
	// turn. Then it is asked for its best answer and has Best for it.
	Interrupt time.Duration
	Best      time.Duration
	// Leave is how long a program may take to end by itself once its stdin is
	// closed behind its answer.
	Leave time.Duration
	// Cancel is how long a cancelled program has to report its session and
	// cost.
	Cancel time.Duration
	// Grace is each step of what follows: stdin closed, SIGTERM, SIGKILL.
	Grace time.Duration
	// CancelGrace is the same for a run that was cancelled: a caller waits.
	CancelGrace time.Duration
	// Stall is how long a program may make no progress before it is ended as at its
	// deadline. Text of the model or the use of a tool is progress; retries are not.
	Stall time.Duration
	// Introduce is how long a program has that must introduce itself: see [Introducer].
	Introduce time.Duration
}

// DefaultLadder ends a cancelled program and all that it started within 3 s,
// even if it ignores every request to end.
func DefaultLadder() Ladder {
	return Ladder{
		Interrupt: 5 * time.Second, Best: 30 * time.Second, Leave: 10 * time.Second,
		Cancel: 700 * time.Millisecond, Grace: 3 * time.Second, CancelGrace: 500 * time.Millisecond,
		Stall: 10 * time.Minute, Introduce: 30 * time.Second,
	}
}

// Whole returns how long all steps that follow a deadline can take together, with some
// time to spare. The worker's hard deadline must be later than that.
func (l Ladder) Whole() time.Duration {
	return l.Interrupt + l.Best + l.Leave + 2*l.Grace + 10*time.Second
}
