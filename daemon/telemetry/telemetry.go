// Package telemetry counts requests, computes the health of the daemon, and writes a
// line for each tool call to a log that it rotates.
//
// The other parts report to it, and it imports none of them. A [Recorder] is safe for
// concurrent use. It owns one file, the log, and no goroutine except for the timer of
// that log. All that it keeps is bounded, whatever names clients invent. It never sees
// a prompt. Of arguments it keeps at most one path, and only if the configuration asks
// for paths.
package telemetry

import (
	"cmp"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/protocol/fault"
)

// Bounds of the tables that a recorder keeps, in entries.
const (
	maxOperations = 1024
	maxSessions   = 1024
	maxIdentities = 256
	maxWorkers    = 4096
)

// Names that stand for several.
const (
	unknown = "(unknown)" // methods that do not exist
	other   = "(other)"   // those used least recently, beyond the bound
)

// toolsCall is the method of a tool call.
const toolsCall = "tools/call"

// An Operation is what requests are counted by. Its names must be those of methods,
// servers and tools that exist: with names that a client has invented the table would
// fill with rubbish.
type Operation struct {
	Method string // "" if there is no such method
	Server string // hosted server that served it; "" for the daemon itself
	Tool   string // as the server names it; "" if it is no tool call
}

// String returns "tools/call:SERVER__TOOL", "tools/call:TOOL" for a tool of the
// daemon, or the method, followed by ":SERVER" if a hosted server served it.
func (o Operation) String() string {
	if o.Method == "" {
		return unknown
	}
	name := o.Server + "__" + o.Tool
	if o.Server == "" || o.Tool == "" {
		name = o.Server + o.Tool
	}
	if name == "" {
		return o.Method
	}
	return o.Method + ":" + name
}

// State is the state of the daemon or of a part of it.
type State string

// The states. If parts have different states, the worst one counts. Cold is the best: a
// part that has never run does not make the whole cold.
const (
	Cold       State = "cold"
	Ready      State = "ready"
	Starting   State = "starting"
	Recovering State = "recovering"
)

// byBadness lists the states from best to worst.
var byBadness = []State{Cold, Ready, Starting, Recovering}

// Rollout is the state of the replacement of the daemon's program.
type Rollout string

// The states of a rollout.
const (
	Stable    Rollout = "stable"
	Pending   Rollout = "pending"
	Reloading Rollout = "reloading"
	Rejected  Rollout = "rejected"
)

// Daemon identifies the process.
type Daemon struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Epoch   int64  `json:"epoch"`
}

// Options are the settings of a [Recorder].
type Options struct {
	Log    *slog.Logger // gets the failures and the recovery of the call log; may be nil
	Daemon Daemon
	// Executable is the path that the daemon was started by.
	Executable string
	// Generation is the number of worker starts on the same state directory before this
	// daemon.
	Generation int64
	Rollouts   int64 // hand-overs that led to this program

	Path     string // of the call log, its directory made 0700; "" writes none
	Paths    bool   // the log names the project's root and a path of the call
	MaxBytes int64  // of the log before it is rotated; 0 for 8 MiB
	Keep     int    // rotated logs that are kept; 0 for 3, negative for none

	// LogDelay is how long a line may wait for others, so that one system call writes
	// them together; 0 writes each at once. Lines that wait are lost if the process is
	// killed.
	LogDelay time.Duration
}

// Recorder counts what the parts of the daemon report, and returns health and counts.
// Make it with [New].
type Recorder struct {
	o      Options
	begin  time.Time
	stable bool // launch path
	log    *callLog

	mu          sync.Mutex // guards the fields that follow
	serving     bool
	rollout     Rollout
	refusal     *fault.Record // why the rollout was rejected; nil in other states
	generation  int64
	restarts    int64
	workers     map[string]State // see setWorker
	faulty      bool             // a transport fault has come, and no work has succeeded since
	consecutive int64
	lastFault   *fault.Record
	totals      counts
	operations  map[Operation]*counts
	sessions    map[string]*session
	identities  map[string]*counts
}

// session counts the calls of one session.
type session struct {
	number   int64
	identity string
	client   string
	counts
}

// New returns a recorder. The caller must close it. The health is not ready until
// [Recorder.SetServing] is called.
func New(o Options) *Recorder {
	return &Recorder{
		o: o, begin: time.Now(), stable: stableLaunchPath(o.Executable),
		log:     newCallLog(o),
		rollout: Stable, generation: o.Generation,
		workers:    map[string]State{},
		operations: map[Operation]*counts{},
		sessions:   map[string]*session{},
		identities: map[string]*counts{},
	}
}

var _ io.Closer = (*Recorder)(nil)

// Close closes the call log. Later calls are counted but not logged.
func (r *Recorder) Close() error { return r.log.Close() }

// Request counts one request, which took the time took and was replayed that many
// times. A nil fault is a success.
//
// Work that succeeds clears the last fault. A fault that the client has caused or
// wanted does not change the health. A transport fault makes the daemon recovering,
// except for one of a hosted server: the health lists that server as unwell.
func (r *Recorder) Request(op Operation, took time.Duration, replays int, f *fault.Record) {
	if f != nil {
		copied := *f
		f = &copied
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.countRequest(took, replays, f)
	counter(r.operations, op, maxOperations, Operation{Method: other}).countRequest(took, replays, f)
	switch {
	case f == nil:
		if isWork(op) {
			r.faulty, r.consecutive, r.lastFault = false, 0, nil
		}
	case f.IsOwn(): // the client has caused or wanted it
	default:
		r.consecutive++
		r.lastFault = f
		if f.IsTransport() && f.Stage != fault.Server { // the health names a hosted server that fails
			r.faulty = true
		}
	}
}

// isWork reports whether a success of op proves that things work. Pings, lists and
// handshakes prove nothing. A look at the health must not change the health.
func isWork(op Operation) bool {
	switch op.Method {
	case "resources/read", "prompts/get":
		return true
	case toolsCall:
		return op.Server != "" || op.Tool != "health_snapshot" && op.Tool != "telemetry_snapshot"
	}
	return false
}

// counter returns the counts of key, which it adds to all if they are missing. If all
// has most keys already, it merges the counts that were used least recently into those
// of the key rest. That key comes on top of the number.
func counter[K comparable](all map[K]*counts, key K, most int, rest K) *counts {
	if c := all[key]; c != nil {
		return c
	}
	if len(all) >= most {
		oldest := leastRecent(all, rest, func(c *counts) time.Time { return c.at })
		merged := all[oldest]
		delete(all, oldest)
		if all[rest] == nil {
			all[rest] = &counts{}
		}
		all[rest].merge(merged)
	}
	c := &counts{}
	all[key] = c
	return c
}

// leastRecent returns the key with the earliest time. It never returns the key except.
func leastRecent[K comparable, V any](all map[K]V, except K, at func(V) time.Time) K {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(all)), func(key K) bool { return key == except })
	return slices.MinFunc(keys, func(a, b K) int { return at(all[a]).Compare(at(all[b])) })
}

// ToolCall counts a call for its session and identity, and writes its line to the log.
// A failure of the log shows in the health alone.
func (r *Recorder) ToolCall(c Call) {
	r.count(&c)
	r.log.logCall(&c)
}

// count counts a call for its identity and, if it has one, its session. A new session
// beyond [maxSessions] replaces the one that was used least recently.
func (r *Recorder) count(c *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	identity := kept(c.Identity)
	counter(r.identities, identity, maxIdentities, other).countRequest(c.Took, c.Replays, c.Fault)

	if c.Session == "" {
		return
	}
	key := kept(c.Session)
	s := r.sessions[key]
	if s == nil {
		if len(r.sessions) >= maxSessions {
			delete(r.sessions, leastRecent(r.sessions, "", func(s *session) time.Time { return s.at }))
		}
		s = &session{}
		r.sessions[key] = s
	}
	s.number, s.identity, s.client = c.Number, identity, kept(c.Client)
	s.countRequest(c.Took, c.Replays, c.Fault)
}

// SessionEnded forgets the counts of the session with that hash. The counts of its
// identity stay.
func (r *Recorder) SessionEnded(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, bounded(hash, maxField))
}

// Through writes all lines of the call log that wait, and sets whether each line is
// written at once from now on. The daemon calls it before another program replaces the
// process: lines in memory would be lost.
func (r *Recorder) Through(on bool) { r.log.Through(on) }

// Bound sets the size in bytes at which the call log is rotated, and how many rotated
// files are kept, as in [Options].
func (r *Recorder) Bound(maxBytes int64, keep int) { r.log.Bound(maxBytes, keep) }

// ShowPaths sets whether the call log names paths from now on. When that is switched
// off, the recorder forgets the paths that it has counted.
func (r *Recorder) ShowPaths(show bool) { r.log.showPaths(show) }

// SetServing records whether the daemon can serve handshakes.
func (r *Recorder) SetServing(serving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = serving
}

// SetRollout records the state of the replacement of the program, and with [Rejected] why
// the daemon does not use the new one. That is the last fault until the state changes or
// another request fails.
func (r *Recorder) SetRollout(state Rollout, refusal *fault.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastFault == r.refusal {
		r.lastFault = nil
	}
	r.lastFault = cmp.Or(refusal, r.lastFault)
	r.rollout, r.refusal = state, refusal
}

// WorkerStarting records that the worker id is being started. generation is the number
// of worker starts since the state directory was created; the health shows the highest
// one. The start of a worker that was lost counts as a restart, and that worker stays
// missing until it is ready.
func (r *Recorder) WorkerStarting(id string, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation = max(r.generation, generation)
	if r.workers[id] == Recovering {
		r.restarts++
		return
	}
	r.setWorker(id, Starting)
}

// WorkerReady records that the worker id runs. It may have been started or adopted.
func (r *Recorder) WorkerReady(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers[id] == Recovering {
		r.faulty = false // what had failed is back
	}
	r.setWorker(id, Ready)
}

// WorkerLost records that the worker id ended unexpectedly. restarts says whether it
// will be started again; until then the health reports it as missing.
func (r *Recorder) WorkerLost(id string, restarts bool) {
	if !restarts {
		r.WorkerEnded(id)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setWorker(id, Recovering)
}

// WorkerEnded records that the worker id ended as it should, or was given up.
func (r *Recorder) WorkerEnded(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, id)
}

// setWorker records the state of a worker. The caller must hold mu.
//
//	state       event     next
//	(none)      starting  Starting
//	any         ready     Ready
//	any         lost      Recovering; (none) if it is not started again
//	Recovering  starting  Recovering, so that it is missing until it is ready
//	any         ended     (none)
//
// A new worker beyond [maxWorkers] is not recorded.
func (r *Recorder) setWorker(id string, state State) {
	if r.workers[id] != "" || len(r.workers) < maxWorkers {
		r.workers[id] = state
	}
}

// stableLaunchPath reports whether an executable lies outside of the directories of
// builds. In these it may vanish or change at any moment.
func stableLaunchPath(executable string) bool {
	for part := range strings.SplitSeq(executable, "/") {
		if part == "tmp" || part == "target" || strings.HasPrefix(part, "go-build") {
			return false
		}
	}
	return !strings.HasSuffix(executable, " (deleted)")
}

// maxField bounds the names that are kept, in bytes.
const maxField = 128

// bounded returns s, cut to at most limit bytes, without invalid UTF-8.
func bounded(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// kept returns a copy of a name that shares no memory with it: s may be part of a long line
// that must not be kept. The copy is cut to [maxField] bytes.
func kept(s string) string { return strings.Clone(bounded(s, maxField)) }
