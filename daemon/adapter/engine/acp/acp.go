// Package acp knows the agents that speak the Agent Client Protocol, version 1, on stdin
// and stdout: whether one can be used ([Agent.Check]), how it is confined ([Agent.Command]),
// its private home directory ([Agent.Furnish], [Agent.Keep]), and the dialogue with it ([Run]).
// Which agents there are is in the configuration.
//
// What keeps an agent from writing is the kernel alone. Agents were seen that asked for no
// permission before they wrote, and that accepted a mode and did not hold it. So no answer of
// this package ever allows anything, and no claim rests on that.
package acp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/program"
	"holdline/daemon/sandbox"
	"holdline/protocol/fault"
)

// Options say which agent is used and what it is given.
type Options struct {
	engine.Agent

	Command string   // a path, or a name on the PATH of Env
	Env     []string // of the daemon; an agent gets the names of any session, and those of the network
	Extra   []string // what the configuration adds
	NoWeb   bool     // consults may not use the web
	// Landlock returns the version of the kernel's Landlock ABI, 0 for none. If it is nil,
	// New takes [sandbox.Landlock].
	Landlock func() int
}

// Agent is an agent that the configuration names. It is safe for concurrent use.
type Agent struct {
	opt     Options
	env     []string
	program program.Program
}

// New returns an agent. It does not look for its program yet.
func New(opt Options) *Agent {
	if opt.Landlock == nil {
		opt.Landlock = sandbox.Landlock
	}
	none := func(string) bool { return false }
	a := &Agent{opt: opt, env: program.Environment(opt.Env, none, nil, opt.Extra)}
	a.program = program.Program{
		Name: opt.Name, Bin: opt.Command, Env: a.env, Operation: engine.Operation,
		Cure: "install it, or correct " + a.key("command"),
	}
	return a
}

// key returns a key of the agent in the configuration.
func (a *Agent) key(name string) string { return "consult.agents." + a.opt.Name + "." + name }

// Environ returns the environment of every run, and the names of the variables that the
// configuration sets.
func (a *Agent) Environ() (environ, configured []string) { return a.env, engine.Names(a.opt.Extra) }

// Without returns nil: which variables log an agent in is not known.
func (a *Agent) Without([]string) []string { return nil }

// Route returns how a run reaches its API. Which variables an agent reads is not known: the address counts if the
// configuration gives the agent exactly one, and no proxy may be in between.
func (a *Agent) Route() engine.Route {
	r := engine.Route{Environ: a.env}
	for _, kv := range a.env {
		if name, value, _ := strings.Cut(kv, "="); command.Network.Has(name) && value != "" &&
			strings.HasSuffix(strings.ToLower(name), "_proxy") && !strings.EqualFold(name, "NO_PROXY") {
			return r
		}
	}
	names := slices.DeleteFunc(engine.Names(a.opt.Extra), func(name string) bool {
		return !strings.HasSuffix(name, "_BASE_URL") || command.Variable(a.env, name) == ""
	})
	if slices.Sort(names); len(slices.Compact(names)) == 1 {
		r.Address = names[0]
	}
	return r
}

// Check looks for the program, and for the files of its login. It does not start the agent, so
// it does not know the agent's version. The error is a [*fault.Record].
func (a *Agent) Check(context.Context) (engine.Info, error) {
	info := engine.Info{Agent: &a.opt.Agent, LoggedIn: true, Account: "by itself"}
	path, _, err := a.program.Find()
	if err != nil {
		return info, err
	}
	info.Path, info.Levels = path, a.levels(path)
	there := 0
	for _, file := range a.opt.Login {
		if _, ok := a.inHome(file); !ok {
			return info, fault.New(fault.SpawnFailure, fault.Engine, engine.Operation,
				"%s: %s is not below your home directory", a.key("login"), file).WithReason(fault.Rejected)
		}
		if _, err := os.Stat(file); err == nil {
			there++
		}
	}
	switch {
	case there > 0:
		info.Account = "by its login files; what it renews in them is lost, so better give it an API key in " +
			a.key("env")
	case len(a.opt.Extra) > 0:
		info.Account = "by " + a.key("env")
	case len(a.opt.Login) > 0:
		return info, fault.New(fault.Unauthenticated, fault.Engine, engine.Operation,
			"%s is not logged in: none of the files of %s is there", a.opt.Name, a.key("login")).
			WithReason(fault.NotLoggedIn)
	}
	return info, nil
}

// levels returns what holds an agent to the levels: the kernel, or nothing, since its tools are
// its own.
func (a *Agent) levels(path string) []engine.Level {
	abi := a.opt.Landlock()
	read := engine.Level{Name: engine.LevelRead, EnforcedBy: engine.ByLandlock}
	switch {
	case a.opt.NoWeb:
		read.Lacks = "consult.web is false, and the network of an agent's own tools cannot be taken away; " +
			"use another engine, or allow the web"
	case abi < sandbox.Complete:
		read.Lacks = fmt.Sprintf("the tools of an agent are its own, so that only the kernel can keep it "+
			"from writing, and this one has Landlock ABI %d; Linux 6.2 or newer with Landlock", abi)
	default:
		read.Notes = []string{
			fmt.Sprintf("Landlock ABI %d: the kernel lets the agent write in a private home and temporary "+
				"directory only", abi),
			"it has a shell of its own, which can read any file of yours and reach the network",
		}
		for _, dir := range a.opt.Writable {
			read.Notes = append(read.Notes, "it may write below "+dir)
		}
		if strings.Contains(filepath.Base(path), "codex-acp") {
			read.Notes = append(read.Notes, "codex-acp cannot make its own sandbox inside of this one, so its shell "+
				"runs nothing: use the engine codex instead")
		}
	}
	if read.Lacks != "" {
		read.EnforcedBy = ""
	}
	return []engine.Level{read, {
		Name:  engine.LevelShell,
		Lacks: "an agent's commands cannot be kept from the network; use level read, or another engine",
	}}
}

// agentOf returns what the configuration says of the agent of a run.
func agentOf(info engine.Info) engine.Agent {
	if info.Agent == nil {
		return engine.Agent{}
	}
	return *info.Agent
}

// Fits returns nil if an agent can do what req asks for, else an invalid_input fault. The
// protocol has no limits on turns and cost.
func (a *Agent) Fits(req engine.Request) error {
	switch {
	case req.MaxTurns > 0:
		return invalid("max_turns: the Agent Client Protocol has no limit of turns; leave it out, or give a timeout_s")
	case req.MaxUSD > 0:
		return invalid("max_usd: the Agent Client Protocol has no limit of cost; leave it out, or use engine claude")
	}
	return nil
}

// invalid returns an invalid_input fault. The message begins with the argument's name.
func invalid(format string, args ...any) *fault.Record {
	return fault.New(fault.InvalidInput, fault.Engine, engine.Operation, format, args...)
}

// Command returns the command line of a run, which the kernel confines. The agent's home is a
// directory of the run: one with a shell could otherwise put a hook into its own settings, which
// would run unconfined the next time.
func (a *Agent) Command(req engine.Request, info engine.Info) engine.Command {
	level := info.Level(req.Level)
	agent := agentOf(info)
	cmd := engine.Command{
		Argv: append([]string{info.Path}, agent.Args...), Level: level.Name, EnforcedBy: level.EnforcedBy,
		Notes: slices.Clone(level.Notes),
	}
	ours := command.NewNames("HOME", "TMPDIR", "TMP", "TEMP", "XDG_*")
	cmd.Env = slices.DeleteFunc(slices.Clone(a.env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return ours.Has(name)
	})
	cmd.Writable = &engine.Writable{Dirs: slices.Clone(agent.Writable)}
	if req.TempDir != "" {
		cmd.Env = append(cmd.Env, "HOME="+homeOf(req), "TMPDIR="+req.TempDir)
		cmd.Writable.Dirs = append(cmd.Writable.Dirs, req.TempDir)
	}
	return cmd
}
