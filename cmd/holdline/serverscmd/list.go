// Package serverscmd has the commands about MCP servers: servers with its subcommands,
// and reload.
//
// Three kinds of commands are below servers. list and get read the configuration file,
// and ask a running daemon how the servers are (list.go, live.go). add, edit, remove, enable
// and disable change the file, and have a running daemon read it again (edit.go, editentry.go, reload.go).
// The others ask the daemon to do something with processes of servers (control.go), or
// show what has become of their tools (changes.go).
//
// The file and the running daemon may differ: the daemon may read another file, or may have
// refused the last edit. So list says if it is another file, and an edit ends with the
// daemon's answer.
package serverscmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/importer"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/envfile"
	"holdline/daemon/launch"
	"holdline/daemon/leaf"
	"holdline/daemon/redact"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
)

// NewCommand returns the command servers and those below it. Without a subcommand it is
// servers list. clients returns what package importer needs to find the entries of all MCP clients.
func NewCommand(proc *cmdenv.Process, clients func(*cmdenv.Process) (importer.Options, error)) *cobra.Command {
	s := &serversCommand{proc: proc, clients: clients, files: map[string][]string{}}
	cmd := console.WithJSON(&cobra.Command{
		Use:   "servers",
		Short: "List, add, log in to, start and call the servers that agents share",
		Long: `List the MCP servers that the configuration names and, if a daemon runs, how they
are. The number of tools is what the server's process listed last.

add, edit, remove, enable and disable change the configuration file, whose comments they
keep, and have a running daemon read it again. start, stop, restart, reload, tools,
call and logs are about the daemon's processes.

With --json, a list of objects: name, enabled, transport (stdio, http, sse, or
elsewhere: a command on another host), host, host_window_ms, scope, command, args
and url (without secrets), cwd, env and headers (names only), env_file, lazy,
keep_alive_ms, card, contract, allow, deny, projects, pin, timeout_ms,
max_timeout_ms, start_timeout_ms, max_concurrent, max_restarts, restart_window_ms,
circuit_threshold, circuit_reset_ms, inherit_env, confine, write, network, held_by
(what holds a confined server), limits, limits_held_by (with get), launches (with get, of a
server that npx or the like starts: dir, program, why (it is started with that),
at, saves_bytes, saves_processes), unset (variables that the server needs and that are
not set), left_out (why it is not served though nobody has disabled it), login (of a remote server: state, account, issuer,
resource, scopes, wanted_scopes, expires_unix_ms, renews, why, since_unix_ms,
next_try_unix_ms; no secret), live (how a running daemon has it: an object
as under "servers" in status --json).`,
		RunE: s.listServers,
	})
	list := console.WithJSON(&cobra.Command{
		Use: "list", Aliases: []string{"ls", "ps"}, Short: "List the servers", RunE: s.listServers,
	})
	get := console.WithJSON(&cobra.Command{
		Use: "get NAME", Short: "Show what the configuration says of a server, defaults included",
		Args: cobra.ExactArgs(1), RunE: s.showServer,
	})
	// The other commands ask the daemon, which has a file of its own.
	ofFile := append(s.edits(), list, get, newServersAdd(s), s.newEditEntry(), newRemove(s), newLogin(s), newLogout(s))
	cmd.AddCommand(ofFile...)
	for _, one := range append(ofFile, cmd) {
		console.ConfigFlag(one.Flags(), &s.file)
	}
	cmd.AddCommand(s.controls()...)
	return cmd
}

// serversCommand has what the commands below servers share. There is one for each run of the
// program, and one goroutine uses it.
type serversCommand struct {
	proc *cmdenv.Process
	file string // the flag --config

	clients func(*cmdenv.Process) (importer.Options, error) // see [NewCommand]

	// files has the variables of each file that was read, by its path, so that an error
	// is printed once.
	files map[string][]string
}

// server is a server as servers list and servers get print it with --json. It has no value that
// may be secret: of variables and headers only the names, and args and url are redacted.
type server struct {
	Name      string   `json:"name"`
	Enabled   bool     `json:"enabled"`
	Transport string   `json:"transport"`
	Command   string   `json:"command,omitempty"`
	Args      []string `json:"args,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	URL       string   `json:"url,omitempty"`
	Env       []string `json:"env,omitempty"`     // names
	Headers   []string `json:"headers,omitempty"` // names
	// Commands are those that print secrets, as KEY: COMMAND, without secrets in arguments.
	Commands []string `json:"commands,omitempty"`

	hosting []config.Value // MarshalJSON adds them under their keys

	HeldBy       string          `json:"held_by,omitempty"`        // what holds it, if it is confined
	LimitsHeldBy string          `json:"limits_held_by,omitempty"` // what holds its limits; of servers get
	LeftOut      string          `json:"left_out,omitempty"`       // why it is left out, for people
	Unset        []string        `json:"unset,omitempty"`
	Launches     []leaf.Known    `json:"launches,omitempty"` // how it was started by its launcher; of servers get
	Login        *control.Login  `json:"login,omitempty"`    // of a remote server
	Live         *control.Server `json:"live,omitempty"`     // nil without a daemon that hosts it
}

// serverOf returns the settings of a server as they are printed, with the variables that it
// lacks. Live is left out.
func serverOf(s config.Settings, unset []string) server {
	leftOut := ""
	if err := s.Unusable(); err != nil {
		leftOut = err.Error()
	}
	return server{
		LeftOut: leftOut,
		Name:    s.Name, Enabled: s.Enabled, Transport: s.Transport,
		Command: s.Command, Args: redact.Args(s.Args), Cwd: s.Cwd, URL: redact.URL(s.URL),
		Env: variables(s), Headers: names(s.Headers), Commands: commands(s), hosting: s.Values(), Unset: unset,
		HeldBy: launch.HeldBy(&s),
	}
}

// MarshalJSON returns the members of the struct, and then the settings that control the
// hosting, under their own keys. Settings that do not apply to the server are left out.
func (s server) MarshalJSON() ([]byte, error) {
	type plain server // without this method, which would call itself
	b, err := json.Marshal(plain(s))
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1] // without the closing brace
	for _, v := range s.hosting {
		if !v.Set || v.Key == "disabled" { // the member enabled has it
			continue
		}
		value, err := json.Marshal(v.JSON)
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(b, ",%q:%s", v.JSONKey(), value)
	}
	return append(b, '}'), nil
}

// names returns the names of variables or headers, sorted. It leaves out their values, which
// may be secret.
func names(m map[string]redact.Secret) []string { return slices.Sorted(maps.Keys(m)) }

// variables returns the names of the variables that a server's entry sets.
func variables(s config.Settings) []string {
	return slices.Sorted(slices.Values(append(names(s.Env), slices.Collect(maps.Keys(s.EnvCommands))...)))
}

// commands returns the commands that print secrets of a server, each behind the key of its value.
func commands(s config.Settings) []string {
	var out []string
	for _, use := range s.CommandUses() {
		out = append(out, use.Key+": "+use.Shown())
	}
	return out
}

// loadConfig reads the configuration file that the commands are about. A missing file is one without
// servers. cfg has absolute paths in place of those that begin with ~/.
func (s *serversCommand) loadConfig() (path string, cfg config.Config, err error) {
	if path, err = cmdenv.ConfigPath(s.file, s.proc.Getenv); err != nil {
		return "", cfg, err
	}
	cfg, err = config.Load(path)
	return path, cfg.WithHome(s.proc.Getenv("HOME")), err
}

// listServers prints the configured servers, sorted by name, with their status if a daemon runs that
// reads the same file, and warns of variables that enabled servers lack.
func (s *serversCommand) listServers(cmd *cobra.Command, _ []string) error {
	path, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	all := make([]config.Settings, 0, len(cfg.Servers))
	for _, name := range spelling.Sorted(maps.Keys(cfg.Servers)) {
		settings, _ := cfg.Server(name)
		all = append(all, settings)
	}
	// The list does not need a daemon: without one, the columns about processes are left out.
	live, known, err := s.liveServers(cmd, path)
	if err != nil {
		return err
	}
	if console.IsJSON(cmd) {
		out := make([]server, len(all))
		for i, settings := range all {
			out[i] = serverOf(settings, s.unset(settings))
			out[i].Login = s.loginOf(&cfg, settings, live)
			if one, ok := live[settings.Name]; ok {
				out[i].Live = &one
			}
		}
		return console.PrintJSON(cmd.OutOrStdout(), out)
	}
	if len(all) == 0 {
		return console.Say(cmd, "%s names no server; add one with: holdline servers add NAME -- COMMAND ARG...", path)
	}
	s.printTable(cmd, all, live, known)
	var confined Confined
	for _, settings := range all {
		confined.Add(settings.Name, "confined", settings.Confine, launch.HeldBy(&settings))
	}
	confined.addLimits(slices.Collect(maps.Values(live)))
	confined.Print(cmd.OutOrStdout())
	for _, settings := range all {
		if err := settings.Unusable(); err != nil {
			console.Line(cmd.OutOrStdout(), 2, "%s: %v", settings.Name, err)
		}
	}
	for _, settings := range all {
		l := s.loginOf(&cfg, settings, live)
		if l == nil || !settings.Enabled {
			continue
		}
		if words, fix := l.Words(settings.Name); fix != "" {
			console.Line(cmd.OutOrStdout(), 2, "%s: %s: %s", settings.Name, words, fix)
		} else if words != "" {
			console.Line(cmd.OutOrStdout(), 2, "%s: %s", settings.Name, words)
		}
	}
	// A disabled server does not start, so it may lack variables.
	for _, settings := range all {
		if unset := s.unset(settings); len(unset) > 0 && settings.Enabled {
			console.Warn(cmd, "server %s needs %s, not set in %s",
				settings.Name, strings.Join(unset, ", "), s.places(settings))
		}
	}
	return nil
}

// printTable prints a row for each configured server. known reports whether live has the status of
// the servers that the daemon hosts; if not, the columns of the status are left out. What runs
// comes last, since only the last cell of a row may be long.
func (s *serversCommand) printTable(
	cmd *cobra.Command, all []config.Settings, live map[string]control.Server, known bool,
) {
	head := []string{"SERVER", "STATE", "TRANSPORT", "SCOPE"}
	if known {
		head = append(head, "SESSIONS", "RESTARTS", "TOOLS")
	}
	t := console.NewTable(cmd.OutOrStdout(), append(head, "RUNS")...)
	t.Optional("TRANSPORT", "RESTARTS", "SCOPE")
	var hosted []control.Server
	for _, settings := range all {
		one, ok := live[settings.Name]
		row := []any{settings.Name, Paint(cmp.Or(one.State, state(settings))), settings.Transport, settings.Scope}
		// A server that the file got a moment ago is not hosted yet.
		switch {
		case ok:
			hosted = append(hosted, one)
			row = append(row, one.RefCount, one.Restarts, toolCount(&one))
		case known:
			row = append(row, "", "", "")
		}
		if settings.Transport == config.Stdio {
			t.Row(append(row, commandOf(settings))...)
		} else {
			t.Row(append(row, runs(settings))...)
		}
	}
	t.Flush()
	printTroubles(cmd.OutOrStdout(), hosted)
}

// loginOf returns the login of a remote server, as the daemon sees it or, without one, as its
// files say; nil for other servers.
func (s *serversCommand) loginOf(cfg *config.Config, settings config.Settings, live map[string]control.Server,
) *control.Login {
	if one, ok := live[settings.Name]; ok {
		return one.Login
	}
	if !settings.LogsIn() {
		return nil
	}
	path, err := cmdenv.ConfigPath(s.file, s.proc.Getenv)
	if err != nil {
		return nil
	}
	from := launch.Start{Config: path, Home: s.proc.Getenv("HOME"), Environ: s.proc.Environ()}
	id, err := from.Target(&settings)
	if err != nil {
		return nil // what the entry lacks is said beside it
	}
	store, err := s.store(&cfg.Logins)
	if err != nil {
		return nil
	}
	return launch.ShowLogin(store, id, settings.OAuth.Grant == config.GrantMachine)
}

// state returns whether a server is enabled, in a word.
func state(s config.Settings) string {
	switch {
	case s.Unusable() != nil:
		return "left out"
	case s.Enabled:
		return "enabled"
	}
	return "disabled"
}

// runs returns the command line or the address of a server, without secrets.
func runs(s config.Settings) string {
	if !s.HasCommand() {
		return redact.URL(s.URL)
	}
	if s.Host != "" {
		return s.Host + ": " + commandOf(s).String()
	}
	return commandOf(s).String()
}

// showServer prints the settings of one server as the file has them. It asks the daemon, if one
// runs, only by what the server's limits are held.
func (s *serversCommand) showServer(cmd *cobra.Command, args []string) error {
	path, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	settings, ok := cfg.Server(args[0])
	if !ok {
		return config.NoServer(args[0], &cfg)
	}
	unset := s.unset(settings)
	shown := serverOf(settings, unset)
	if settings.Bounds != (config.Bounds{}) {
		live, _, err := s.liveServers(cmd, path)
		if err != nil {
			return err
		}
		shown.LimitsHeldBy = cmp.Or(live[settings.Name].LimitsHeldBy, "nothing, as it does not run")
	}
	if settings.Launcher == config.LauncherDirect && leaf.IsLauncher(settings.Command, settings.Args) {
		state, err := cmdenv.StateDir(s.proc.Getenv)
		if err != nil {
			return err
		}
		shown.Launches = leaf.Open(statedir.In(state).Launches).Known(settings.Name)[settings.Name]
	}
	return console.Print(cmd, shown, func(out io.Writer) { printSettings(out, settings, &shown) })
}

// printSettings prints the settings of a server as rows of names and values, defaults
// included. Values of variables and headers are never shown.
func printSettings(out io.Writer, settings config.Settings, shown *server) {
	t := console.NewDetails(out, "SERVER", settings.Name)
	t.Row("state", state(settings))
	if err := settings.Unusable(); err != nil {
		t.Row("why", err.Error())
	}
	t.Row("transport", settings.Transport)
	t.Row("runs", runs(settings))
	if settings.HasCommand() {
		// An empty directory depends on the scope; say which one it is.
		cwd := settings.Cwd
		switch {
		case cwd == "" && (settings.Scope == config.ScopeShared || settings.Host != ""):
			cwd = "the home directory"
		case cwd == "":
			cwd = "the project's root"
		}
		t.Row("cwd", cwd)
		t.Row("env", strings.Join(variables(settings), " "))
	} else {
		t.Row("headers", strings.Join(names(settings.Headers), " "))
	}
	for _, one := range commands(settings) {
		t.Row("secret by", one)
	}
	if len(shown.Unset) > 0 {
		t.Row("not set", strings.Join(shown.Unset, " "))
	}
	for _, v := range settings.Values() {
		if v.Set && v.Key != "disabled" {
			t.Row(v.Key, v.Text)
		}
	}
	if words := launch.HeldBy(&settings); words != "" {
		t.Row("held by", words)
	}
	if shown.LimitsHeldBy != "" {
		t.Row("limits held by", shown.LimitsHeldBy)
	}
	for _, one := range shown.Launches {
		how := "with its launcher: " + one.Why
		if one.Why == "" {
			how = "directly: " + strings.Join(one.Program, " ")
		}
		t.Row("in "+one.Dir, how)
	}
	t.Flush()
}

// unset returns the names of the variables that a server lacks. It is a guess: it looks in the
// environment of this shell, and the daemon has that of a login shell. The files of variables
// are those that the daemon reads.
func (s *serversCommand) unset(settings config.Settings) []string {
	return resolve.Around{
		Environ: s.proc.Environ(), Variables: s.variables(s.variablesPath()),
		EnvFile: s.variables(settings.EnvFile), Home: "/", Root: "/",
	}.Unset(settings)
}

// variables returns the variables of a file, as NAME=VALUE. It returns none if the file cannot
// be read, and prints why if the file exists. It reads each file once.
func (s *serversCommand) variables(path string) []string {
	if list, known := s.files[path]; known || path == "" {
		return list
	}
	list, err := envfile.Read(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(s.proc.Stderr, "holdline: %v\n", err)
	}
	s.files[path] = list
	return list
}

// places returns the places where a server's variables can be set, for people: files first, in
// the order in which they count.
func (s *serversCommand) places(settings config.Settings) string {
	var out []string
	for _, path := range []string{settings.EnvFile, s.variablesPath()} {
		if path != "" {
			out = append(out, path)
		}
	}
	return strings.Join(append(out, "the environment"), ", ")
}

// variablesPath returns the path of the file of variables for all servers, or "" if
// there is no directory for one.
func (s *serversCommand) variablesPath() string {
	path, err := cmdenv.ConfigPath(s.file, s.proc.Getenv)
	if err != nil {
		return ""
	}
	return envfile.Path(path)
}
