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
)

// Limits of what a new file may do when it is tried.
const (
	checkTimeout = 10 * time.Second // for each command
	maxOutput    = 64 << 10         // bytes
	maxVersion   = 128              // bytes of a version's name
	maxWords     = 300              // bytes of its last words in a reason
)

// Versions are the numbers of the formats that outlive a daemon.
type Versions struct {
	Greeting []int `json:"greeting"` // proxies live as long as their agents
	Worker   []int `json:"worker"`   // workers outlive the daemon
	Record   []int `json:"record"`   // and so do their records
	Handover []int `json:"handover"` // see [Version]
}

// Found is what a file says of itself.
type Found struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Versions
}

// Checker tries files.
type Checker struct {
	Needs func() Versions // what is in use now
	UID   int             // of this user
	Owner int             // of the file that runs
	Env   []string        // for the file that is tried: little
	// Also are more commands that must succeed, each the arguments of the
	// file; nil for none.
	Also func() [][]string
}

// Check runs the file at path as `PATH version --json` and wants an answer
// that names every version in use. The error is for people. Nothing that the
// file starts outlives the check, unless it leaves its process group.
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
	out, err := c.run(ctx, path, "version", "--json")
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
	if err := f.lacks(c.Needs()); err != nil {
		return Found{}, err
	}
	if c.Also != nil {
		for _, args := range c.Also() {
			if _, err := c.run(ctx, path, args...); err != nil {
				return Found{}, err
			}
		}
	}
	return f, nil
}

// lacks is an error that names what f does not speak of what is needed.
func (f Found) lacks(needs Versions) error {
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

// run runs the file and is what it printed.
func (c *Checker) run(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("it did not end within %v", checkTimeout))
	defer cancel()
	cmd := command.Command{
		Path: path, Args: args, Name: "holdline", Env: c.Env, Dir: "/", Stdout: maxOutput, Stderr: maxOutput, Strict: true,
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
		return nil, fmt.Errorf("%s: %w: %s", what, err, line(out.Stderr))
	}
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}

// line is the beginning of what was written, as one line.
func line(written []byte) string {
	s := strings.Join(strings.FieldsFunc(string(written), func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return s
}
