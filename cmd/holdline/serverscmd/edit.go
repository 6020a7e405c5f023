package serverscmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/clients"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/direct"
	"holdline/cmd/holdline/importer"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/edit"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/redact"
	"holdline/daemon/userenv"
	"holdline/protocol/control"
)

// addOptions are the flags of servers add. Most of them are members of the entry, so that
// cobra writes their values where they go.
type addOptions struct {
	entry

	json         string   // the whole object; then no other flag describes the server
	env, headers []string // as given, NAME=VALUE and "Name: value"
	replace      bool     // a server with the same name
	secretEnv    string   // variable with the secret of an OAuth client
	login        bool     // log in at once
	noCheck      bool     // do not start the server first
	noConnect    bool     // add no entry to the clients' files
	force        bool     // add it though it does not work
}

// newServersAdd returns the command servers add. A flag after the name that belongs to COMMAND
// is a common mistake, so errors of flags get a hint about "--".
func newServersAdd(s *serversCommand) *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use: "add NAME [flags] -- COMMAND [ARG]...\n  holdline servers add NAME [flags] URL\n" +
			"  holdline servers add NAME --json '{...}'",
		Short: "Add a server to the configuration",
		Long: `Add a server to the configuration: a command to run, the address of a remote
server, or the JSON object that other clients' configurations have for it.

    holdline servers add memory -- npx -y @modelcontextprotocol/server-memory
    holdline servers add github --env 'TOKEN=${GITHUB_TOKEN}' -- mcp-github
    holdline servers add sentry --scope shared https://mcp.sentry.dev/mcp
    holdline servers add files --json '{"command": "npx", "args": ["server"]}'

${NAME} and ${NAME:-default} are replaced when the server is started, by
variables of --env-file, of ~/.config/holdline/env (mode 0600) and of the
environment: so secrets need not stand in the configuration. Mind the quotes:
within single ones, your shell leaves them alone.

The server is started once, as servers test does, and ended. It is added if it works,
and each client that setup has connected gets an entry for it, except with --no-connect.
A server that does not start or cannot be reached is not added, except with --force.

A remote server that requires a login is added. Log in with holdline servers login NAME,
or at once with --login; on a terminal the command offers it.

Scopes: project (one process for each project, started in its root; default),
shared (one for all), session (one for each agent).`,
		// COMMAND may have any number of arguments, so only the name is asked for here.
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%w: NAME is missing", cmdenv.ErrUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return s.addServer(cmd, args, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.json, "json", "", "the server's JSON object, instead of a command or an address")
	f.StringVarP(&o.Type, "transport", "t", "", "stdio or http (default: http for an address, else stdio)")
	f.StringVarP(&o.Hosting.Scope, "scope", "s", "", "project, shared or session (default project)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "NAME=VALUE for the server's environment (again for more)")
	f.StringArrayVarP(&o.headers, "header", "H", nil, `"Name: value" for a remote server (again for more)`)
	f.StringVar(&o.Cwd, "cwd", "", "where it runs (default: the project's root; shared: your home)")
	f.StringVar(&o.EnvFile, "env-file", "", "file with NAME=VALUE lines for ${NAME} (mode 0600)")
	f.StringVar(&o.Hosting.Contract, "contract", "", "convergent or never_replay, for all its tools")
	f.StringArrayVar(&o.Hosting.Allow, "allow", nil, "glob of tools that may be used (again for more)")
	f.StringArrayVar(&o.Hosting.Deny, "deny", nil, "glob of tools that may not be used (again for more)")
	f.StringArrayVar(&o.Hosting.Projects, "project", nil,
		"directory in whose projects it is seen (again for more; default everywhere)")
	f.BoolVar(&o.Hosting.Lazy, "lazy", false, "start it at the first use")
	f.BoolVar(&o.Disabled, "disabled", false, "add it disabled")
	f.BoolVar(&o.replace, "replace", false, "replace a server of that name")
	f.BoolVar(&o.login, "login", false, "log in to a remote server at once, if it wants that")
	f.BoolVar(&o.noCheck, "no-check", false, "do not start it first, nor ask it whether it wants a login")
	f.BoolVar(&o.force, "force", false, "add it even if it does not start or cannot be reached")
	f.BoolVar(&o.noConnect, "no-connect", false, "add no entry for it to your agents' files")
	f.StringVar(&o.OAuth.ClientID, "client-id", "", "client that you have registered at its authorization server")
	f.StringVar(&o.secretEnv, "client-secret-env", "", "NAME of the variable with that client's secret")
	f.IntVar(&o.OAuth.CallbackPort, "callback-port", 0, "port of its redirect URI http://localhost:PORT/callback")
	f.StringArrayVar(&o.OAuth.Scopes, "oauth-scope", nil,
		"scope to log in for, not those of the server (again for more)")
	f.StringVar(&o.OAuth.Account, "account", "", "label that keeps two logins to one address apart")
	cmd.MarkFlagsMutuallyExclusive("login", "no-check")
	cmd.MarkFlagsMutuallyExclusive("force", "no-check")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		err = cmd.Parent().FlagErrorFunc()(cmd, err)
		name := append(cmd.Flags().Args(), "NAME")[0] // those before the flag
		switch dash := slices.Index(s.proc.Args, "--"); {
		case dash < 0:
			return cmdenv.WithHint(err, "put -- before COMMAND, as in: "+example(name))
		case dash == len(s.proc.Args)-1:
			return cmdenv.WithHint(fmt.Errorf("%w; and COMMAND is missing behind the --", err),
				"for example: "+example(name))
		}
		return err
	})
	return cmd
}

// example returns a whole command that adds a server of that name.
func example(name string) string {
	return "holdline servers add " + name + " -- npx -y @modelcontextprotocol/server-filesystem ."
}

// edits returns the commands enable and disable. Each changes the entry of one server, by [serversCommand.editFile].
func (s *serversCommand) edits() []*cobra.Command {
	toggle := func(use, short, done string, on bool) *cobra.Command {
		return &cobra.Command{
			Use: use + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return s.editFile(cmd, args[0], done, func(path string) (bool, error) {
					return edit.EnableServer(cmd.Context(), path, args[0], on)
				})
			},
		}
	}
	return []*cobra.Command{
		toggle("enable", "Enable a server", "enabled", true),
		toggle("disable", "Disable a server, which stays in the configuration", "disabled", false),
	}
}

// editFile changes the configuration file by change, prints what was done to the server, and has a
// running daemon read the file. done says it in a word, for example "removed". If change
// reports that nothing is different, editFile prints that, and the daemon is not asked.
//
// The error may be that of the daemon, which goes on with its old configuration: then the file
// is written all the same.
func (s *serversCommand) editFile(
	cmd *cobra.Command, name, done string, change func(path string) (changed bool, err error),
) error {
	path, err := cmdenv.ConfigPath(s.file, s.proc.Getenv)
	if err != nil {
		return err
	}
	if err := attach.CheckEdit(s.proc, path); err != nil {
		return err
	}
	// Package config checks and edits the file, and keeps its comments.
	changed, err := change(path)
	switch {
	case errors.Is(err, edit.ErrServerExists):
		return replaceHint(fmt.Errorf("%w in %s", err, path), name)
	case err != nil:
		return err
	case !changed:
		return console.Say(cmd, "server %s was %s already in %s", name, done, path)
	}
	_ = console.Say(cmd, "server %s %s in %s", name, done, path)
	return attach.ReloadFile(cmd, s.proc, path)
}

// addServer adds a server to the configuration file, and warns of what would keep it from starting.
// args are the name and what stands behind it.
func (s *serversCommand) addServer(cmd *cobra.Command, args []string, o addOptions) error {
	name, rest := args[0], args[1:]
	// With -- before the name, the name may be the command.
	if cmd.ArgsLenAtDash() == 0 {
		return cmdenv.WithHint(fmt.Errorf("%w: NAME is missing", cmdenv.ErrUsage),
			"put it before the --: holdline servers add NAME -- COMMAND ARG...")
	}
	object, err := o.object(rest)
	if err != nil && len(rest) == 0 && o.json == "" {
		err = cmdenv.WithHint(err,
			"for example: "+example(name)+"; or a remote one: holdline servers add "+name+" https://mcp.example.com/mcp")
	}
	if err != nil {
		return err
	}
	if err := s.tryNew(cmd, name, object, &o); err != nil {
		return err
	}
	err = s.editFile(cmd, name, "added", func(path string) (bool, error) {
		return true, edit.AddServer(cmd.Context(), path, name, object, o.replace)
	})
	if err != nil {
		return err
	}
	s.warnOfEntry(cmd, name)
	failed := s.connectClients(cmd, name, &o)
	if !o.noCheck {
		if err := s.checkLogin(cmd, name, o.login); err != nil {
			return err
		}
	}
	return failed
}

// tryNew starts a server that is to be added, as servers test does, and says what it lists. The error says why it
// does not work; with --force that is a warning. A server that needs a login works: somebody can log in.
func (s *serversCommand) tryNew(cmd *cobra.Command, name string, object []byte, o *addOptions) error {
	path, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	if err := attach.CheckEdit(s.proc, path); err != nil {
		return err
	}
	if _, there := cfg.Servers[name]; there && !o.replace {
		return replaceHint(fmt.Errorf("server %s %w in %s", name, edit.ErrServerExists, path), name)
	}
	one, err := edit.ParseServer(name, object)
	if err != nil {
		return err
	}
	settings, _ := one.WithHome(s.proc.Getenv("HOME")).Server(name)
	if err := settings.Unusable(); err != nil {
		return err
	}
	if o.noCheck || !settings.Enabled || settings.Host != "" { // only the daemon can start it on another host
		return nil
	}
	tools, took, err := s.try(cmd, path, &settings)
	switch {
	case err == nil:
		printTested(cmd.OutOrStdout(), name, &tools, took)
		return nil
	case errors.Is(err, direct.ErrNeedsLogin):
		return nil
	case cmd.Context().Err() != nil:
		return errors.New("interrupted: the server is ended, and was not added")
	case o.force:
		console.Lines(cmd.ErrOrStderr(), fmt.Sprintf("warning: %s does not work: %v", name, err))
		return nil
	}
	return cmdenv.WithHint(fmt.Errorf("%s does not work, and was not added: %w", name, err),
		"--force adds it all the same; --no-check does not start it first")
}

// connectClients adds an entry for a server to each client that has entries for single servers, as setup writes
// them: without one, the client does not see the server.
func (s *serversCommand) connectClients(cmd *cobra.Command, name string, o *addOptions) error {
	_, cfg, err := s.loadConfig()
	settings, ok := cfg.Server(name)
	if err != nil || !ok || s.isOtherFile() {
		return nil //nolint:nilerr // it was read a moment ago
	}
	if o.noConnect || !settings.Enabled || len(settings.Projects) > 0 { // an entry would fail elsewhere
		s.sayUnseen(cmd, name)
		return nil
	}
	look, err := s.clients(s.proc)
	if err != nil {
		return err
	}
	done, titles, err := importer.Connect(cmd.Context(), look, name, time.Now())
	if err != nil {
		return fmt.Errorf("%s is added, but your agents have no entry for it: %w", name, err)
	}
	if len(titles) > 0 {
		_ = console.Say(cmd, "its entry is added to %s; restart these agents to see it", strings.Join(titles, ", "))
	}
	for _, l := range done.Left {
		console.Warn(cmd, "%s", strings.Map(console.Printable, "no entry in "+l.Path+": "+l.Why))
	}
	return nil
}

// replaceHint adds to the error of a name that is taken what the user can do.
func replaceHint(err error, name string) error {
	return cmdenv.WithHint(err, "add --replace, or first: holdline servers remove "+name)
}

// object returns the JSON object of the server that the flags and the arguments after the name
// describe. It refuses flags that do not fit the transport. [edit.AddServer] checks the
// values.
func (o addOptions) object(args []string) ([]byte, error) {
	if o.json != "" {
		described := string(clients.Encode(o.entry)) != "{}"
		if len(args)+len(o.env)+len(o.headers)+len(o.secretEnv) > 0 || described {
			return nil, fmt.Errorf(
				"%w: --json says everything: neither COMMAND nor another flag but --replace goes with it",
				cmdenv.ErrUsage)
		}
		return []byte(o.json), nil
	}
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: COMMAND or URL is missing", cmdenv.ErrUsage)
	}
	e := o.entry
	// Without --transport, an address tells a remote server from a command.
	remote := e.Type == config.HTTP || e.Type == config.SSE ||
		e.Type == "" && (strings.HasPrefix(args[0], "http://") || strings.HasPrefix(args[0], "https://"))
	switch {
	case remote && len(args) > 1:
		return nil, fmt.Errorf("%w: a remote server has an address and no arguments", cmdenv.ErrUsage)
	case !remote && (!reflect.ValueOf(e.OAuth).IsZero() || o.secretEnv != "" || o.login):
		return nil, fmt.Errorf("%w: only a remote server has a login", cmdenv.ErrUsage)
	case remote && len(o.env)+len(e.Cwd) > 0:
		return nil, fmt.Errorf("%w: a remote server has neither --env nor --cwd", cmdenv.ErrUsage)
	case !remote && len(o.headers) > 0:
		return nil, fmt.Errorf("%w: only a remote server has --header", cmdenv.ErrUsage)
	case remote:
		e.URL = args[0]
	default:
		e.Command, e.Args = args[0], args[1:]
	}
	if o.secretEnv != "" {
		e.OAuth.ClientSecret = "${" + o.secretEnv + "}"
	}
	var err error
	if e.Env, err = parsePairs(o.env, "=", "--env wants NAME=VALUE"); err != nil {
		return nil, err
	}
	if e.Headers, err = parsePairs(o.headers, ":", `--header wants "Name: value"`); err != nil {
		return nil, err
	}
	// The daemon does not run in the user's directory, so paths become absolute.
	e.Hosting.Projects = slices.Clone(e.Hosting.Projects)
	paths := []*string{&e.Cwd, &e.EnvFile}
	for i := range e.Hosting.Projects {
		paths = append(paths, &e.Hosting.Projects[i])
	}
	for _, path := range paths {
		if *path, err = absolute(*path); err != nil {
			return nil, err
		}
	}
	return clients.Encode(e), nil
}

// entry is the JSON object of a server. Its members are in the order in which people write
// them. A flag of its own sets each member but URL, Command and Args, which are arguments.
type entry struct {
	Type     string   `json:"type,omitempty"`
	URL      string   `json:"url,omitempty"`
	Command  string   `json:"command,omitempty"`
	Args     []string `json:"args,omitempty"`
	Env      pairs    `json:"env,omitempty"`
	Headers  pairs    `json:"headers,omitempty"`
	OAuth    oauth    `json:"oauth,omitzero"`
	Cwd      string   `json:"cwd,omitempty"`
	EnvFile  string   `json:"env_file,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
	Hosting  hosting  `json:"holdline,omitzero"`
}

// oauth is the object of that name of an entry: how to log in. It has those settings that are most
// used; the file may have more.
type oauth struct {
	ClientID     string   `json:"clientId,omitempty"`
	ClientSecret string   `json:"clientSecret,omitempty"`
	CallbackPort int      `json:"callbackPort,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	Account      string   `json:"account,omitempty"`
}

// hosting is the object "holdline" of an entry: the settings that no other client knows. It has
// those that are most used; the file may have more.
type hosting struct {
	Scope    string   `json:"scope,omitempty"`
	Lazy     bool     `json:"lazy,omitempty"`
	Contract string   `json:"contract,omitempty"`
	Allow    []string `json:"allow,omitempty"`
	Deny     []string `json:"deny,omitempty"`
	Projects []string `json:"projects,omitempty"`
}

// pairs are the members of a JSON object whose values are strings. They keep the
// order of the command line, and names that occur twice: the configuration
// refuses those.
type pairs [][2]string

// MarshalJSON returns the pairs as one object, in their order.
func (p pairs) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, kv := range p {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, clients.Encode(kv[0])...), ':')
		b = append(b, clients.Encode(kv[1])...)
	}
	return append(b, '}'), nil
}

// parsePairs splits each word of list at sep into a name and a value. The error
// is a usage error that says what is wanted; it does not show the word, which may
// hold a secret.
func parsePairs(list []string, sep, want string) (pairs, error) {
	var out pairs
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, sep)
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: %s", cmdenv.ErrUsage, want)
		}
		// What stands behind the colon of a header begins with a space, as in HTTP.
		if sep == ":" {
			value = strings.TrimSpace(value)
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// absolute returns path as the user's shell would understand it, since the daemon runs in
// another directory. It leaves paths in the home directory and paths that begin with a
// variable as they are.
func absolute(path string) (string, error) {
	if path == "" || path == "~" || strings.HasPrefix(path, "~/") || strings.HasPrefix(path, "${") {
		return path, nil
	}
	return filepath.Abs(path)
}

// warnOfEntry prints to stderr what keeps a server that was added from starting, and what makes its
// entry unsafe. None of that makes the command fail: what the server lacks may come later.
func (s *serversCommand) warnOfEntry(cmd *cobra.Command, name string) {
	// The file was written a moment ago. If it cannot be read now there is nothing to say
	// about the server.
	path, cfg, err := s.loadConfig()
	if err != nil {
		return
	}
	settings, ok := cfg.Server(name)
	if !ok {
		return
	}
	warn := func(format string, args ...any) {
		console.Lines(cmd.ErrOrStderr(), fmt.Sprintf("warning: "+format, args...))
	}
	sees, unset := s.daemonSees(cmd, settings)
	if len(unset) > 0 {
		warn("%s is not set: the server starts only once it is, in %s; to keep it: holdline env set %s",
			strings.Join(unset, " and "), s.places(settings), strings.Join(unset, " "))
	}
	// A command with a variable is only known when the server starts.
	if settings.Transport == config.Stdio && !strings.Contains(settings.Command, "${") {
		if err := s.findable(settings.Command, sees); err != nil {
			warn("%v", err)
		}
	}
	// A value that is written out may be a secret. One that names a variable is none.
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o044 != 0 && literal(settings) {
		warn("%s can be read by others (mode %04o) and values of env or headers stand in it: "+
			"chmod 600 it, or write ${NAME}",
			path, info.Mode().Perm())
	}
}

// sayUnseen says which clients have entries for single servers only, as setup writes them, and so
// do not see a server that was added, with the entry that they need.
func (s *serversCommand) sayUnseen(cmd *cobra.Command, name string) {
	look, err := s.clients(s.proc)
	if err != nil {
		return
	}
	plan, err := importer.Look(cmd.Context(), look)
	if err != nil {
		return // doctor says what is wrong with the clients' files
	}
	var titles, fixes []string
	entry := name + " -- holdline mcp-stdio --server " + name
	for _, f := range plan.Files {
		if f.Project != "" || !f.Connected() || f.Sees(name) {
			continue
		}
		titles = append(titles, f.Title)
		if add := clients.ByName(f.Client).Add; add != "" {
			fixes = append(fixes, "  "+add+" "+entry)
		}
	}
	if len(titles) == 0 {
		return
	}
	console.Lines(cmd.ErrOrStderr(), fmt.Sprintf("note: %s: no entry is for %s yet, since each server has one "+
		"of its own. Add an entry that starts: holdline mcp-stdio --server %[2]s", strings.Join(titles, ", "), name))
	for _, fix := range fixes {
		fmt.Fprintln(cmd.ErrOrStderr(), fix)
	}
}

// literal reports whether the entry has a value of a variable or header that is written out,
// and so may be a secret. A value with a reference in it counts as none, whatever stands around
// the reference.
func literal(s config.Settings) bool {
	for _, m := range []map[string]redact.Secret{s.Env, s.Headers} {
		for _, value := range m {
			if !strings.Contains(value.Reveal(), "${") {
				return true
			}
		}
	}
	return false
}

// daemonSees returns what the daemon knows of a server's program, and the variables that the
// server lacks. If no daemon runs, sees is nil and the variables of this shell count.
func (s *serversCommand) daemonSees(
	cmd *cobra.Command, settings config.Settings,
) (sees *control.EnvironmentAnswer, unset []string) {
	// Only a command without a slash is looked for on a PATH.
	params := control.EnvironmentParams{Variables: resolve.Around{Home: "/", Root: "/"}.Unset(settings)}
	if settings.Transport == config.Stdio && !strings.Contains(settings.Command, "/") {
		params.Programs = []string{settings.Command}
	}
	answer, err := attach.Ask[control.EnvironmentAnswer](cmd, s.proc, control.Environment, params)
	if err != nil {
		return nil, s.unset(settings)
	}
	// A file of variables that the entry names counts besides those that the daemon knows.
	ofServer := expand.Lookup(s.variables(settings.EnvFile))
	return &answer, slices.DeleteFunc(slices.Clone(answer.Unset), func(name string) bool {
		_, set := ofServer(name)
		return set
	})
}

// findable returns an error if the daemon would not find a command. sees is the answer of
// [serversCommand.daemonSees]; if it is nil, the PATH of this shell counts. The error says where
// the daemon looks, and how it can be made to look where this shell does.
func (s *serversCommand) findable(name string, sees *control.EnvironmentAnswer) error {
	_, err := command.LookPath(name, command.Variable(s.proc.Environ(), "PATH"))
	switch {
	case strings.Contains(name, "/"):
		return command.CheckExecutable(name)
	case sees == nil && err != nil:
		return fmt.Errorf("%s is nowhere on the PATH; the daemon looks on that of your login shell", name)
	case sees == nil || len(sees.Programs) > 0:
		return nil
	}
	// Say where the daemon looks, and where this shell has the program, if it has it.
	var where []string
	for _, p := range sees.Paths {
		where = append(where, strings.Join(p.Dirs, ", ")+" ("+p.Source+")")
	}
	text := fmt.Sprintf("%s is nowhere that the daemon looks: %s", name, strings.Join(where, "; "))
	if help := userenv.ShellHas(name, s.proc.Environ()); help != "" {
		text += ". " + help
	}
	return errors.New(text)
}
