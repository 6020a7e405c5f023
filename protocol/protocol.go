// Package protocol is what is said on the daemon's socket around the MCP
// messages: the greeting, the welcome and the control lines.
//
// A connection begins with one line from the client, a [Greeting], and one
// line from the daemon, a [Welcome]. Then, in role "mcp", JSON-RPC messages
// travel as lines in both directions, with [Control] lines between them; in
// role "control" the protocol of package control begins.
//
// A control line has "holdline" as its first key and no "jsonrpc". No proxy
// ever copies one to an agent, and no daemon ever forwards one from a server.
// One with a [Long] stands for a message, and counts as one.
//
// The client's JSON-RPC lines are numbered from 1 in each session; both sides
// count, control lines do not count, and neither do empty lines or lines that
// a proxy refused because they were too long. If the greeting says Numbers, the
// daemon's answer to a line, and what it says of the progress with that, end with a
// space and the number of the line: a client may use an id again. See [AppendNumber].
package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"holdline/protocol/jsonrpc"
)

// Version is the greeting's version. A daemon takes no other. Proxies outlive daemons, so a
// new member comes without a new version: both sides ignore members that they do not know.
const Version = 1

// MaxGreeting is the most bytes that a greeting may have.
const MaxGreeting = 64 << 10

// GreetingTimeout bounds the wait for a greeting, and a proxy's wait for the
// welcome: a peer that connects and says nothing must not hold anything. It is constant
// but for tests.
var GreetingTimeout = 5 * time.Second

// Windows of recovery: a proxy tries to reconnect for the first, a daemon
// keeps a session known from records for the second after its start, a worker
// stays alone for the third; a session that this daemon saw connected is kept
// for the fourth. Each of the first three must be shorter than the next. The
// second ends so early that records without a client are gone 90 s after
// the start, although a process may ignore all but SIGKILL. They are constant
// but for [DivideWindows].
var (
	ReconnectWindow = 60 * time.Second
	StartWindow     = 87 * time.Second
	WorkerWindow    = 120 * time.Second
	ResumeWindow    = 30 * time.Second
)

// StallWindow is how long a client may take no byte while more waits for it than
// its queue holds. It is constant but for tests.
var StallWindow = 30 * time.Second

// DivideWindows makes all of them shorter. It is for test binaries, before
// they start goroutines; the program itself never calls it.
func DivideWindows(by int) {
	for _, window := range []*time.Duration{&ReconnectWindow, &StartWindow, &WorkerWindow, &ResumeWindow} {
		*window /= time.Duration(by)
	}
}

// Roles of a connection.
const (
	RoleMCP     = "mcp"
	RoleControl = "control"
)

// Greeting is the first line of a proxy, or of another client of the daemon.
type Greeting struct {
	Holdline int     `json:"holdline"`           // version of the greeting: [Version]
	Role     string  `json:"role"`               // RoleMCP or RoleControl
	Session  string  `json:"session,omitempty"`  // uuid, a secret: it resumes the session; shown and logged nowhere
	Resume   bool    `json:"resume"`             // the session had a connection before
	Store    string  `json:"store,omitempty"`    // of the records that the session knows
	Next     int64   `json:"next,omitempty"`     // with Resume: the number of the first live line
	Pending  []int64 `json:"pending,omitempty"`  // with Resume: requests that still want an answer
	AgeMS    int64   `json:"age_ms,omitempty"`   // with Resume: of the session; for people
	Identity string  `json:"identity,omitempty"` // that the client claims
	Token    string  `json:"token,omitempty"`    // proves the identity, if the configuration demands that
	Project  string  `json:"project,omitempty"`  // key
	Cwd      string  `json:"cwd,omitempty"`      // working directory of the proxy, without links
	Named    string  `json:"named,omitempty"`    // the same as its client named it; "" if that is Cwd
	Server   string  `json:"server,omitempty"`   // narrows the session to one hosted server
	View     string  `json:"view,omitempty"`     // of the configuration, that the session wants
	State    string  `json:"state,omitempty"`    // the client's state directory: a daemon of another one refuses
	Version  string  `json:"version,omitempty"`  // of the program, for people
	Files    bool    `json:"files,omitempty"`    // it takes a [Long]
	Numbers  bool    `json:"numbers,omitempty"`  // it takes the numbers of [AppendNumber]
	// Kept is what daemons have told the proxy to keep, by [Control.Keep]. Nil is from a client
	// that keeps nothing, and is told nothing.
	Kept map[string]string `json:"kept,omitzero"`
	// Replays is how many lines the client sends again, in a resume.
	Replays int `json:"replays,omitempty"`
	// Logins are the names of [LoginVariables] that the client has.
	Logins []string `json:"logins,omitempty"`
}

// LoginVariables are the names of those variables of an environment by which a
// consult program logs in, or finds its login; never a value. A daemon that has
// none of them can say which ones its client has.
func LoginVariables(environ []string) []string {
	var names []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
			"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY",
			"CODEX_API_KEY", "CODEX_HOME":
			if value != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// Welcome is the daemon's first line: either Error is set or the rest.
type Welcome struct {
	Holdline       int        `json:"holdline"`
	Resumed        bool       `json:"resumed"`                    // this daemon had the session already
	Store          string     `json:"store,omitempty"`            // id of the records; they are lost if it has changed
	ResumeWindowMS int64      `json:"resume_window_ms,omitempty"` // how long the client may take to resume
	Daemon         DaemonInfo `json:"daemon,omitzero"`
	Error          *Refusal   `json:"error,omitempty"`
}

// DaemonInfo says which daemon answered.
type DaemonInfo struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Epoch   int64  `json:"epoch"`           // generation of the daemon, counted in its runtime directory
	Managed string `json:"managed"`         // "systemd", "launchd" or "no"
	State   string `json:"state,omitempty"` // the state directory that it serves
}

// Refusal says why a daemon does not serve a connection. It is an error.
type Refusal struct { //nolint:errname // it is what the wire calls it
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Codes of a [Refusal].
const (
	RefusedIdentity = "identity_refused"
	RefusedVersion  = "version"
	RefusedView     = "unknown_view"
	RefusedHome     = "another_home" // the daemon serves another state directory than the client's
	RefusedGreeting = "bad_greeting"
	RefusedBusy     = "session_busy"         // tried again by the proxy until its timeout
	RefusedLimit    = "too_many_connections" // tried again by a proxy that resumes
	RefusedStopping = "stopping"             // tried again, too
)

// Error returns the message, which is for the user.
func (r *Refusal) Error() string { return r.Message }

// Reasons of a bye.
const (
	ByeClient  = "client"  // from a proxy: its client is done
	ByeStopped = "stopped" // from a daemon: it was stopped on request, start no other
	ByeRemoved = "removed" // from a daemon: holdline is being uninstalled, start no other
	ByeSlow    = "slow"    // from a daemon: the client did not read
	ByeFull    = "full"    // from a daemon: more answers waited than are kept
	ByeEnded   = "ended"   // from a daemon: its user has disconnected the client
)

// NotedFact begins the names of facts that a daemon keeps with a proxy about subscriptions of the modern era.
const NotedFact = "noted "

// Control is a line of proxy or daemon between the messages of MCP. It is an
// acknowledgement (Ack), a receipt (Seen), the head of a replayed line (Replay), a Bye, facts
// for the proxy to keep (Keep), or a Message of the daemon for the client's stderr.
type Control struct {
	Holdline int `json:"holdline"`
	// Ack, from a proxy: it has received the first Ack lines of this connection whole.
	Ack *int64 `json:"ack,omitempty"`
	// Seen, from a daemon: a server has the response in client line Seen.
	Seen *int64 `json:"seen,omitempty"`
	// Replay, from a proxy: the next line is client line Replay, which it sends again.
	Replay *int64 `json:"replay,omitempty"`
	// Answered, with Replay: the client has the answer to the line.
	Answered *bool `json:"answered,omitempty"`
	// Bytes, with Replay, is false if the line was too large to keep: none follows.
	Bytes *bool `json:"bytes,omitempty"`
	// ID, with Bytes: of the request or of the response in the line.
	ID json.RawMessage `json:"id,omitempty"`
	// Call, with Bytes: the request calls a tool.
	Call bool `json:"call,omitempty"`
	// AgeMS, with Replay: how long ago the client sent the line, by the boot clock.
	AgeMS int64 `json:"age_ms,omitempty"`
	// Bye is the reason why the sender ends the session's connection.
	Bye string `json:"bye,omitempty"`
	// Keep, from a daemon: the proxy says these short strings, by their names, to the next daemon in
	// its greeting. What they mean, only daemons know. An empty one is not kept any more.
	Keep map[string]string `json:"keep,omitempty"`
	// Message, with Bye or alone, is for the user.
	Message string `json:"message,omitempty"`
	// Long is a long message whose greater part lies in a file. It counts as the message.
	Long *Long `json:"long,omitempty"`
}

// Long is a message of MCP: Head, the bytes of Span, and Tail.
type Long struct {
	Head string `json:"head"`
	Span Span   `json:"span"`
	Tail string `json:"tail"`
}

// Span names bytes that lie in a file, which is never changed.
type Span struct {
	File   string `json:"file"`   // relative to the directory of the socket
	Offset int64  `json:"offset"` // in the file, in bytes
	Size   int64  `json:"size"`   // in bytes
	// Changed is when the file was last changed, in nanoseconds since 1970. One that was changed since then is
	// damaged. 0 if it is not said.
	Changed int64 `json:"changed,omitempty"`
	// Sum is the checksum of the bytes, as package bulk computes it; 0 if it is not said.
	Sum uint32 `json:"sum,omitempty"`
}

// ErrNoGreeting is returned by [ParseGreeting] for a line that is none; it is
// to be handled as a client's first MCP message.
var ErrNoGreeting = errors.New("no greeting")

// prefix is what every line of ours begins with.
var prefix = []byte(`{"holdline":`)

// IsControl reports whether a line is ours and not MCP's.
func IsControl(line []byte) bool {
	if !bytes.HasPrefix(line, prefix) {
		return false
	}
	var v struct {
		JSONRPC json.RawMessage `json:"jsonrpc"`
	}
	return json.Unmarshal(line, &v) == nil && v.JSONRPC == nil
}

// AppendNumber appends to the daemon's message, which has no newline, the number of the client's
// line that it belongs to.
func AppendNumber(message []byte, n int64) []byte {
	return strconv.AppendInt(append(message, ' '), n, 10)
}

// CutNumber returns what [AppendNumber] was given for a line; n is 0 if it was not called. A message
// ends with a brace, never with a digit.
func CutNumber(line []byte) (message []byte, n int64) {
	i, unit := len(line), int64(1)
	for ; i > 0 && line[i-1] >= '0' && line[i-1] <= '9' && unit < 1e18; i-- {
		n += int64(line[i-1]-'0') * unit
		unit *= 10
	}
	if i == len(line) || i < 2 || line[i-1] != ' ' || line[i-2] != '}' {
		return line, 0
	}
	return line[:i-1], n
}

// Append appends v, one of the types above, as a line with its newline.
func Append(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // the types above always encode
		return dst
	}
	return append(append(dst, b...), '\n')
}

// ParseGreeting reads a client's first line. It returns [ErrNoGreeting] for a
// line that does not begin as one, and a [*Refusal] for one that is malformed
// or of a version that this program does not speak.
func ParseGreeting(line []byte) (Greeting, error) {
	var g Greeting
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), prefix) {
		return g, ErrNoGreeting
	}
	var v struct {
		Holdline json.Number `json:"holdline"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return g, &Refusal{RefusedGreeting, "greeting: " + err.Error()}
	}
	if v.Holdline.String() != fmt.Sprint(Version) {
		return g, &Refusal{RefusedVersion, fmt.Sprintf(
			"greeting version %s is not known here, this daemon speaks %d: use the same holdline for both",
			v.Holdline, Version)}
	}
	if err := json.Unmarshal(line, &g); err != nil {
		return g, &Refusal{RefusedGreeting, "greeting: " + err.Error()}
	}
	if err := greetingKeys.Fields(line, func(string, []byte) error { return nil }); err != nil {
		return g, &Refusal{RefusedGreeting, "greeting: " + err.Error()}
	}
	switch g.Role {
	case RoleMCP:
		if !validSession(g.Session) {
			return g, &Refusal{RefusedGreeting, "greeting: session is not a uuid"}
		}
		for what, name := range map[string]string{
			"identity": g.Identity, "project": g.Project, "server": g.Server, "view": g.View,
		} {
			if !validName(name) {
				return g, &Refusal{RefusedGreeting, fmt.Sprintf(
					"greeting: %s wants at most %d bytes, no control characters", what, maxName)}
			}
		}
	case RoleControl:
	default:
		return g, &Refusal{RefusedGreeting, fmt.Sprintf("greeting: unknown role %q", g.Role)}
	}
	return g, nil
}

// greetingKeys are those of a [Greeting]: two readers could take a key that stands twice, or in
// another case, for either value.
var greetingKeys = jsonrpc.Keys{Known: []string{
	"holdline", "role", "session", "resume", "store", "next", "pending", "age_ms", "identity", "token", "project", "cwd",
	"named", "server", "view", "state", "version", "files", "numbers", "kept", "replays", "logins",
}}

// ErrNoWelcome is wrapped by the error of [ParseWelcome] for a line that is no daemon's.
var ErrNoWelcome = errors.New("not from a holdline daemon")

// ParseWelcome reads a daemon's first line. A refusal is returned as the
// error, a [*Refusal]. So is a bye, the word of a daemon that stops.
func ParseWelcome(line []byte) (Welcome, error) {
	var w Welcome
	if c, err := ParseControl(line); err == nil && c.Holdline != 0 && c.Bye != "" {
		return w, &Refusal{RefusedStopping, cmp.Or(c.Message, "the daemon has ended the session: "+c.Bye)}
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return w, fmt.Errorf("welcome: %w: %w", ErrNoWelcome, err)
	}
	if w.Holdline == 0 {
		return w, fmt.Errorf("welcome: %w", ErrNoWelcome)
	}
	if w.Error != nil {
		return w, w.Error
	}
	if w.Holdline != Version {
		return w, &Refusal{RefusedVersion, fmt.Sprintf(
			"the daemon answers with greeting version %d, want %d", w.Holdline, Version)}
	}
	return w, nil
}

// hungUpError is about a connection that ended before the welcome. It wraps [io.EOF], whose
// text says nothing to users.
type hungUpError struct{}

func (hungUpError) Error() string { return "the daemon hung up before its welcome" }

func (hungUpError) Unwrap() error { return io.EOF }

// ReadWelcome returns the daemon's welcome, the first of lines. werr is the error of writing the
// greeting, or nil. With an error, too, the line is read: the daemon may have refused, and hung
// up, before. A refusal is a [*Refusal]; an answer that is not a daemon's wraps [ErrNoWelcome].
// The end of the stream wraps [io.EOF].
func ReadWelcome(lines *jsonrpc.Lines, werr error) (Welcome, error) {
	line, err := lines.Next()
	switch {
	case errors.Is(err, jsonrpc.ErrTooLong):
		return Welcome{}, fmt.Errorf("welcome: %w: %w", ErrNoWelcome, err)
	case err != nil && werr != nil:
		return Welcome{}, fmt.Errorf("greet the daemon: %w", werr)
	case errors.Is(err, io.EOF):
		return Welcome{}, hungUpError{}
	case err != nil:
		return Welcome{}, fmt.Errorf("wait for the daemon's welcome: %w", err)
	}
	return ParseWelcome(line)
}

// ParseControl reads a line for which [IsControl] is true.
func ParseControl(line []byte) (Control, error) {
	var c Control
	err := json.Unmarshal(line, &c)
	return c, err
}

// maxName bounds the names that a client gives, in bytes.
const maxName = 128

// validName takes what can be shown and logged as it is, or nothing.
func validName(s string) bool {
	return len(s) <= maxName && !strings.ContainsFunc(s, unicode.IsControl)
}

// validSession reports whether s has the length of a uuid, and nothing but its characters.
func validSession(s string) bool { return len(s) == 36 && strings.Trim(s, "0123456789abcdef-") == "" }
