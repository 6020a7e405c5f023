package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/daemon/config"
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
