// Package telemetry counts what is done, knows how well the daemon is, and
// writes one line for every tool call to a log that rotates.
//
// It is told by others and imports none of them. A [Recorder] is safe for any
// number of goroutines, starts none itself and owns one file, the log. All
// that it keeps is bounded, whatever names clients make up. It never sees a
// prompt, and of arguments it keeps at most one path, if that is asked for.
package telemetry

import (
	"cmp"
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

// Names that stand for many.
const (
	unknown = "(unknown)" // methods that do not exist
	other   = "(other)"   // what was used least recently, beyond the bound
)

// toolsCall is the method of a tool call.
const toolsCall = "tools/call"

// An Operation is what requests are counted by. All its names are of things
// that exist: a name that a client made up is never one of them.
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

// The states, from best to worst when more than one part has one: a part that
// never ran is no reason to call the whole cold.
const (
	Cold       State = "cold"
	Ready      State = "ready"
	Starting   State = "starting"
	Recovering State = "recovering"
)

// Rollout is where the replacement of the binary stands.
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

// fill sets the defaults of a log.
func (o *Options) fill() {
	o.MaxBytes = cmp.Or(o.MaxBytes, 8<<20)
	o.Keep = max(cmp.Or(o.Keep, 3), 0)
}

// Recorder is told what happens and tells how things are.
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
	workers     map[string]*worker
	faulty      bool // the last failure of work was a transport fault, and none has succeeded since
	consecutive int64
	lastFault   *fault.Record
	totals      counts
	operations  map[Operation]*counts
	sessions    map[string]*session
	identities  map[string]*counts
	hits        int64
	misses      int64
}

// worker is one that runs, or that should run again.
type worker struct {
	state State
	lost  bool // it does not run, and something is about to start it again
}

// session counts the calls of one.
type session struct {
	number   int64
	identity string
	client   string
	last     time.Time
	counts
}

// New makes a recorder. It serves nothing yet: see [Recorder.SetServing]. The
// caller closes it.
func New(o Options) *Recorder {
	o.fill()
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Recorder{
		o: o, begin: time.Now(), stable: StableLaunchPath(o.Executable),
		log:     newCallLog(o),
		rollout: Stable, rollouts: o.Rollouts, generation: o.Generation,
		workers:    map[string]*worker{},
		operations: map[Operation]*counts{},
		sessions:   map[string]*session{},
		identities: map[string]*counts{},
	}
}

var _ io.Closer = (*Recorder)(nil)

// Close closes the call log. What is told afterwards is counted, not logged.
func (r *Recorder) Close() error { return r.log.close() }

// Request counts one request. A nil fault is a success. Replays is how often it
// was run again.
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
	case f.IsOwn(): // the client's doing or wish, nobody's failure
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

// counter returns the counts of key in all, and makes them if there are none.
// If all has as many as most, those that were added to least recently are
// merged into the counts of rest first, which come on top of that many.
func counter[K comparable](all map[K]*counts, key K, most int, rest K) *counts {
	if c := all[key]; c != nil {
		return c
	}
	if len(all) >= most {
		var oldest K
		var c *counts
		for k, one := range all {
			if k != rest && (c == nil || one.at.Before(c.at)) {
				oldest, c = k, one
			}
		}
		delete(all, oldest)
		if all[rest] == nil {
			all[rest] = &counts{}
		}
		all[rest].merge(c)
	}
	c := &counts{}
	all[key] = c
	return c
}

// ToolCall counts a call for its session and identity, and logs it. The log
// is written before it returns; a failure is counted and shown in the health.
func (r *Recorder) ToolCall(c Call) {
	r.count(&c)
	r.log.toolCall(&c)
}

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
			r.dropOldest()
		}
		s = &session{}
		r.sessions[key] = s
	}
	s.number, s.identity, s.client = c.Number, identity, bounded(c.Client, maxField)
	s.last = time.Now()
	s.add(c.Took, c.Replays, c.Fault)
}

// dropOldest forgets the session that called least recently; mu is held.
func (r *Recorder) dropOldest() {
	var oldest string
	var at time.Time
	for key, s := range r.sessions {
		if oldest == "" || s.last.Before(at) {
			oldest, at = key, s.last
		}
	}
	delete(r.sessions, oldest)
}

// SessionEnded forgets the counters of a session, named by its hash.
func (r *Recorder) SessionEnded(hash string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, bounded(hash, maxField))
}

// Cache counts a look into the cache of answers.
func (r *Recorder) Cache(hit bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hit {
		r.hits++
	} else {
		r.misses++
	}
}

// Through has all lines of the call log written, and from now on each at once, as
// before the process is replaced; with false they wait for others again.
func (r *Recorder) Through(on bool) { r.log.through(on) }

// Bound says how many bytes the call log has from now on before it is rotated,
// and how many rotated ones are kept, as in [Options].
func (r *Recorder) Bound(maxBytes int64, keep int) { r.log.bound(maxBytes, keep) }

// ShowPaths says whether the call log names paths from now on; those counted
// so far are forgotten when it stops.
func (r *Recorder) ShowPaths(show bool) { r.log.showPaths(show) }

// SetServing says whether handshakes can be served.
func (r *Recorder) SetServing(serving bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = serving
}

// SetRollout says where the replacement of the binary stands.
func (r *Recorder) SetRollout(state Rollout) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastFault == r.refusal {
		r.lastFault = nil
	}
	r.rollout, r.refusal = state, nil
}

// RolloutRejected says that the new binary is not used, and why. As long as
// that is so, it is the last fault unless a call has failed since.
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

// WorkerStarting says that the worker id is being started. The generation is
// the number of starts since the state directory was made, which whoever starts
// workers counts; the highest that was told is shown. A start of one that was
// lost counts as a restart.
func (r *Recorder) WorkerStarting(id string, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation = max(r.generation, generation)
	w := r.workers[id]
	switch {
	case w == nil && len(r.workers) >= maxWorkers:
	case w == nil:
		r.workers[id] = &worker{state: Starting}
	case w.lost: // stays recovering until it is ready
		r.restarts++
	default:
		w.state = Starting
	}
}

// WorkerReady says that the worker id runs, be it started or adopted.
func (r *Recorder) WorkerReady(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[id]
	if w == nil {
		if len(r.workers) >= maxWorkers {
			return
		}
		w = &worker{}
		r.workers[id] = w
	}
	if w.lost {
		r.faulty = false // what had failed is back
	}
	*w = worker{state: Ready}
}

// WorkerLost says that the worker id ended when it should not have. One that
// will be started again is missing until it is ready or has ended.
func (r *Recorder) WorkerLost(id string, restarts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.workers[id]
	switch {
	case !restarts:
		delete(r.workers, id)
	case w != nil:
		*w = worker{state: Recovering, lost: true}
	case len(r.workers) < maxWorkers:
		r.workers[id] = &worker{state: Recovering, lost: true}
	}
}

// WorkerEnded says that the worker id ended as it should, or was given up.
func (r *Recorder) WorkerEnded(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, id)
}

// StableLaunchPath is false for an executable that lies in a build's
// directory: it may vanish or change at any moment.
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
