// Package envcmd has the command env: variables that servers and consults have, whichever shell has started the
// daemon. They are in one file, beside the configuration.
package envcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/envfile"
	"holdline/daemon/launch"
	"holdline/daemon/spelling"
	"holdline/protocol/control"
	"holdline/protocol/socket"
)

// variable is a variable of the file as env list prints it with --json. It has no value.
type variable struct {
	Name     string   `json:"name"`
	Servers  []string `json:"servers"`  // whose entries refer to it
	Consults []string `json:"consults"` // engines that use it
}

// NewCommand returns the command env and those below it. Without a subcommand it is env list.
func NewCommand(proc *cmdenv.Process) *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error { return runList(cmd, proc) }
	cmd := console.WithJSON(&cobra.Command{
		Use: "env", Short: "Keep variables for servers and consults", RunE: list,
		Long: `Keep variables that servers and consults need, whichever shell has started the daemon.
They are in the file env beside the configuration, which you alone can read.

A server has a variable if its entry names it, as ${NAME}. A consult has those by which
its program logs in, or reaches its API or the network. Values are never shown.

    holdline env set GITHUB_TOKEN            # the value of this shell
    holdline env set HTTPS_PROXY=http://proxy:3128

With --json, a list of objects: name, servers (whose entries refer to it), consults
(engines that use it).`,
	})
	cmd.AddCommand(
		&cobra.Command{
			Use: "set NAME[=VALUE]...", Short: "Keep variables, with the values of this shell unless you give one",
			Long: `Keep variables, with the value after the =, or else the value that this shell has. Servers
that use one and are idle are started again. Those with calls in flight are named: they
keep the old value until they are started again. The next consult has the new one.`,
			Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return runSet(cmd, proc, args) },
		},
		console.WithJSON(&cobra.Command{
			Use: "list", Aliases: []string{"ls"}, Short: "List the names, and what uses them", Args: cobra.NoArgs, RunE: list,
		}),
		&cobra.Command{
			Use: "unset NAME...", Short: "Forget variables", Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return runUnset(cmd, proc, args) },
		},
	)
	return cmd
}

// Path returns the path of the file.
func Path(proc *cmdenv.Process) (string, error) {
	path, err := cmdenv.ConfigPath("", proc.Getenv)
	return envfile.Path(path), err
}

// Keep stores variables, each with its value, in the file at path. It checks all names first.
func Keep(cmd *cobra.Command, path string, names []string, values map[string]string) error {
	for _, name := range names {
		switch {
		case !slices.Equal(expand.Names("${"+name+"}"), []string{name}):
			return fmt.Errorf("%w: %q is no name of a variable: it wants letters, digits and _", cmdenv.ErrUsage, name)
		case config.NeverInherited(name):
			return fmt.Errorf("%s is never given to a server or a consult", name)
		}
	}
	for _, name := range names {
		if err := envfile.Set(cmd.Context(), path, name, values[name]); err != nil {
			return err
		}
	}
	return nil
}

// runSet keeps variables, and has what uses them read them.
func runSet(cmd *cobra.Command, proc *cmdenv.Process, args []string) error {
	path, err := Path(proc)
	if err != nil {
		return err
	}
	shell, values := expand.Lookup(proc.Environ()), map[string]string{}
	var names []string
	for _, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if !given {
			if value, given = shell(name); !given {
				return cmdenv.WithHint(fmt.Errorf("this shell has no variable %s", strings.Map(console.Printable, name)),
					"export it first; or give the value: holdline env set NAME=VALUE")
			}
		}
		names, values[name] = append(names, name), value
	}
	if err := Keep(cmd, path, names, values); err != nil {
		return err
	}
	for _, name := range names {
		_ = console.Say(cmd, "%s is kept in %s", name, path)
	}
	return sayUse(cmd, proc, names)
}

// runUnset forgets variables.
func runUnset(cmd *cobra.Command, proc *cmdenv.Process, names []string) error {
	path, err := Path(proc)
	if err != nil {
		return err
	}
	for _, name := range names {
		had, err := envfile.Unset(cmd.Context(), path, name)
		switch {
		case err != nil:
			return err
		case !had:
			return cmdenv.WithHint(fmt.Errorf("%s has no %s", path, strings.Map(console.Printable, name)),
				"holdline env list shows the names that it has")
		}
		_ = console.Say(cmd, "%s is forgotten", name)
	}
	return sayUse(cmd, proc, names)
}

// runList prints the names, and what uses each.
func runList(cmd *cobra.Command, proc *cmdenv.Process) error {
	path, err := Path(proc)
	if err != nil {
		return err
	}
	list, err := envfile.Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cfg, err := load(proc)
	if err != nil {
		return err
	}
	all := []variable{}
	for _, kv := range list {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(all, func(v variable) bool { return v.Name == name }) {
			all = append(all, usesOf(&cfg, name))
		}
	}
	slices.SortFunc(all, func(a, b variable) int { return spelling.Compare(a.Name, b.Name) })
	return console.Print(cmd, all, func(out io.Writer) {
		if len(all) == 0 {
			console.Line(out, 2, "%s has no variable; add one: holdline env set NAME", path)
			return
		}
		t := console.NewTable(out, "NAME", "SERVERS", "CONSULTS")
		for _, v := range all {
			t.Row(v.Name, cmp.Or(strings.Join(v.Servers, ", "), "–"), cmp.Or(strings.Join(v.Consults, ", "), "–"))
		}
		t.Flush()
	})
}

// load reads the configuration.
func load(proc *cmdenv.Process) (config.Config, error) {
	path, err := cmdenv.ConfigPath("", proc.Getenv)
	if err != nil {
		return config.Config{}, err
	}
	return config.Load(path)
}

// usesOf returns what uses a variable.
func usesOf(cfg *config.Config, name string) variable {
	v := variable{Name: name, Servers: []string{}, Consults: []string{}}
	for _, server := range spelling.Sorted(maps.Keys(cfg.Servers)) {
		if s, _ := cfg.Server(server); slices.Contains(resolve.References(&s), name) {
			v.Servers = append(v.Servers, server)
		}
	}
	for _, e := range engines.List(&cfg.Consult) {
		a, _ := cfg.Consult.Agent(e.Name)
		names := []string{}
		for _, value := range a.Env {
			names = append(names, expand.Names(value.Reveal())...)
		}
		if launch.Uses(e, name) || slices.Contains(names, name) {
			v.Consults = append(v.Consults, e.Name)
		}
	}
	return v
}

// sayUse says which servers and consults use variables that have changed, and has a running daemon start the idle
// servers again.
func sayUse(cmd *cobra.Command, proc *cmdenv.Process, names []string) error {
	cfg, err := load(proc)
	if err != nil {
		return err
	}
	var servers []string
	for _, name := range names {
		v := usesOf(&cfg, name)
		var users []string
		if len(v.Servers) > 0 {
			users = append(users, "servers "+strings.Join(v.Servers, ", "))
		}
		if len(v.Consults) > 0 {
			users = append(users, "consults with "+strings.Join(v.Consults, ", "))
		}
		if len(users) == 0 {
			_ = console.Say(cmd, "no server and no consult uses %s yet; an entry of a server names it as ${%[1]s}", name)
			continue
		}
		_ = console.Say(cmd, "%s is used by %s", name, strings.Join(users, " and "))
		servers = append(servers, v.Servers...)
	}
	slices.SortFunc(servers, spelling.Compare)
	return restartIdle(cmd, proc, slices.Compact(servers))
}

// restartIdle has a running daemon start servers again that it has, and that have no calls in flight. It names the
// others. A server that does not run yet reads the file when it starts.
func restartIdle(cmd *cobra.Command, proc *cmdenv.Process, servers []string) error {
	if len(servers) == 0 {
		return nil
	}
	status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
	if errors.Is(err, socket.ErrNoDaemon) {
		return nil
	} else if err != nil {
		return err
	}
	var failed []error
	for _, name := range servers {
		at := slices.IndexFunc(status.Servers, func(s control.Server) bool { return s.Name == name })
		if at < 0 || status.Servers[at].State == "idle" || status.Servers[at].State == "stopped" {
			continue
		}
		params := control.ServerParams{Whereabouts: attach.Whereabouts(proc), Name: name, Idle: true}
		answer, err := attach.Ask[control.ServerAnswer](cmd, proc, control.ServerReload, params)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s does not start with it: %w", name, err))
		case answer.Busy:
			_ = console.Say(cmd, "%s has calls in flight and goes on with what it had; when it suits: holdline servers reload %[1]s",
				name)
		default:
			_ = console.Say(cmd, "%s is started again", name)
		}
	}
	return errors.Join(failed...)
}
