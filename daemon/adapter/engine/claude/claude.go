package claude

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/program"
	"holdline/daemon/sandbox"
)

// Defaults of [Options].
const (
	defaultRetries = 3
	defaultTimeout = 10 * time.Second
	checkedFor     = 10 * time.Minute // how long a check that succeeded holds
)

// Options say which program is used and what it is given.
type Options struct {
	// Bin is a path or a name on the PATH of Env; "" means "claude".
	Bin string
	// Env is the environment that the daemon itself was given; see
	// [Environment] for what passes on to the program.
	Env []string
	// Extra is what the configuration adds; it passes unfiltered but for what
	// no program may inherit.
	Extra []string
	// MaxRetries bounds how often the program asks its API again after an
	// error; 0 means 3.
	MaxRetries int
	// Timeout bounds a check; 0 means 10 s.
	Timeout time.Duration
	// Landlock returns the version of the kernel's Landlock ABI, 0 for none. Bubblewrap
	// returns what keeps a program with this environment from running commands in a
	// sandbox, or nil. If they are nil, New takes [sandbox.Landlock] and
	// [sandbox.Bubblewrap], which ask the machine.
	Landlock   func() int
	Bubblewrap func(ctx context.Context, env []string) error
}

// Claude is the Claude Code that is installed on this machine. It is safe for
// concurrent use.
type Claude struct {
	opt     Options
	env     []string // of every run and check, but for the login of the user's settings
	program program.Program
	looks   *program.Looks[engine.Info]
}

// New returns a Claude with the defaults for what opt leaves out. It does not look for
// the program yet.
func New(opt Options) *Claude {
	opt.Bin = cmp.Or(opt.Bin, "claude")
	opt.MaxRetries = cmp.Or(opt.MaxRetries, defaultRetries)
	opt.Timeout = cmp.Or(opt.Timeout, defaultTimeout)
	if opt.Landlock == nil {
		opt.Landlock = sandbox.Landlock
	}
	if opt.Bubblewrap == nil {
		opt.Bubblewrap = sandbox.Bubblewrap
	}
	c := &Claude{opt: opt, looks: program.NewLooks[engine.Info]()}
	c.env = c.environment(nil)
	c.program = program.Program{
		Name: "Claude Code", Bin: opt.Bin, Env: c.env, Operation: engine.Operation, Timeout: opt.Timeout,
		Cure: "install Claude Code (npm install -g @anthropic-ai/claude-code), " +
			"or name its program in HOLDLINE_CLAUDE_BIN or in consult.claude_bin of the configuration",
	}
	return c
}

// Environ returns the environment of every run, and the names of the variables
// that the configuration sets.
func (c *Claude) Environ() (environ, configured []string) { return c.env, engine.Names(c.opt.Extra) }

// environment returns the environment of a run. own are the variables of the user's
// settings; they replace the daemon's, as they do in the program itself. set replaces
// both.
func (c *Claude) environment(own []string, set ...string) []string {
	retries := "CLAUDE_CODE_MAX_RETRIES=" + strconv.Itoa(c.opt.MaxRetries)
	return Environment(c.opt.Env, c.opt.Extra, slices.Concat(own, set, []string{retries}))
}
