package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// environ returns the environment that children inherit from, as far as it is
// known.
func (l *life) environ() []string { return l.env.List() }

// environChanged is called when the user's shell has said what its environment
// is. Programs of consults follow by themselves before each consult.
func (l *life) environChanged(ctx context.Context) {
	l.servers.Remask()
	value := config.Lookup(l.environ())
	path, err := l.FindConfig(func(name string) string { v, _ := value(name); return v })
	if err != nil || path == *l.file.Load() {
		return
	}
	// The profile names another file than a plain environment does.
	l.Log.InfoContext(ctx, "the login shell names another configuration", "path", path)
	l.file.Store(&path)
	if _, err := l.reload(ctx); err != nil {
		l.Log.ErrorContext(ctx, "configuration refused, the old one stays in force", "err", err)
	}
}

// serverReady waits until the environment of a server is known, within bounds.
// If its program is nowhere, the error says where it was looked for.
func (l *life) serverReady(ctx context.Context, s *config.Settings, root string) error {
	if err := l.env.Await(ctx, s.Command); err != nil {
		return err
	}
	if s.Transport != config.Stdio {
		return nil
	}
	p, err := l.serverProcess(s, root)
	if err != nil || strings.Contains(p.Command, "/") {
		return nil //nolint:nilerr // the start says what is wrong
	}
	path, _ := config.Lookup(p.Env)("PATH")
	if _, err := command.LookPath(p.Command, path); err != nil {
		return fmt.Errorf("%s is on no PATH that the daemon knows; it looked in %s", p.Command, l.searched(path))
	}
	return nil
}

// searched says for people in which directories of path a program was looked
// for, and where each of them comes from.
func (l *life) searched(path string) string {
	var parts []string
	left := command.SearchDirs(path)
	for _, p := range l.env.Paths() {
		here := slices.DeleteFunc(slices.Clone(left), func(dir string) bool { return !slices.Contains(p.Dirs, dir) })
		left = slices.DeleteFunc(left, func(dir string) bool { return slices.Contains(p.Dirs, dir) })
		if len(here) > 0 {
			parts = append(parts, strings.Join(here, ", ")+" ("+p.Source+")")
		}
	}
	if len(left) > 0 {
		parts = append(parts, strings.Join(left, ", ")+" (configuration)")
	}
	if len(parts) == 0 {
		return "no directory: its PATH is empty"
	}
	return strings.Join(parts, "; ")
}

// maxAsked bounds the names of one question for the environment.
const maxAsked = 256

// showEnvironment says where programs are looked for, and which of the programs
// and variables that are asked for there are.
func (l *life) showEnvironment(ctx context.Context, params json.RawMessage, _ func(control.Progress)) (any, error) {
	var p control.EnvironmentParams
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if len(p.Programs)+len(p.Variables) > maxAsked {
		return nil, fault.New(fault.InvalidInput, fault.Host, control.Environment, "more than %d names", maxAsked)
	}
	if err := l.env.Await(ctx, ""); err != nil {
		return nil, err
	}
	answer := control.EnvironmentAnswer{Paths: []control.SearchPath{}, Programs: []control.FoundProgram{}, Unset: []string{}}
	for _, name := range p.Programs {
		if err := l.env.Await(ctx, name); err != nil {
			return nil, err
		}
		if path, source := l.env.Find(name); path != "" {
			answer.Programs = append(answer.Programs, control.FoundProgram{Name: name, Path: path, Source: source})
		}
	}
	variables, _ := config.ReadEnvFile(config.VariablesFile(*l.file.Load())) // the start of a server says what is wrong with it
	value := config.Lookup(variables, l.environ())
	for _, name := range p.Variables {
		if _, set := value(name); !set {
			answer.Unset = append(answer.Unset, name)
		}
	}
	for _, path := range l.env.Paths() {
		answer.Paths = append(answer.Paths, control.SearchPath(path))
	}
	if err := l.env.Failure(); err != nil {
		answer.Failure = err.Error()
	}
	return answer, nil
}
