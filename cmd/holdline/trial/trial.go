package trial

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/config"
	"holdline/daemon/consult"
	"holdline/daemon/consult/answer"
	"holdline/daemon/hosted/private"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
)

// Options are what a self-test needs. All fields but Bin and Progress must be set.
type Options struct {
	Exe     string   // the program that has the worker and exec commands
	Version string   // of that program
	Bin     string   // the consult program; "" finds claude on PATH
	Environ []string // of this process, for the consult program's core set
	Dir     string   // empty, of this user alone, its path short; the caller removes it
	Log     *slog.Logger
	// Progress is called with the name of what is tried next; it may be nil.
	Progress func(string)
}

// Outcome of an attempt.
type Outcome string

// The outcomes. The self-test fails if an attempt wrote, and also if one was not tried,
// since then it has proved nothing.
const (
	Refused  Outcome = "refused"
	Wrote    Outcome = "WROTE"
	NotTried Outcome = "not tried"
	NoMatter Outcome = "-" // the attempt makes no sense in this column
)

// Column is one way to run a consult, with the outcome of every attempt. Outcomes has
// the order of [Report.Attempts]; it is empty if the column was skipped.
type Column struct {
	Name       string   `json:"name"` // "read", "shell", or "program"
	What       string   `json:"what"` // for people
	EnforcedBy string   `json:"enforced_by,omitempty"`
	Notes      []string `json:"notes,omitempty"`
	// Skipped says why nothing was tried: this machine cannot enforce the level.
	Skipped  string    `json:"skipped,omitempty"`
	Outcomes []Outcome `json:"outcomes,omitempty"`
	// Elsewhere are files that were written and are no attempt's.
	Elsewhere []string `json:"elsewhere,omitempty"`
}

// Report is the result of a self-test.
type Report struct {
	Program  string   `json:"program"`
	Version  string   `json:"version"`
	Attempts []string `json:"attempts"`
	Columns  []Column `json:"columns"`
}

// Held reports whether every attempt was tried and none wrote.
func (r *Report) Held() bool {
	for _, c := range r.Columns {
		if len(c.Elsewhere) > 0 {
			return false
		}
		for _, o := range c.Outcomes {
			if o == Wrote || o == NotTried {
				return false
			}
		}
	}
	return true
}

// Names of the columns.
const (
	byProgram = "program" // the program itself makes the attempts, as if it had been taken over
)

// maxRun bounds one column.
const maxRun = 3 * time.Minute

// Run makes the self-test and blocks until it is done, for up to maxRun a column. It
// returns an error if the test could not be made: if the program does not work, or if
// a consult fails. A level that this machine cannot enforce is skipped, and its column
// says why.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	info, err := claude.New(claude.Options{Bin: o.Bin, Env: append(environ(o.Environ, o.Dir), apiKey)}).Check(ctx)
	if err != nil {
		return nil, err
	}
	all := attempts()
	r := &Report{Program: info.Path, Version: info.Version}
	for _, a := range all {
		r.Attempts = append(r.Attempts, a.name)
	}
	for _, level := range []string{engine.LevelRead, engine.LevelShell} {
		c := Column{Name: level, What: "level " + level + ", asked for by the model"}
		if c.Skipped = info.Level(level).Lacks; c.Skipped == "" {
			o.Progress(c.What)
			if err := o.tryByModel(ctx, &c, info.Path, all); err != nil {
				return nil, fmt.Errorf("%s: %w", c.What, err)
			}
		}
		r.Columns = append(r.Columns, c)
	}
	c := Column{Name: byProgram, What: "level read, done by the program itself"}
	if info.Level(engine.LevelRead).EnforcedBy == engine.ByLandlock {
		o.Progress(c.What)
		if err := o.tryByProgram(ctx, &c, all); err != nil {
			return nil, fmt.Errorf("%s: %w", c.What, err)
		}
	} else {
		c.Skipped = "there is no Landlock here: the program is trusted not to write by itself"
	}
	r.Columns = append(r.Columns, c)
	return r, nil
}

// apiKey keeps the program from asking for a login.
const apiKey = "ANTHROPIC_API_KEY=selftest" //nolint:gosec // it opens nothing

// environ returns the environment of a daemon in a home directory of its own: of base
// only PATH and LANG, so that no login and no setting of the user's has an influence.
func environ(base []string, home string) []string {
	env := []string{"HOME=" + home, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1"}
	for _, v := range base {
		if strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "LANG=") {
			env = append(env, v)
		}
	}
	return env
}

// tryByModel fills a column: the stand-in asks the program for every attempt. At the
// end it asks for a command that must succeed at the level shell. If that fails, the
// shell does not run at all, and that nothing was written proves nothing: then no
// attempt counts as tried.
func (o *Options) tryByModel(ctx context.Context, c *Column, bin string, all []attempt) (err error) {
	p, err := o.prepare(c.Name)
	if err != nil {
		return err
	}
	calls := make([]call, 0, len(all)+1)
	for _, a := range all {
		calls = append(calls, a.call(p))
	}
	calls = append(calls, call{Tool: "Bash", Input: map[string]any{"command": "cat f.txt; echo control-$((6*7))"}})
	s, err := startStandin(ctx, calls)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.shutDown()) }()
	env := append(environ(o.Environ, p.home), apiKey, "ANTHROPIC_BASE_URL="+s.url)
	before := readTree(p)
	a, err := o.consult(ctx, c.Name, p, bin, env)
	if err != nil {
		return err
	}
	c.EnforcedBy, c.Notes = a.EnforcedBy, a.Notes
	outcomes, err := s.results()
	// If the shell does not run at all, that nothing was written proves nothing.
	dead := c.Name == engine.LevelShell && !strings.Contains(outcomes[len(all)], "control-42")
	c.judge(p, before, all, func(i int) Outcome {
		if _, ok := outcomes[i]; ok && !dead {
			return Refused
		}
		return NotTried
	})
	if dead {
		c.Notes = append(slices.Clip(c.Notes), "the shell does not run commands: "+outcomes[len(all)])
	}
	return err
}

// tryByProgram fills a column: the consult program is one that makes every attempt by
// itself that is a command, whatever the model says. Only what the system enforces can
// stop it.
func (o *Options) tryByProgram(ctx context.Context, c *Column, all []attempt) error {
	p, err := o.prepare(c.Name)
	if err != nil {
		return err
	}
	bin := filepath.Join(o.Dir, c.Name, "claude")
	control := filepath.Join(p.home, ".claude", "own")
	if err := os.WriteFile(bin, []byte(hijacked(p, all, control)), 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	before := readTree(p)
	a, err := o.consult(ctx, engine.LevelRead, p, bin, append(environ(o.Environ, p.home), apiKey))
	if err != nil {
		return err
	}
	c.EnforcedBy, c.Notes = a.EnforcedBy, a.Notes
	_, ran := os.Lstat(control) // the program may write it, so it shows that the commands ran
	c.judge(p, before, all, func(i int) Outcome {
		switch {
		case all[i].command(p) == "":
			return NoMatter
		case ran != nil:
			return NotTried
		}
		return Refused
	})
	return nil
}

// judge sets the outcome of each attempt: [Wrote] if something changed at its path
// since before, else what otherwise returns. What changed at no attempt's path goes to
// c.Elsewhere.
func (c *Column) judge(p *places, before map[string]string, all []attempt, otherwise func(i int) Outcome) {
	changed := changes(before, readTree(p))
	for i, a := range all {
		at, wrote := a.at(p), false
		for path := range changed {
			if path == at || strings.HasPrefix(path, at+"/") {
				wrote = true
				delete(changed, path)
			}
		}
		if wrote {
			c.Outcomes = append(c.Outcomes, Wrote)
			continue
		}
		c.Outcomes = append(c.Outcomes, otherwise(i))
	}
	for path := range changed {
		c.Elsewhere = append(c.Elsewhere, path)
	}
}

// consult runs one consult as the daemon does, with a supervisor and a worker of its
// own, and waits for its end. Whatever it has started is ended when it returns.
func (o *Options) consult(
	ctx context.Context, level string, p *places, bin string, env []string,
) (a *answer.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	runtime := filepath.Join(filepath.Dir(p.home), "r")
	dirs, err := statedir.Open(filepath.Join(filepath.Dir(p.home), "s"))
	if err == nil {
		err = os.Mkdir(runtime, 0o700)
	}
	if err != nil {
		return nil, err
	}
	sup := supervisor.New(supervisor.Options{
		Exe: o.Exe, RuntimeDir: runtime, StateDir: dirs.Root, Epoch: 1, Program: o.Version, Log: o.Log,
	})
	cfg := config.Default()
	cfg.Consult.Level = level // which allows it
	m, err := consult.New(consult.Options{
		Log: o.Log, Dir: dirs.Consults, Ledger: filepath.Join(dirs.Root, "spent.json"),
		Exe: o.Exe, SocketDir: filepath.Join(runtime, "w"), Home: p.home,
		Engines: consult.Fixed{
			cfg.Consult.Engine: claude.New(claude.Options{
				Bin: bin, Env: env, Extra: []string{"CLAUDE_CODE_MAX_RETRIES=0"},
			}),
		},
		Host: private.Processes{
			Log: o.Log, Workers: sup, Watch: telemetry.New(telemetry.Options{Log: o.Log}),
		},
		Config: &cfg,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, m.Close(ctx), sup.Close(ctx))
	}()
	args, err := json.Marshal(map[string]any{
		"prompt": "Write wherever you can.", "level": level, "timeout_s": maxRun.Seconds(),
	})
	if err != nil {
		return nil, err
	}
	// The id of the session is unique: leftovers of a dead worker are found by it.
	who := tool.Caller{Session: "selftest " + rand.Text(), Identity: "selftest", Root: p.project, Cwd: p.project}
	if a, err = m.Run(ctx, who, args, nil, nil); err != nil {
		return nil, err
	}
	if a.Fault != nil {
		return nil, a.Fault
	}
	return a, nil
}
