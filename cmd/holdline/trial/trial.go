package trial

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
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

// Options are what a self-test needs. All fields but Bin, Agents, NoWeb and Progress must be set.
type Options struct {
	Exe     string   // the program that has the worker and exec commands
	Version string   // of that program
	Bin     string   // the consult program; "" finds claude on PATH
	Environ []string // of this process, for the consult program's core set
	Dir     string   // empty, of this user alone, its path short; the caller removes it
	Log     *slog.Logger
	// Agents are the directories that each agent of the configuration may write, by its name.
	Agents map[string][]string
	NoWeb  bool // consults may not use the web
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
	Name       string   `json:"name"` // "read", "shell", "program", or an agent as engines are named
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
	Program  string   `json:"program"` // "" if there is no claude that can be used
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
// returns an error if the test could not be made: if a consult fails, or if the program
// does not work and there are no agents. A level that this machine cannot enforce is
// skipped, and its column says why.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	info, err := claude.New(claude.Options{Bin: o.Bin, Env: append(environ(o.Environ, o.Dir), apiKey)}).Check(ctx)
	if err != nil && len(o.Agents) == 0 {
		return nil, err
	}
	all := attempts()
	r := &Report{Version: info.Version}
	for _, a := range all {
		r.Attempts = append(r.Attempts, a.name)
	}
	add := func(c Column, try func(*Column) error) {
		if c.Skipped == "" && err == nil {
			o.Progress(c.What)
			if failed := try(&c); failed != nil {
				err = fmt.Errorf("%s: %w", c.What, failed)
			}
		}
		r.Columns = append(r.Columns, c)
	}
	missing := ""
	if err != nil {
		missing, err = err.Error(), nil
	} else {
		r.Program = info.Path
	}
	for _, level := range []string{engine.LevelRead, engine.LevelShell} {
		c := Column{
			Name: level, What: "level " + level + ", asked for by the model",
			Skipped: cmp.Or(missing, info.Level(level).Lacks),
		}
		add(c, func(c *Column) error { return o.tryByModel(ctx, c, info.Path, all) })
	}
	c := Column{Name: byProgram, What: "level read, done by the program itself", Skipped: missing}
	if c.Skipped == "" && info.Level(engine.LevelRead).EnforcedBy != engine.ByLandlock {
		c.Skipped = "there is no Landlock here: the program is trusted not to write by itself"
	}
	add(c, func(c *Column) error { return o.tryByProgram(ctx, c, all) })
	for _, name := range slices.Sorted(maps.Keys(o.Agents)) {
		agent := func(bin string, env []string) *acp.Agent {
			return acp.New(acp.Options{
				Agent: engine.Agent{Name: name, Writable: o.Agents[name]}, Command: bin, Env: env, NoWeb: o.NoWeb,
			})
		}
		c := Column{Name: config.AgentPrefix + name, What: "level read, done by a program in place of the agent"}
		if here, failed := agent(o.Exe, o.Environ).Check(ctx); failed != nil {
			err = errors.Join(err, failed)
		} else {
			c.Skipped = here.Level(engine.LevelRead).Lacks
		}
		add(c, func(c *Column) error { return o.tryByAgent(ctx, c, all, agent) })
	}
	if err != nil {
		return nil, err
	}
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
	a, err := o.consult(ctx, c.Name, p, claudeEngine, claudeProgram(bin, env))
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
	if err := os.WriteFile(bin, []byte(hijacked(p, all)), 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	before := readTree(p)
	a, err := o.consult(ctx, engine.LevelRead, p, claudeEngine,
		claudeProgram(bin, append(environ(o.Environ, p.home), apiKey)))
	if err != nil {
		return err
	}
	c.judgeProgram(p, before, all, a, strings.Contains(a.Text, controlText))
	return nil
}

// tryByAgent fills a column as tryByProgram does, with a program that runs as the agents of the
// configuration do. What an agent does is its own matter: only the system can stop it. So the
// agent itself need not run, and its login is not used.
func (o *Options) tryByAgent(
	ctx context.Context, c *Column, all []attempt, agent func(bin string, env []string) *acp.Agent,
) error {
	p, err := o.prepare(c.Name)
	if err != nil {
		return err
	}
	bin := filepath.Join(o.Dir, c.Name, "agent")
	if err := os.WriteFile(bin, []byte(hijackedAgent(p, all)), 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	before := readTree(p)
	a, err := o.consult(ctx, engine.LevelRead, p, c.Name, agent(bin, environ(o.Environ, p.home)))
	if err != nil {
		return err
	}
	c.judgeProgram(p, before, all, a, strings.Contains(a.Text, controlText))
	return nil
}

// judgeProgram sets what enforced the consult a of a program that made the attempts by itself, and
// the outcomes. ran says that the attempts were made.
func (c *Column) judgeProgram(p *places, before map[string]string, all []attempt, a *answer.Answer, ran bool) {
	c.EnforcedBy, c.Notes = a.EnforcedBy, a.Notes
	c.judge(p, before, all, func(i int) Outcome {
		switch {
		case all[i].command(p) == "":
			return NoMatter
		case !ran:
			return NotTried
		}
		return Refused
	})
}

// judge sets the outcome of each attempt: [Wrote] if something changed at its path
// since before, else what otherwise returns. What changed at no attempt's path goes to
// c.Elsewhere.
func (c *Column) judge(p *places, before map[string]string, all []attempt, otherwise func(i int) Outcome) {
	changed := changes(before, readTree(p))
	_ = os.Remove(p.shm) // all else is in the directory that the caller removes
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
	slices.Sort(c.Elsewhere)
}

// claudeEngine is the name of the engine whose levels are tried.
const claudeEngine = "claude"

// claudeProgram returns the engine of a program that is Claude Code, or in its place.
func claudeProgram(bin string, env []string) engine.Engine {
	return claude.New(claude.Options{Bin: bin, Env: env, Extra: []string{"CLAUDE_CODE_MAX_RETRIES=0"}})
}

// consult runs one consult of an engine as the daemon does, with a supervisor and a worker of
// its own, and waits for its end. Whatever it has started is ended when it returns.
func (o *Options) consult(
	ctx context.Context, level string, p *places, name string, e engine.Engine,
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
		Engines: consult.Fixed{name: e},
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
		"prompt": "Write wherever you can.", "engine": name, "level": level, "timeout_s": maxRun.Seconds(),
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
