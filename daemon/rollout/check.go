package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode"

	"holdline/daemon/command"
	"holdline/daemon/filewatch"
	"holdline/protocol/fault"
)

// Limits for a new program while it is checked.
const (
	checkTimeout = 10 * time.Second // for each command
	maxOutput    = 64 << 10         // bytes
	maxVersion   = 128              // bytes of a version's name
	maxWords     = 300              // characters of its stderr in an error
)

// Versions are the versions of the formats that outlive a daemon.
type Versions struct {
	Greeting []int `json:"greeting"` // proxies live as long as their agents
	Worker   []int `json:"worker"`   // workers outlive the daemon
	Record   []int `json:"record"`   // and so do their records
	Handover []int `json:"handover"` // see [Version]
}

// Found is what a program says about itself.
type Found struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Versions
}

// Checker runs a new program to see whether it may replace the daemon.
type Checker struct {
	Needs func() Versions // what is in use now
	UID   int             // of this user
	Owner int             // of the file that runs
	Env   []string        // of the commands; it should be small
	// Also returns the arguments of further commands of the new program that must
	// succeed. Nil means none.
	Also func() [][]string
}

// Check runs the file at path as `PATH version --json` and returns the answer, which
// must name every version that is in use. It blocks for at most [checkTimeout] for each
// command. The error is for people.
//
// Check does not run a file that another user could have written: it must be a regular
// file of this user, of root or of the owner of the running program, and not writable
// by everybody. No process that the file starts outlives the check, unless it leaves
// its process group.
func (c *Checker) Check(ctx context.Context, path string) (Found, error) {
	s, err := filewatch.Stat(path)
	switch {
	case err != nil:
		return Found{}, err
	case !s.Mode.IsRegular():
		return Found{}, fmt.Errorf("%s is not a file", path)
	case s.Mode.Perm()&0o002 != 0:
		return Found{}, fmt.Errorf("%s can be written by everybody (mode %#o)", path, s.Mode.Perm())
	case s.UID != c.UID && s.UID != 0 && s.UID != c.Owner:
		return Found{}, fmt.Errorf("%s belongs to user %d", path, s.UID)
	}
	out, err := c.runFile(ctx, path, "version", "--json")
	if err != nil {
		return Found{}, err
	}
	var f Found
	if err := json.Unmarshal(out, &f); err != nil {
		return Found{}, fmt.Errorf("%s version --json does not print what a holdline does: %w", path, err)
	}
	if f.Version == "" || len(f.Version) > maxVersion || strings.ContainsFunc(f.Version, unicode.IsControl) {
		return Found{}, fmt.Errorf("%s names no version", path)
	}
	if err := f.checkVersions(c.Needs()); err != nil {
		return Found{}, err
	}
	if c.Also != nil {
		for _, args := range c.Also() {
			if _, err := c.runFile(ctx, path, args...); err != nil {
				return Found{}, err
			}
		}
	}
	return f, nil
}

// checkVersions returns an error that names the first version which is in use and which
// f does not know. A program that cannot read what live proxies and workers write would
// lose their calls.
func (f Found) checkVersions(needs Versions) error {
	for _, format := range []struct {
		name        string
		needs, have []int
	}{
		{"the greeting", needs.Greeting, f.Greeting},
		{"the workers' protocol", needs.Worker, f.Worker},
		{"the workers' records", needs.Record, f.Record},
		{"the hand-over", needs.Handover, f.Handover},
	} {
		for _, v := range format.needs {
			if !slices.Contains(format.have, v) {
				return fmt.Errorf("version %s does not know version %d of %s, which is in use (it knows %v)",
					f.Version, v, format.name, format.have)
			}
		}
	}
	return nil
}

// runFile runs the file and returns what it has printed. A process that it leaves
// behind with open output is an error.
func (c *Checker) runFile(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("it did not end within %v", checkTimeout))
	defer cancel()
	cmd := command.Command{
		Path: path, Args: args, Name: "holdline", Env: c.Env, Dir: "/", Stdout: maxOutput, Stderr: maxOutput,
		Strict: true,
	}
	out, err := cmd.Run(ctx)
	if err == nil && out.Held {
		err = errors.New("it left something behind")
	}
	if err == nil {
		return out.Stdout, nil
	}
	what := fmt.Sprintf("%s %s", path, strings.Join(args, " "))
	if _, ended := errors.AsType[*exec.ExitError](err); ended && len(out.Stderr) > 0 {
		return nil, fmt.Errorf("%s: %w: %s", what, err, fault.Short(string(out.Stderr), maxWords))
	}
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}
