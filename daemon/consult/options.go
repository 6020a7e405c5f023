package consult

import (
	"context"
	"log/slog"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/hosted/private"
)

// A Host makes the calls of engine processes: [private.Processes], or a stand-in.
type Host interface {
	// Call makes the call of an engine process, blocks until nothing is left of the
	// process, and passes what became of it to settle.
	Call(ctx context.Context, c *private.Call, settle func(private.End))
	// Clear ends the worker of a job's directory, if it lives, and removes its output and
	// its socket.
	Clear(ctx context.Context, dir string) error
}

// Settings are what the configuration says of consults. A change holds for jobs that
// are asked for later.
type Settings struct {
	Engine        string            // for calls that name none
	Model         string            // of that engine; "" leaves it to the program
	Effort        string            // of that engine; "" leaves it to the program
	MaxTurns      int               // 0 is no limit
	MaxUSD        float64           // what a run may cost if the call does not say; 0 is no limit
	Level         string            // for calls that name none
	Web           bool              // the program may use its web tools
	Roots         []string          // directories allowed besides the caller's project; absolute
	MaxConcurrent int               // jobs that run at once
	Timeout       time.Duration     // of a run, for calls that name none
	Wait          time.Duration     // of a call that does not say; 0 only starts the job
	KeepCount     int               // answers kept
	KeepAge       time.Duration     // 0 keeps an answer until its client holds it
	Budgets       map[string]Budget // by identity
}

// Budget limits what the consults of an identity may cost. A zero is no limit.
type Budget struct {
	DayUSD     float64 // in a day
	SessionUSD float64 // in one session
	Day        int     // consults in a day
}

// DefaultSettings returns the settings of an empty configuration.
func DefaultSettings() Settings {
	return Settings{
		Engine: Claude, Level: engine.LevelRead, Web: true, MaxConcurrent: 4, Timeout: 20 * time.Minute,
		Wait:      100 * time.Second,
		KeepCount: 200, KeepAge: 30 * 24 * time.Hour,
	}
}

// Options are what [New] needs to make a [Manager].
type Options struct {
	Log       *slog.Logger
	Dir       string                   // of the jobs' directories, 0700
	Ledger    string                   // file of what consults have cost whose answers are not kept any more
	Exe       string                   // of this program, for engine processes
	SocketDir string                   // each worker's socket is <SocketDir>/<id>/sock
	Home      string                   // of the user; "" if unknown
	Engines   map[string]engine.Engine // by name
	Path      func() string            // returns the user's PATH, to find git
	Host      Host
	Settings  Settings
	Ladder    engine.Ladder // zero takes the defaults
	// Audit receives a line for each consult that has ended; nil for none. After a
	// crash the next daemon may pass the same line again. It is called without a lock.
	Audit func(Audit)
	// Return is how long a client may take to come back for a job that an earlier
	// daemon began for it; 0 is [protocol.StartWindow].
	Return time.Duration
}

// Claude is the name of the engine in [DefaultSettings].
const Claude = "claude"

// Limits of requests and answers, words of records and faults, and names of files.
const (
	maxQueued     = 256 // jobs that wait
	maxQueuedEach = 64  // of one identity
	maxTimeout    = 24 * time.Hour
	maxAnswer     = 8 << 20 // bytes of an answer that are kept
	progressEvery = time.Second
	heartbeat     = 15 * time.Second
	contractWord  = "never_replay"
	operation     = engine.Operation
	fileJob       = "job.json"
	fileAnswer    = "answer.json"
	dirTemp       = "tmp"
	formatVersion = 1
)
