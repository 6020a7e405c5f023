// Package telemetry counts requests, computes the health of the daemon, and writes a line
// for every tool call to a log that is rotated.
//
// The other parts report to it, and it imports none of them. A [Recorder] is safe for
// concurrent use, starts no goroutine and owns one file, the log. All that it keeps is
// bounded, whatever names clients invent. It never sees a prompt. Of arguments it keeps at
// most one path, and only if the configuration asks for paths.
package telemetry

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"holdline/protocol/fault"
)

// Bounds of what a recorder keeps.
const (
	maxOperations = 1024
	maxSessions   = 1024
	maxIdentities = 256
	maxWorkers    = 4096
)

// Names in the place of several.
const (
	unknown = "(unknown)" // methods that do not exist
	other   = "(other)"   // those used least recently, beyond the bound
)

// toolsCall is the method of a tool call.
const toolsCall = "tools/call"

// An Operation is what requests are counted by. Its names are of things that exist, never
// names that a client has invented.
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

// State is how well the daemon, or a part of it, is.
type State string

// The states. If parts have different ones, the worst counts; Cold is the best, since a
// part that never ran is no reason to call the whole cold.
const (
	Cold       State = "cold"
	Ready      State = "ready"
	Starting   State = "starting"
	Recovering State = "recovering"
)

// byBadness lists the states from best to worst.
var byBadness = []State{Cold, Ready, Starting, Recovering}

// Rollout is the state of the replacement of the binary.
type Rollout string

// The states of a rollout.
const (
	Stable    Rollout = "stable"
	Pending   Rollout = "pending"
	Reloading Rollout = "reloading"
	Rejected  Rollout = "rejected"
)

// Daemon names the process.
type Daemon struct {
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Epoch   int64  `json:"epoch"`
}

// Options are a recorder's settings.
type Options struct {
	Log    *slog.Logger // told when the call log begins to fail and when it works again; nil for nobody
	Daemon Daemon
	// Executable is the path that the daemon was started by.
	Executable string
	// Generation and Rollouts were counted by earlier daemons on the same
	// state directory; 0 if they are not known.
	Generation int64
	Rollouts   int64

	Path     string // of the call log, its directory made 0700; "" writes none
	Paths    bool   // the log names the project's root and a path of the call
	MaxBytes int64  // of the log before it is rotated; 0 for 8 MiB
	Keep     int    // rotated logs that are kept; 0 for 3, negative for none

	// LogDelay is how long a line may wait for others, to be written with them;
	// 0 for not at all. What waits is lost if the process is killed.
	LogDelay time.Duration
}

// Recorder counts what the parts of the daemon report, and returns the health and the
// counts. Make it with [New].
type Recorder struct {
	o      Options
	begin  time.Time
	stable bool // launch path
	log    *callLog

	mu          sync.Mutex // guards the fields that follow
	serving     bool
	rollout     Rollout
	refusal     *fault.Record // why the rollout was rejected; nil in other states
	rollouts    int64
	generation  int64
	restarts    int64
	workers     map[string]State // see setWorker
	faulty      bool             // the last failure of work was a transport fault, and none has succeeded since
	consecutive int64
	lastFault   *fault.Record
	totals      counts
	operations  map[Operation]*counts
	sessions    map[string]*session
	identities  map[string]*counts
	hits        int64
	misses      int64
}

// session counts the calls of one.
type session struct {
	number   int64
	identity string
	client   string
	counts
}

// New returns a recorder, which the caller must close. The health is not ready before
// [Recorder.SetServing].
func New(o Options) *Recorder {
	return &Recorder{
		o: o, begin: time.Now(), stable: StableLaunchPath(o.Executable),
		log:     newCallLog(o),
		rollout: Stable, rollouts: o.Rollouts, generation: o.Generation,
		workers:    map[string]State{},
		operations: map[Operation]*counts{},
		sessions:   map[string]*session{},
		identities: map[string]*counts{},
	}
}

var _ io.Closer = (*Recorder)(nil)

// Close closes the call log. Later calls are counted, and not logged.
func (r *Recorder) Close() error { return r.log.Close() }

// Request counts one request, which was run again so many times. A nil fault is a success.
func (r *Recorder) Request(op Operation, took time.Duration, replays int, f *fault.Record) {
	if f != nil {
		copied := *f
		f = &copied
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.totals.add(took, replays, f)
	counter(r.operations, op, maxOperations, Operation{Method: other}).add(took, replays, f)
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

// isWork reports whether a success proves that things work. Pings, lists and
// handshakes prove nothing, and looking at the health must not change it.
func isWork(op Operation) bool {
	switch op.Method {
	case "resources/read", "prompts/get":
		return true
	case toolsCall:
		return op.Server != "" || op.Tool != "health_snapshot" && op.Tool != "telemetry_snapshot"
	}
	return false
}

// counter returns the counts of key in all, and adds them if there are none. If all has
// most keys, the one that was counted least recently is merged into rest, which comes
// on top of that number.
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

// leastRecent returns the key with the earliest time, but not the key except.
func leastRecent[K comparable, V any](all map[K]V, except K, at func(V) time.Time) K {
	var oldest K
	var first time.Time
	for key, v := range all {
		if t := at(v); key != except && (first.IsZero() || t.Before(first)) {
			oldest, first = key, t
		}
	}
	return oldest
}

// ToolCall counts a call for its session and identity, and logs it. The health shows
// failures of the log.
func (r *Recorder) ToolCall(c Call) {
	r.count(&c)
	r.log.logCall(&c)
}

// count counts a call for its identity and its session.
func (r *Recorder) count(c *Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	identity := bounded(c.Identity, maxField)
	counter(r.identities, identity, maxIdentities, other).add(c.Took, c.Replays, c.Fault)

	if c.Session == "" {
		return
	}
	key := bounded(c.Session, maxField)
	s := r.sessions[key]
	if s == nil {
		if len(r.sessions) >= maxSessions {
			delete(r.sessions, leastRecent(r.sessions, "", func(s *session) time.Time { return s.at }))
		}
		s = &session{}
		r.sessions[key] = s
	}
	s.number, s.identity, s.client = c.Number, identity, bounded(c.Client, maxField)
	s.add(c.Took, c.Replays, c.Fault)
}

// SessionEnded forgets the counts of the session with that hash.
func (r *Recorder) SessionEnded(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, bounded(hash, maxField))
}

// Cache counts a request to the cache of answers.
func (r *Recorder) Cache(hit bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hit {
		r.hits++
	} else {
		r.misses++
	}
}

// Through writes all lines of the call log and makes it write each at once, as is needed
// before the process is replaced. With false lines wait for others again.
func (r *Recorder) Through(on bool) { r.log.Through(on) }

// Bound sets at how many bytes the call log is rotated, and how many rotated files are
// kept, as in [Options].
func (r *Recorder) Bound(maxBytes int64, keep int) { r.log.Bound(maxBytes, keep) }

// ShowPaths says whether the call log names paths from now on. If not, the paths that were
// counted are forgotten.
func (r *Recorder) ShowPaths(show bool) { r.log.showPaths(show) }

// SetServing records whether handshakes can be served.
func (r *Recorder) SetServing(serving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = serving
}

// SetRollout records the state of the replacement of the binary.
func (r *Recorder) SetRollout(state Rollout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastFault == r.refusal {
		r.lastFault = nil
	}
	r.rollout, r.refusal = state, nil
}

// RolloutRejected records why the new binary is not used. Until the state changes, that is
// the last fault, unless a call has failed since.
func (r *Recorder) RolloutRejected(f *fault.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rollout, r.refusal = Rejected, f
	r.lastFault = f
}

// RolledOut counts a replacement of the binary.
func (r *Recorder) RolledOut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rollouts++
}

// WorkerStarting says that the worker id is being started. The generation is the number
// of starts since the state directory was created; the highest one is shown. A start of
// a worker that was lost counts as a restart.
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

// WorkerReady says that the worker id runs, be it started or adopted.
func (r *Recorder) WorkerReady(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers[id] == Recovering {
		r.faulty = false // what had failed is back
	}
	r.setWorker(id, Ready)
}

// WorkerLost says that the worker id ended when it should not have, and whether it will
// be started again. Until then it is missing.
func (r *Recorder) WorkerLost(id string, restarts bool) {
	if !restarts {
		r.WorkerEnded(id)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setWorker(id, Recovering)
}

// WorkerEnded says that the worker id ended as it should, or was given up.
func (r *Recorder) WorkerEnded(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, id)
}

// setWorker records the state of a worker. The caller holds mu.
//
//	state       event     next
//	(none)      starting  Starting
//	any         ready     Ready
//	any         lost      Recovering; (none) if it is not started again
//	Recovering  starting  Recovering, so that it is missing until it is ready
//	any         ended     (none)
//
// Of more than maxWorkers workers the further ones are not recorded.
func (r *Recorder) setWorker(id string, state State) {
	if r.workers[id] != "" || len(r.workers) < maxWorkers {
		r.workers[id] = state
	}
}

// StableLaunchPath reports whether an executable is outside of directories of builds, where
// it may vanish or change at any moment.
func StableLaunchPath(executable string) bool {
	for part := range strings.SplitSeq(executable, "/") {
		if part == "tmp" || part == "target" || strings.HasPrefix(part, "go-build") {
			return false
		}
	}
	return !strings.HasSuffix(executable, " (deleted)")
}

// maxField bounds the names that are kept, in bytes.
const maxField = 128

// bounded returns a copy of s, cut to at most limit bytes of valid UTF-8. It
// shares no memory with s, which may be part of a long line.
func bounded(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Clone(strings.ToValidUTF8(s, ""))
}
