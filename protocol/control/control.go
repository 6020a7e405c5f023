// Package control is what the command line asks the daemon: JSON-RPC lines
// behind a greeting of role "control", on the same socket. It holds the
// methods, their parameters and answers, and the client.
//
// The protocol is holdline's own and has no version apart from the
// greeting's: a field that one side does not know is ignored.
package control

import (
	"encoding/json"
	"time"

	"holdline/protocol/fault"
)

// Methods. Each is a request; those that take time send [Progress] first.
const (
	Status        = "status"         // [StatusParams] → [StatusAnswer]
	Telemetry     = "telemetry"      // → [TelemetryAnswer]
	Health        = "health"         // → [TelemetryAnswer]
	Stop          = "stop"           // [StopParams] → [StopAnswer], then the daemon ends
	Reload        = "reload"         // [ReloadParams] → [ReloadAnswer]
	Disconnect    = "disconnect"     // [DisconnectParams] → [DisconnectAnswer]
	Forward       = "forward"        // [ForwardParams] →: is in the status until the connection ends
	Upgrade       = "upgrade"        // → [UpgradeAnswer], or a [Progress] and the end of the connection: handed over
	Events        = "events"         // [EventsParams] →: a [Progress] for each event; ends with the connection
	Environment   = "environment"    // [EnvironmentParams] → [EnvironmentAnswer]: what programs are started with
	ConsultRun    = "consult/run"    // [ConsultParams] → [ConsultAnswer]; ends with the connection
	ConsultList   = "consult/list"   // → [ConsultListAnswer]
	ConsultShow   = "consult/show"   // [ConsultID] → [ConsultAnswer]
	ConsultWait   = "consult/wait"   // [ConsultID] → [ConsultAnswer]
	ConsultCheck  = "consult/check"  // [CheckParams] → [CheckAnswer]: can a consult run?
	ConsultRemove = "consult/remove" // [ConsultID] →: its kept answer
	ConsultCancel = "consult/cancel" // [ConsultID] → [ConsultAnswer]
	ConsultSay    = "consult/say"    // [SayParams] → [Receipt]
	ConsultClose  = "consult/close"  // [ConsultKey] →: its command has the answer
	ServerStart   = "server/start"   // [ServerParams] → [ServerAnswer]
	ServerStop    = "server/stop"    // [ServerParams] → [ServerAnswer]
	ServerRestart = "server/restart" // [ServerParams] → [ServerAnswer]
	ServerReload  = "server/reload"  // [ServerParams] → [ServerAnswer]: reads the configuration, then restarts
	ServerTools   = "server/tools"   // [ServerParams] → [ServerToolsAnswer]
	ServerAccept  = "server/accept"  // [ServerParams] → [ServerAcceptAnswer]: pins its tools as they are now
	ServerCall    = "server/call"    // [ServerCallParams] → [ServerCallAnswer]; ends with the connection
	LoginChanged  = "login/changed"  // [LoginParams] →: somebody has logged in or out
	ServerLogs    = "server/logs"    // [ServerLogsParams] → [ServerLogsAnswer]
	ProgressNote  = "progress"       // notification: [Progress]
)

// TelemetryAnswer of [Telemetry] and [Health].
type TelemetryAnswer struct {
	Text  string          `json:"text"`  // for people
	Value json.RawMessage `json:"value"` // the full snapshot
}

// StopParams of [Stop].
type StopParams struct {
	All bool `json:"all"` // end workers and consults, too
	// Uninstall is set if holdline is being removed: agents are told to start again.
	Uninstall bool `json:"uninstall,omitempty"`
}

// StopAnswer of [Stop].
type StopAnswer struct {
	PID  int    `json:"pid"`
	Lock string `json:"lock"` // the file whose lock the daemon holds to its end

	Sessions []Session `json:"sessions,omitempty"` // that are connected, and get a bye
	Workers  []Worker  `json:"workers,omitempty"`  // that may run on without a daemon
}

// ReloadParams of [Reload].
type ReloadParams struct {
	// Nothing is set if the user has confirmed that the file may say nothing, or be gone.
	Nothing bool `json:"nothing,omitempty"`
}

// ReloadAnswer of [Reload].
type ReloadAnswer struct {
	Path    string `json:"path"`             // of the configuration file
	Changed bool   `json:"changed"`          // the configuration in force is another one now
	Absent  bool   `json:"absent,omitempty"` // there is no file: the defaults are in force
	// Kept has, by server, the reason why it keeps running as before although its
	// entry has changed.
	Kept map[string]string `json:"kept,omitempty"`
	// LeftOut has, by server, what is wrong with its entry, for which it is left out.
	LeftOut map[string]string `json:"left_out,omitempty"`
}

// UpgradeAnswer of [Upgrade], if the binary is the one that runs already. If the daemon
// refuses the new binary, the answer is an error, a rollout_failure. If the new binary
// takes over, there is no answer: the client connects again and finds a later epoch.
type UpgradeAnswer struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Progress of a request that takes time.
type Progress struct {
	Message   string `json:"message"`              // "" if it says something else alone
	ConsultID string `json:"consult_id,omitempty"` // of a consult, once it is begun
	Event     *Event `json:"event,omitempty"`      // for [Events]
}

// EnvironmentParams of [Environment] are the names to look up. They do not change where
// the daemon looks.
type EnvironmentParams struct {
	Programs  []string `json:"programs,omitempty"`
	Variables []string `json:"variables,omitempty"`
}

// EnvironmentAnswer of [Environment].
type EnvironmentAnswer struct {
	Paths    []SearchPath   `json:"paths"`             // in the order of the search
	Programs []FoundProgram `json:"programs"`          // of the programs that were asked for, those that are found
	Unset    []string       `json:"unset"`             // of the variables, those that are not set
	Failure  string         `json:"failure,omitempty"` // why the login shell did not say its environment
}

// SearchPath is a part of the search path for programs, from one source.
type SearchPath struct {
	Source string   `json:"source"` // for people
	Dirs   []string `json:"dirs"`
}

// FoundProgram is where a program is.
type FoundProgram struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Source string `json:"source"` // of the directory, for people
}

// CheckParams of [ConsultCheck].
type CheckParams struct {
	Engine string   `json:"engine,omitempty"` // "" is the default one
	Logins []string `json:"logins,omitempty"` // as in [ConsultParams]
}

// CheckAnswer of [ConsultCheck].
type CheckAnswer struct {
	Engine  string        `json:"engine,omitempty"`
	Default bool          `json:"default,omitempty"`
	Path    string        `json:"path"`
	Version string        `json:"version"`
	Account string        `json:"account"` // how it is logged in, for people
	Levels  []Level       `json:"levels,omitempty"`
	Fault   *fault.Record `json:"fault,omitempty"`
}

// Level is the most that a consult may do, and the mechanism that enforces it.
type Level struct {
	Name       string   `json:"level"`
	EnforcedBy string   `json:"enforced_by,omitempty"`
	Notes      []string `json:"notes,omitempty"`
	Lacks      string   `json:"lacks,omitempty"` // why it is refused; "" if it is not
}

// Whereabouts say where the command line runs. The daemon finds by them the project whose
// server processes are meant.
type Whereabouts struct {
	Cwd     string `json:"cwd"`
	Project string `json:"project"` // key
}

// ServerParams name a hosted server.
type ServerParams struct {
	Whereabouts

	Name string `json:"name"` // "" is all of them, for [ServerTools]
	// Idle is for [ServerReload]: a server with calls in flight goes on as it is, and the answer says so.
	Idle bool `json:"idle,omitempty"`
	// Refresh is for [ServerRestart]: the server is started by its launcher, which looks for a newer version.
	Refresh bool `json:"refresh,omitempty"`
}

// LoginParams of [LoginChanged].
type LoginParams struct {
	Target string `json:"target,omitempty"` // id of what somebody has logged in to; "" is not known
	Out    bool   `json:"out,omitempty"`    // or rather out of
}

// ServerAnswer of what is done with a server.
type ServerAnswer struct {
	Processes int `json:"processes"` // that were ended by a stop, and that serve after a start
	// Busy is set if nothing was done, since calls are in flight.
	Busy bool `json:"busy,omitempty"`
}

// ServerToolsAnswer of [ServerTools].
type ServerToolsAnswer struct {
	Servers []ServerOffers `json:"servers"`
}

// ServerOffers is what one server offers.
type ServerOffers struct {
	Server string        `json:"server"`
	Tools  []ServerTool  `json:"tools"`
	Fault  *fault.Record `json:"fault,omitempty"` // why that is not known
}

// ServerTool is one tool of a server.
type ServerTool struct {
	Name     string          `json:"name"`     // the server's own
	Exposed  string          `json:"exposed"`  // as agents see it
	Contract string          `json:"contract"` // of replay
	Listing  json.RawMessage `json:"listing"`  // as the server lists it
	Pinned   *ServerPin      `json:"pinned,omitempty"`
	Changed  bool            `json:"changed"`           // it is not what was pinned
	Blocked  bool            `json:"blocked,omitempty"` // and cannot be used until it is accepted
}

// ServerPin is a tool as it was when it was first seen, or accepted.
type ServerPin struct {
	Hash        string            `json:"hash"` // SHA-256 of name, description, schemas and annotations
	Description string            `json:"description,omitempty"`
	SinceMS     int64             `json:"since_unix_ms"`
	Change      *ServerToolChange `json:"change,omitempty"` // the last one that was seen, also if it was undone
}

// ServerToolChange is how a tool was seen to differ from its pin.
type ServerToolChange struct {
	Hash        string   `json:"hash"`
	Parts       []string `json:"parts"` // description, inputSchema, outputSchema, annotations
	Description string   `json:"description,omitempty"`
	AtMS        int64    `json:"at_unix_ms"`
	UndoneMS    int64    `json:"undone_unix_ms,omitempty"` // since when the tool is as it was pinned
}

// ServerAcceptAnswer of [ServerAccept].
type ServerAcceptAnswer struct {
	Server string   `json:"server"`
	Tools  []string `json:"tools"` // that were pinned otherwise
}

// ServerCallParams of [ServerCall].
type ServerCallParams struct {
	Whereabouts

	Server    string          `json:"server"`
	Tool      string          `json:"tool"`                // the server's own name for it, or that which agents see
	Arguments json.RawMessage `json:"arguments,omitempty"` // an object
}

// ServerCallAnswer of [ServerCall] is what the server answered: one of the two.
type ServerCallAnswer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"` // JSON-RPC's
}

// ServerLogsParams of [ServerLogs].
type ServerLogsParams struct {
	Name    string           `json:"name"`            // "" for all servers
	After   map[string]int64 `json:"after,omitempty"` // by worker: where the last answer ended
	Follow  bool             `json:"follow"`          // whole lines only
	SinceMS int64            `json:"since_unix_ms,omitempty"`
	Ended   bool             `json:"ended,omitempty"` // of a server without a process, that of its last one
}

// ServerLogsAnswer of [ServerLogs].
type ServerLogsAnswer struct {
	Logs []ServerLog   `json:"logs"`
	Last *fault.Record `json:"last,omitempty"` // of a process that ended or did not start

	Disabled bool `json:"disabled,omitempty"` // the server is, so there is only the log of its last process
}

// ServerLog is what one process wrote to stderr.
type ServerLog struct {
	Server  string    `json:"server"`
	Worker  string    `json:"worker"`
	PID     int       `json:"pid"`
	Root    string    `json:"root"` // of its project, "" if it has none
	Text    string    `json:"text"`
	Next    int64     `json:"next"`                    // for After
	Times   []LogTime `json:"times,omitempty"`         // of the lines of Text, unless After named the worker
	EndedMS int64     `json:"ended_unix_ms,omitempty"` // when the process ended; 0 while it runs
}

// LogTime says when the lines of a text were written from one on, about a second exact.
type LogTime struct {
	Line   int   `json:"line"`
	UnixMS int64 `json:"unix_ms"`
}

// StatusParams of [Status].
type StatusParams struct {
	// Memory asks how much memory the processes take. That may take half a second. Without
	// it those fields of the answer are 0.
	Memory bool `json:"memory,omitempty"`
}

// Recent is how long a failure that is over is worth a word to people who ask how all is.
const Recent = 15 * time.Minute

// StatusAnswer is what `holdline status --json` prints.
type StatusAnswer struct {
	Daemon   Daemon    `json:"daemon"`
	Sessions []Session `json:"sessions"`
	Workers  []Worker  `json:"workers"`
	Servers  []Server  `json:"servers"`
	Consults Consults  `json:"consults"`
	Cache    Cache     `json:"cache"`
	Runtime  Runtime   `json:"runtime"`
	Sockets  []Socket  `json:"sockets,omitempty"` // of guests
	LeftOut  []LeftOut `json:"left_out,omitempty"`
	// Differs is only in the answer to [Status].
	Differs []Difference `json:"differs,omitempty"`
}

// Difference is a variable by which a server chooses what it works on, and of which an agent that uses the server
// has another value than the server was started with.
type Difference struct {
	Server   string `json:"server"`
	Variable string `json:"variable"`
	Project  string `json:"project"` // directory of the agent
	Session  string `json:"session"` // id
}

// Words returns the difference, and what to do about it, for people.
func (d *Difference) Words() (what, fix string) {
	return "works with another " + d.Variable + " than the agent in " + d.Project + " has",
		"if the agent's is right there, write it into the entry's env, or set it for your login shell; then: " +
			"holdline servers restart " + d.Server
}

// LeftOut is a server of the configuration that is not served, although nobody has switched it off.
type LeftOut struct {
	Name string `json:"name"`
	Why  string `json:"why"` // for people: what is wrong with its entry, and what to do
}

// Cache counts looks into the cache of answers of hosted servers, since the
// daemon has started, and what it holds.
type Cache struct {
	Hits    int64 `json:"hits"`
	Misses  int64 `json:"misses"`
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Daemon describes the daemon.
type Daemon struct {
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Epoch     int64  `json:"epoch"` // generation of the daemon, counted in its runtime directory
	UptimeMS  int64  `json:"uptime_ms"`
	Socket    string `json:"socket"`
	StartedBy string `json:"started_by"`        // systemd, launchd, proxy or shell
	Rollout   string `json:"rollout"`           // stable, pending, reloading or rejected
	Refusal   string `json:"refusal,omitempty"` // why it is rejected, for people
	Config    string `json:"config"`
	// ConfigRefused is why that file is not in force, for people; its last good state is.
	ConfigRefused string `json:"config_refused,omitempty"`
	// ConfigCopy is the path of the copy of the file's last good state, if the daemon
	// has read that because the file was refused when it started.
	ConfigCopy string `json:"config_copy,omitempty"`

	NotReady string `json:"not_ready,omitempty"` // why requests may fail now, for people
	Degraded string `json:"degraded,omitempty"`  // what does not work, for people

	MemoryBytes int64 `json:"memory_bytes,omitempty"`
}

// Session describes one connected agent.
type Session struct {
	ID       string `json:"id"`
	Identity string `json:"identity"`
	Client   string `json:"client"`
	Era      string `json:"era"`
	Project  string `json:"project"`
	Cwd      string `json:"cwd"`
	PID      int    `json:"pid"`
	State    string `json:"state"` // attached or detached
	InFlight int    `json:"in_flight"`
	Calls    int64  `json:"calls"`
	SinceMS  int64  `json:"since_ms"` // age
	Proxy    string `json:"proxy"`    // version of the proxy

	ClientPID int    `json:"client_pid"`       // process that started the proxy; 0 if it is not known
	Server    string `json:"server"`           // the one that the session is for; "" if it is for all
	View      string `json:"view,omitempty"`   // that the session has chosen
	Socket    string `json:"socket,omitempty"` // of the configuration by which a guest came

	MemoryBytes int64 `json:"memory_bytes,omitempty"` // of the proxy
}

// Uses returns what the session uses of the servers, for people: the server that it is for, or all, and
// the view that it has.
func (s *Session) Uses(all string) string {
	if s.Server != "" {
		all = s.Server
	}
	if s.View != "" {
		return all + " in view " + s.View
	}
	return all
}

// Worker describes one worker process.
type Worker struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"` // server or consult
	Name       string `json:"name"`
	PID        int    `json:"pid"`
	ChildPID   int    `json:"child_pid"`
	Generation int64  `json:"generation"`
	State      string `json:"state"` // starting, ready, recovering or stopping
	Attached   bool   `json:"attached"`
	Host       string `json:"host,omitempty"`   // where it runs, if not here; its pids are 0 then
	RTTUS      int64  `json:"rtt_us,omitempty"` // how long the last question to Host and its answer took
	// Unreachable says why Host does not answer. It is empty if the worker is attached.
	Unreachable string `json:"unreachable,omitempty"`

	OSProcesses  int   `json:"os_processes,omitempty"`        // its child and what that has started
	MemoryBytes  int64 `json:"memory_bytes,omitempty"`        // of them
	PrivateBytes int64 `json:"private_bytes,omitempty"`       // the part that one more of the same would need, too
	WorkerBytes  int64 `json:"worker_memory_bytes,omitempty"` // of the worker itself
}

// Server describes one hosted server.
type Server struct {
	Name  string `json:"name"`
	Scope string `json:"scope"` // project, shared or session
	// State is idle, starting, ready, not answering, recovering, unreachable, failed, ejected, stopped or [NeedsLogin].
	State         string        `json:"state"`
	Active        bool          `json:"active"` // a process of it runs
	Lazy          bool          `json:"lazy"`
	RefCount      int           `json:"ref_count"`     // sessions that share its processes
	Processes     int           `json:"processes"`     // that run
	Restarts      int           `json:"restart_count"` // in the window of its budget
	Failures      int           `json:"consecutive_failures"`
	Circuit       string        `json:"circuit"` // closed, open or half_open
	Ejected       bool          `json:"ejected"`
	Suspect       bool          `json:"suspect,omitempty"`               // it left a call without an answer, and the daemon pings it
	SilentMS      int64         `json:"not_answering_unix_ms,omitempty"` // since then it has left a ping without an answer
	InFlight      int           `json:"in_flight"`                       // calls
	Queued        int           `json:"queued"`                          // calls that wait for their turn
	CacheCount    int           `json:"cache_entries"`
	Tools         *int          `json:"tools"`                     // null if it was never listed
	Blocked       bool          `json:"changed_blocked,omitempty"` // changed tools cannot be used until they are accepted
	Changed       int           `json:"changed_tools"`             // tools that differ from when they were first seen
	PinsLost      string        `json:"pins_lost,omitempty"`       // file that had its pins and is damaged, until the user accepts its tools
	NoiseLines    int64         `json:"noise_lines"`               // lines on stdout that were no messages
	Notes         []string      `json:"notes,omitempty"`           // offers that sessions do not get, and why; for people
	LastFault     *fault.Record `json:"last_fault"`                // of its process; null after a start by hand
	LastFaultMS   int64         `json:"last_fault_unix_ms,omitempty"`
	FaultOver     bool          `json:"last_fault_over,omitempty"` // a process has served since
	Load          Load          `json:"load"`
	Host          string        `json:"host,omitempty"`                // where it runs, if not here
	Unreachable   string        `json:"unreachable,omitempty"`         // why Host, or a remote server, does not answer
	UnreachableMS int64         `json:"unreachable_unix_ms,omitempty"` // since then a remote server does not
	Transport     string        `json:"transport"`                     // stdio, http or sse; elsewhere for one with a host
	Login         *Login        `json:"login,omitempty"`               // of a remote server
	Confine       string        `json:"confine,omitempty"`             // read or project
	HeldBy        string        `json:"held_by,omitempty"`             // what holds a confined server; for people

	Limits       string `json:"limits,omitempty"`         // of what it may use of the machine; for people
	LimitsHeldBy string `json:"limits_held_by,omitempty"` // what holds those of its processes; for people

	Sessions     []string `json:"sessions,omitempty"`      // ids of those that RefCount counts, without commands
	OSProcesses  int      `json:"os_processes,omitempty"`  // its processes and what they have started
	MemoryBytes  int64    `json:"memory_bytes,omitempty"`  // of them
	PrivateBytes int64    `json:"private_bytes,omitempty"` // the part that as many more would need, too

	// What the launchers of its processes, such as npx, would take, where these are started without them.
	SparedProcesses int   `json:"spared_processes,omitempty"`
	SparedBytes     int64 `json:"spared_bytes,omitempty"`
}

// NeedsLogin is the state of a server to which a user must log in first.
const NeedsLogin = "needs login"

// Login is the login of a remote server. It holds no secret.
type Login struct {
	// State is none (the server has asked for no login), needs_login, logged_in,
	// renewal_failing, or locked (the key of the login's file cannot be had).
	State     string   `json:"state"`
	Account   string   `json:"account,omitempty"` // as whom, or as the configuration names it
	Issuer    string   `json:"issuer,omitempty"`
	Resource  string   `json:"resource,omitempty"`
	Scopes    []string `json:"scopes,omitempty"`        // granted
	Wanted    []string `json:"wanted_scopes,omitempty"` // that calls were refused for
	ExpiresMS int64    `json:"expires_unix_ms,omitempty"`
	Renews    bool     `json:"renews"`
	Why       string   `json:"why,omitempty"` // for people
	SinceMS   int64    `json:"since_unix_ms,omitempty"`
	NextTryMS int64    `json:"next_try_unix_ms,omitempty"` // while it cannot be renewed
}

// Load counts the tool calls of a server since the daemon has started.
type Load struct {
	Calls  int64   `json:"calls"`
	Errors int64   `json:"errors"`
	P50MS  float64 `json:"p50_ms"`
}

// Consults counts jobs.
type Consults struct {
	Running int `json:"running"`
	Queued  int `json:"queued"`
	Kept    int `json:"kept"`

	RecentFailures int    `json:"recent_failures,omitempty"` // that failed within [Recent], or could not run
	LastFailure    string `json:"last_failure,omitempty"`    // why the last of those did, for people

	Unwritten []Unwritten `json:"unwritten,omitempty"` // files that could not be written
	Unread    []string    `json:"unread,omitempty"`    // why directories could not be read, for people

	// CostsLost is the file of what consults have cost, if it was damaged today: budgets count as used up.
	CostsLost string `json:"costs_lost,omitempty"`

	Today  []Spending `json:"today"`            // of those who have asked today
	Window *Window    `json:"window,omitempty"` // of the subscription, as last heard of
}

// Unwritten is a file of a consult that could not be written whole, for example since the
// disk was full.
type Unwritten struct {
	Path   string `json:"path"`
	UnixMS int64  `json:"unix_ms"`
	// InMemory says that the daemon has the only copy. It writes the file once it can.
	InMemory bool `json:"in_memory"`
}

// Spending is what the consults of an identity have cost today.
type Spending struct {
	Identity    string  `json:"identity"`
	CostUSD     float64 `json:"cost_usd"` // as far as the programs tell it
	Consults    int     `json:"consults"`
	MaxUSD      float64 `json:"max_usd,omitempty"` // budget of a day
	MaxConsults int     `json:"max_consults,omitempty"`
}

// Window is how much of a subscription is used up.
type Window struct {
	Kind    string  `json:"kind"`
	Status  string  `json:"status"`
	Used    float64 `json:"used"` // share, from 0 to 1
	ResetMS int64   `json:"reset_unix_ms,omitempty"`
	Text    string  `json:"text"` // for people
}

// Runtime describes the daemon's process.
type Runtime struct {
	Goroutines int   `json:"goroutines"`
	HeapBytes  int64 `json:"heap_bytes"`
	Allocs     int64 `json:"allocs"`      // objects on the heap, ever
	AllocBytes int64 `json:"alloc_bytes"` // of them
	FDs        int   `json:"fds"`
}
