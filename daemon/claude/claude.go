package claude

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"holdline/protocol/fault"
)

// operation is what faults of this package are filed under.
const operation = "tools/call:consult"

// Level read: no tool that writes or executes.
const levelRead = "read"

// Defaults of [Options].
const (
	defaultRetries = 3
	defaultTimeout = 10 * time.Second
	defaultTTL     = 10 * time.Minute
	// failureTTL is short: a user who has just logged in must not wait.
	failureTTL = 2 * time.Second
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
	// error; 0 means 3, less than 0 none.
	MaxRetries int
	// Timeout bounds a check; 0 means 10 s.
	Timeout time.Duration
	// TTL is how long a check that succeeded holds; 0 means 10 min.
	TTL time.Duration
}

// Claude is Claude Code as installed on this machine. It is safe for
// concurrent use.
type Claude struct {
	opt Options
	env []string // of every run and check
	// turn is held by the one who checks; what follows is guarded by it.
	turn chan struct{}
	last checked
	// restricts tells whether the program last checked has --restricted.
	restricts atomic.Bool
}

// New makes a Claude. It looks at nothing yet.
func New(opt Options) *Claude {
	if opt.Bin == "" {
		opt.Bin = "claude"
	}
	if opt.MaxRetries == 0 {
		opt.MaxRetries = defaultRetries
	}
	if opt.Timeout <= 0 {
		opt.Timeout = defaultTimeout
	}
	if opt.TTL <= 0 {
		opt.TTL = defaultTTL
	}
	c := &Claude{opt: opt, turn: make(chan struct{}, 1)}
	c.env = c.environment()
	return c
}

// environment is that of every run, with set over it.
func (c *Claude) environment(set ...string) []string {
	retries := "CLAUDE_CODE_MAX_RETRIES=" + strconv.Itoa(max(c.opt.MaxRetries, 0))
	return Environment(c.opt.Env, c.opt.Extra, append(set, retries))
}

// find resolves the program. The error is a fault of its own that says how to
// install it.
func (c *Claude) find() (string, os.FileInfo, error) {
	if strings.ContainsRune(c.opt.Bin, filepath.Separator) {
		path, err := filepath.Abs(c.opt.Bin)
		if err != nil {
			return "", nil, c.missing("%s: %v", c.opt.Bin, err)
		}
		info, err := executable(path)
		if err != nil {
			return "", nil, c.missing("%s: %v", path, errors.Unwrap(err))
		}
		return path, info, nil
	}
	var refused error
	for _, dir := range filepath.SplitList(get(c.env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue // a program found by the directory one happens to be in is nobody's choice
		}
		path := filepath.Join(dir, c.opt.Bin)
		info, err := executable(path)
		if err == nil {
			return path, info, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			refused = err
		}
	}
	if refused != nil {
		return "", nil, c.missing("%v", refused)
	}
	return "", nil, c.missing("no %s on the daemon's PATH", c.opt.Bin)
}

// executable is the stat of a file that can be run.
func executable(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return nil, &os.PathError{Op: "run", Path: path, Err: os.ErrPermission}
	}
	return info, nil
}

func (c *Claude) missing(format string, args ...any) error {
	const cure = "; install Claude Code (npm install -g @anthropic-ai/claude-code), " +
		"or name its program in HOLDLINE_CLAUDE_BIN or in consult.claude_bin of the configuration"
	return fault.New(fault.SpawnFailure, fault.Engine, operation, "cannot start Claude Code: "+format+cure, args...).
		WithReason(fault.NotInstalled)
}

// get is the value of a variable in env, "" if it is not there.
func get(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
