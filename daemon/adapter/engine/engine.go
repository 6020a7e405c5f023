// Package engine is the contract between the daemon, the process
// "holdline engine NAME" and the packages that each know one consult program.
//
//   - [Engine] knows a program: whether it can be used, its command line, its
//     stream.
//   - [Run] reads the stream of one run. It is a state machine: it starts no
//     process and is tested without one.
//   - [Params], [Progress] and [Outcome] are what passes between the daemon and
//     the engine process: the arguments, the progress and the result of the one
//     tool of that process, [Tool].
//   - [Transcript] is the file of what happened in a run. The engine process
//     writes it; the daemon reads it when the process has died.
//
// The package starts no process and no goroutine.
package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdline/protocol/fault"
)

// Operation is the operation that the faults of a consult name.
const Operation = "tools/call:consult"

// Invalid returns the invalid_input fault of a call that asks for what cannot be done.
// The message begins with the argument's name.
func Invalid(format string, args ...any) *fault.Record {
	return fault.New(fault.InvalidInput, fault.Host, Operation, format, args...)
}

// NameLacking adds a hint to the fault of a program that is not logged in: those login
// variables which the caller's own environment has and the daemon's has not. has are the
// names of the caller's variables. Other errors are returned as they are.
func NameLacking(err error, eng Engine, has []string) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Reason() != fault.NotLoggedIn {
		return err
	}
	names := eng.Without(has)
	if len(names) == 0 {
		return err
	}
	its := *f // a copy: other callers share the fault of a check
	its.Fault.Detail += "; your own environment has " + strings.Join(names, ", ") + ", and the daemon's has not"
	return &its
}

// Levels of a run: the most that the program may do.
const (
	LevelRead  = "read"  // read files; nothing that writes or executes is offered
	LevelShell = "shell" // and run commands that can write nothing but what is temporary
)

// Mechanisms that hold a run to its level.
const (
	ByTools    = "tools"    // what writes or executes is not offered to the model
	ByLandlock = "landlock" // that, and the kernel refuses the program and all it starts to write
	BySandbox  = "sandbox"  // the kernel refuses the commands of the shell tool to write
)

// Engine knows one consult program. Its methods may be called from several
// goroutines at once.
type Engine interface {
	// Check reports whether the program can be used. It may take seconds. The
	// error is a [*fault.Record].
	Check(ctx context.Context) (Info, error)
	// Without returns those of the named login variables that this program
	// reads and that its environment lacks.
	Without(names []string) []string
	// Fits returns nil if every version of the program can do what req asks
	// for, else an invalid_input fault.
	Fits(req Request) error
	// Environ returns the environment of every run, before the variables of a
	// single run are added, and the names of those that the configuration sets.
	Environ() (environ, configured []string)
	// Command returns the command line and environment of a run.
	Command(req Request, info Info) Command
	// NewRun returns the reader of one run's stream.
	NewRun(req Request, info Info) Run
}

// Route is how a program reaches its API, as far as that is known. Engines that know it have a method Route.
type Route struct {
	Environ []string // of a run
	Address string   // name of the variable that has the address of the API; "" if the program knows it
	Hosts   []string // of the API if Address is ""; nil if they are not known
	Proxies []string // names of variables of proxies, of which the first that is set counts
}

// Request is what a program is asked to do. The daemon has checked it and resolved its
// paths.
type Request struct {
	Prompt   string          `json:"prompt"`
	Cwd      string          `json:"cwd,omitempty"`       // absolute, an existing directory
	AddDirs  []string        `json:"add_dirs,omitempty"`  // beside Cwd; absolute, existing directories
	Session  string          `json:"session,omitempty"`   // to fork from; "" for a new one
	Model    string          `json:"model,omitempty"`     // "" leaves it to the program
	Effort   string          `json:"effort,omitempty"`    // "" leaves it to the program
	MaxTurns int             `json:"max_turns,omitempty"` // 0 for no limit
	MaxUSD   float64         `json:"max_usd,omitempty"`   // what the run may cost; 0 for no limit
	Level    string          `json:"level,omitempty"`     // "" is [LevelRead]
	Web      bool            `json:"web,omitempty"`       // web tools are allowed
	Schema   json.RawMessage `json:"schema,omitempty"`    // JSON Schema of the answer; nil for none

	// Held are Cwd and AddDirs, in this order, as they were when the paths were checked; nil if they were
	// not. A path may lead elsewhere meanwhile.
	Held []Directory `json:"held,omitempty"`
	// TempDir is private to the run; "" for none.
	TempDir string `json:"temp,omitempty"`
	// SchemaFile holds Schema while the program runs.
	SchemaFile string `json:"-"`
}

// Directory says which directory one is, whatever its path.
type Directory struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// DirectoryOf returns which directory info describes.
func DirectoryOf(info fs.FileInfo) Directory {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Directory{}
	}
	return Directory{Device: uint64(st.Dev), Inode: st.Ino} //nolint:unconvert // Dev is an int32 on macOS
}

// Info is what is known of the installed program.
type Info struct {
	Path     string   `json:"path"`    // absolute
	Version  string   `json:"version"` // "2.1.329"
	LoggedIn bool     `json:"logged_in"`
	Account  string   `json:"account,omitempty"`  // how it is logged in, for people; never a secret
	Features []string `json:"features,omitempty"` // what this version can do beyond the least, in the engine's words
	Levels   []Level  `json:"levels,omitempty"`   // those that the engine knows; any other one is refused
	Settings []string `json:"settings,omitempty"` // that the configuration gives the program, in its own form
	Emptied  []string `json:"emptied,omitempty"`  // names of variables that the model's shell has without values
	Wall     string   `json:"wall,omitempty"`     // path of the bubblewrap around the program; "" for none
	Agent    *Agent   `json:"agent,omitempty"`    // of the engines acp:NAME; nil for the others
}

// Agent is what the configuration says of an agent that speaks the Agent Client Protocol.
type Agent struct {
	Name     string   `json:"name"` // in the configuration
	Args     []string `json:"args,omitempty"`
	Login    []string `json:"login,omitempty"`    // files below the user's home directory; absolute
	Writable []string `json:"writable,omitempty"` // directories; absolute
	Mode     string   `json:"mode,omitempty"`     // session mode to ask for; "" for the agent's own
	Auth     string   `json:"auth,omitempty"`     // method to log in by; "" for none
	FS       bool     `json:"fs,omitempty"`       // it may read files of the run's directories through us
}

// Level is what a run may do at most, and which mechanism holds it to that on this
// machine.
type Level struct {
	Name       string   `json:"level"`
	EnforcedBy string   `json:"enforced_by,omitempty"`
	Notes      []string `json:"notes,omitempty"` // for people
	// Lacks says what is missing, and how to get it; "" if nothing is. A level
	// that lacks something is refused, never run weaker.
	Lacks string `json:"lacks,omitempty"`
}

// Level returns what is known of the level with that name; "" is [LevelRead]. For a
// name that the engine does not know it returns a level that lacks something, so the
// caller refuses it.
func (i *Info) Level(name string) Level {
	name = cmp.Or(name, LevelRead)
	for _, l := range i.Levels {
		if l.Name == name {
			return l
		}
	}
	return Level{Name: name, Lacks: "this engine has no such level"}
}

// Command is how to start a program for one run. The prompt is never part of it: other
// users can see a command line.
type Command struct {
	Argv []string // Argv[0] is absolute
	Env  []string // the whole environment
	// Level and EnforcedBy say what the run can do at most, and which
	// mechanism holds it to that.
	Level      string
	EnforcedBy string
	// Writable is all that the program may write to; nil if the kernel is not
	// to be asked for it.
	Writable *Writable
	Makes    []string // directories to be made before it starts, if they are not there
	Login    *Login   // nil if the program reads its login where the user has it
	Notes    []string // what the installed version lacks, for people
}

// Login is the file of a program's login, and a copy of it where the program can write. Programs
// replace that file when they renew the login, which takes the right to replace any file beside it.
// So the program gets a copy, and the engine process takes over what is renewed, in both directions:
// a token that was used once is worth nothing, and the user would be logged out.
type Login struct {
	Own, Copy string // absolute
	// Give returns what the copy has of the content of the file. Take returns the content of the file
	// once the copy has changed, or nil if the copy has nothing that may be taken.
	Give func(own []byte) []byte
	Take func(own, changed []byte) []byte
}

// Writable lists the places that a program may write to: everything below the
// directories, and single files. The engine process creates directories that are
// missing before it starts the program. It does not create files. The paths are
// absolute.
type Writable struct {
	Dirs  []string
	Files []string
}

// EventKind says what a line of the stream means.
type EventKind int

// The kinds.
const (
	Started  EventKind = iota + 1 // the program is up; Session and Model are set
	Text                          // the model said something: Text
	ToolUse                       // the model uses a tool: Text is a short description
	Retry                         // the program tries its API again: Text says why
	Fallback                      // another model is used: Text
	Limit                         // the state of a rate limit window: Text
	Waiting                       // a sign of life
	TurnDone                      // a result: the program waits for the next message
	Noise                         // the line is none of the program's protocol
	Piece                         // a piece of a text that is being written: Text
	Stuck                         // nothing more is to come, and the program would not end by itself
	Heard                         // the program has taken a message of [Listener.Say]: Text is its id
	Write                         // the program must be told something at once: Line
)

// Event is one step of a run. The runner uses events for progress, and some of them
// drive its phases.
type Event struct {
	Kind     EventKind
	Text     string
	Session  string
	Model    string
	Turn     int      // the model's, from 1 on; 0 if unknown
	CostUSD  *float64 // of TurnDone: so far; nil if unknown
	Window   *Window  // of Limit
	Answered bool     // of TurnDone: with an answer
	Line     []byte   // of Write: for the program's stdin, with its newline
	Path     string   // the file or directory that a tool reads, absolute; "" if it reads none
}

// Run is the dialogue with one run of a program: what to write to its stdin,
// what its lines mean, and how it came out. It is a state machine without a
// process, and not safe for concurrent use.
type Run interface {
	// Begin returns the first bytes for the program's stdin: the prompt.
	Begin() []byte
	// Once reports whether the program reads its prompt to the end of its
	// stdin, which is then closed behind it.
	Once() bool
	// Interrupt returns the line that stops the turn, or nil if the program
	// cannot be stopped by a line.
	Interrupt() []byte
	// BestAnswer returns the line that asks for an answer at once, after an
	// interrupt; nil if the program has no such line.
	BestAnswer() []byte
	// Line takes one line of the program's stdout without its newline. It does
	// not keep line. Text behind the last newline reaches it only if it is JSON (see
	// [EndOutput]), so a program that prints plain text must end it with a newline.
	Line(line []byte) []Event
	// Torn records that the output ended inside a line, whose text is lost.
	Torn()
	// Text returns what the model has said so far.
	Text() string
	// Outcome returns the result, once the process has ended.
	Outcome(exit Exit, why Why) Outcome
}

// A Listener is a [Run] whose program takes messages while it works. Messages to other
// programs wait for the end of the turn.
type Listener interface {
	// Say returns the line that brings a message to the program, which reports it by
	// [Heard] when the model gets it; nil if this version reads no messages. An empty line
	// means that the run brings the message itself, by [Write], in its next turn.
	Say(id, text string) []byte
}

// An Introducer is a [Run] whose program has to introduce itself before it does anything. One that
// does not within [Ladder].Introduce is ended: it speaks something else, and mostly waits for a person.
type Introducer interface {
	// Introduced reports whether it has.
	Introduced() bool
}

// A Closer is a [Run] whose program is told that its answer was the last one, before its
// stdin is closed.
type Closer interface {
	// Close returns the line for that, or nil, and how long to wait before it is written, so
	// that the program can store its session.
	Close() (line []byte, after time.Duration)
}

// A Furnisher is an [Engine] whose program gets a directory of the run's own, in the place of its
// directory in the user's home. dir is the directory of the consult, or "" if a client has started
// the engine process by hand.
type Furnisher interface {
	// Furnish makes that directory, which lies in req.TempDir. It returns req, with the session's name
	// in the program's own words if req goes on from one.
	Furnish(ctx context.Context, req Request, info Info, dir string) (Request, error)
}

// A Keeper is a [Furnisher] whose program also keeps its sessions in that directory. It takes a copy
// of the one that an earlier consult has left if a request goes on from a session.
type Keeper interface {
	// Keep keeps the directory, once the program has ended, so that a later run can go on
	// from out.Session. It sets that to the name by which others know the session, or to "" if
	// there is none.
	Keep(req Request, info Info, dir string, out *Outcome)
}

// Usage counts the tokens of one run.
type Usage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// Exit is how the program's process ended.
type Exit struct {
	Known      bool // false if the worker was lost: nothing says how the process ended
	Code       int
	Signal     string   // "SIGTERM"; "" if it exited
	SpawnErrno string   // the program could not be started: "ENOENT"
	Stderr     []string // last lines
}

// Why says why the driver ended a run, if it did.
type Why int

// The endings that the driver brings about.
const (
	Itself    Why = iota // the program ended its turn
	Cancelled            // the client cancelled or left
	Deadline             // time was up
	Overflow             // it printed more than is kept
	Stalled              // it made no progress for too long
)

// whys are the words for the endings in files and messages, by number.
var whys = []string{"itself", "cancelled", "deadline", "overflow", "stalled"}

// MarshalText returns the word for w. It fails for a number without a word.
func (w Why) MarshalText() ([]byte, error) {
	if int(w) >= len(whys) {
		return nil, fmt.Errorf("no ending has the number %d", w)
	}
	return []byte(whys[w]), nil
}

// UnmarshalText reads what [Why.MarshalText] writes.
func (w *Why) UnmarshalText(text []byte) error {
	n := slices.Index(whys, string(text))
	if n < 0 {
		return fmt.Errorf("%q is no ending", text)
	}
	*w = Why(n)
	return nil
}

// Late reports whether the run was asked for its best answer since its deadline passed
// or it made no progress.
func (w Why) Late() bool { return w == Deadline || w == Stalled }

// Window is how much of a subscription's quota is used up in a period of time.
type Window struct {
	Kind        string  `json:"kind,omitempty"`   // "five_hour"
	Status      string  `json:"status,omitempty"` // allowed, allowed_warning, rejected
	Used        float64 `json:"used"`             // share, from 0 to 1
	ResetUnixMS int64   `json:"reset_unix_ms,omitempty"`
}

// String returns the window for people, and "" if nothing is known of it. w may be nil.
func (w *Window) String() string {
	if w == nil || w.Kind == "" && w.Used == 0 && w.ResetUnixMS == 0 {
		return ""
	}
	text := "subscription window"
	if w.Kind != "" {
		text += " " + w.Kind
	}
	if w.Used > 0 {
		text += fmt.Sprintf(" %.0f %% used", w.Used*100)
	}
	if w.ResetUnixMS > 0 {
		text += ", resets " + time.UnixMilli(w.ResetUnixMS).UTC().Format(time.RFC3339)
	}
	return text
}

// Denial is a tool use that the program refused.
type Denial struct {
	Tool string `json:"tool"`
}

// Names returns the names of the variables of an environment, whose entries have the
// form NAME=VALUE.
func Names(environ []string) []string {
	names := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	return names
}
