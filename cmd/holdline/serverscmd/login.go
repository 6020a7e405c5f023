package serverscmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/launch"
	"holdline/daemon/login"
	"holdline/daemon/login/flow"
	"holdline/daemon/redact"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// maxAnswer bounds a line that a person pastes, in bytes.
const maxAnswer = 16 << 10

// loginOptions are the flags of servers login.
type loginOptions struct {
	paste, device, noBrowser, force bool
	scopes                          []string
	issuer, clientID                string
	timeout                         time.Duration

	// show gets the start address, for another person to open. Nil opens it here.
	show func(address string) error
}

// newLogin returns the command servers login.
func newLogin(s *serversCommand) *cobra.Command {
	var o loginOptions
	cmd := &cobra.Command{
		Use: "login [NAME]", Short: "Log in to a remote server, for all agents",
		Long: `Log in to a remote server that requires a login (OAuth). Without NAME, log in to each
server that needs it, one after the other.

The login is kept for all agents and projects, and renews itself. Agents need not be
started again.

A browser is opened here. On a machine without one, such as over ssh, the server's page
for codes is used if it has one. Otherwise, or with --paste, the address to open is
printed, and you paste back the address where the browser ended up.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.logIn(cmd, args, &o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.paste, "paste", false, "use a browser elsewhere, and paste its last address here")
	f.BoolVar(&o.device, "device", false, "enter a code in a browser elsewhere, if the server offers that")
	f.BoolVar(&o.noBrowser, "no-browser", false, "print the address only, for a browser on this machine")
	f.StringArrayVar(&o.scopes, "scope", nil, "scope to ask for, besides those that the server wants (again for more)")
	f.StringVar(&o.issuer, "issuer", "", "authorization server to log in at, if the server has several")
	f.StringVar(&o.clientID, "client-id", "", "client that you have registered at the authorization server")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait for you")
	f.BoolVar(&o.force, "force", false, "log in also where there is a login")
	cmd.MarkFlagsMutuallyExclusive("paste", "device", "no-browser")
	return cmd
}

// logIn logs in to one server, or to all that need it. With several, the error of one does not
// keep it from the others.
func (s *serversCommand) logIn(cmd *cobra.Command, args []string, o *loginOptions) error {
	_, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	if len(args) == 1 {
		settings, _ := cfg.Server(args[0])
		if err := settings.Unusable(); err != nil {
			return fmt.Errorf("server %s: %w", args[0], err)
		}
		a, err := s.account(&cfg, args[0])
		if err != nil {
			return err
		}
		return s.logInTo(cmd, a, o)
	}
	var failed []error
	none := true
	for _, name := range spelling.Sorted(maps.Keys(cfg.Servers)) {
		a, err := s.account(&cfg, name)
		if err != nil || !a.settings.Enabled || !a.needsLogin(cmd.Context()) {
			continue // a server without logins
		}
		none = false
		if err := s.logInTo(cmd, a, o); err != nil {
			failed = append(failed, err)
		}
		if cmd.Context().Err() != nil {
			break
		}
	}
	if none {
		return console.Say(cmd, "no server needs a login")
	}
	return errors.Join(failed...)
}

// account is a server with what its login needs. It holds secrets.
type account struct {
	settings config.Settings
	address  resolve.Address
	client   login.Credentials
	logins   config.Logins
	store    *login.Store
	target   string // id
}

// account returns the login of a server. The error says why no login is possible there.
func (s *serversCommand) account(cfg *config.Config, name string) (*account, error) {
	settings, ok := cfg.Server(name)
	switch {
	case !ok:
		return nil, config.NoServer(name, cfg)
	case settings.Transport != config.HTTP:
		return nil, fmt.Errorf("server %s has no address for http: it logs in by itself, if it needs a login", name)
	case !settings.LogsIn():
		return nil, fmt.Errorf("server %s has an Authorization header in its configuration, which is used in place "+
			"of a login", name)
	case settings.OAuth.Grant == config.GrantMachine:
		return nil, fmt.Errorf("nobody logs in to server %s: this machine does, since its oauth.grant is %s", name,
			config.GrantMachine)
	}
	around := resolve.Around{
		Environ: s.proc.Environ(), Variables: s.variables(s.variablesPath()),
		EnvFile: s.variables(settings.EnvFile), Home: s.proc.Getenv("HOME"), Root: "/",
	}
	a := &account{settings: settings, logins: cfg.Logins}
	var err error
	if a.address, err = around.Address(settings); err != nil {
		return nil, err
	}
	if a.client, a.target, err = launch.Client(&settings, around, a.address.URL); err != nil {
		return nil, err
	}
	a.store, err = s.store(&cfg.Logins)
	return a, err
}

// store returns the store of logins, with the key that seals it if there is to be one.
func (s *serversCommand) store(logins *config.Logins) (*login.Store, error) {
	root, err := cmdenv.StateDir(s.proc.Getenv)
	if err != nil {
		return nil, err
	}
	return launch.Logins{Dir: statedir.In(root).Logins, KeyCommand: logins.KeyCommand}.Open(s.proc.Environ()), nil
}

// http returns the client for requests of the login.
func (a *account) http() *login.Client {
	return login.NewClient(a.address.URL, a.settings.OAuth.Issuer, cmdenv.Version)
}

// server returns what asks the server whether it wants a login.
func (a *account) server() *flow.Server {
	return &flow.Server{Address: a.address.URL, Headers: a.address.Headers, Version: cmdenv.Version}
}

// needsLogin reports whether a person has to log in. It asks a server of which nothing is known.
func (a *account) needsLogin(ctx context.Context) bool {
	status, err := a.store.Status(a.target, false)
	if err != nil || status.State != login.StateNone {
		return status.State == login.StateNeeds || len(status.Wanted) > 0
	}
	asks, err := flow.Probe(ctx, a.http(), a.server())
	return err == nil && asks != nil
}

// hasLogin reports whether there is a login, which may not work any more.
func (a *account) hasLogin() bool {
	status, err := a.store.Status(a.target, false)
	return err == nil && status.Login != ""
}

// logInTo logs in to one server. Progress goes to stderr, and what came of it to stdout.
func (s *serversCommand) logInTo(cmd *cobra.Command, a *account, o *loginOptions) error {
	name := a.settings.Name
	if status, err := a.store.Status(a.target, false); err == nil && status.State == login.StateIn && !o.force &&
		len(status.Wanted)+len(o.scopes) == 0 && o.issuer == "" && o.clientID == "" {
		return console.Say(cmd, "%s: already %s", name, loginWords(a))
	}
	late := fmt.Errorf("nobody logged in within %v", o.timeout)
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, late)
	defer cancel()
	f := &flow.Options{
		Name: name, Address: a.address.URL, Headers: a.address.Headers, Store: a.store, HTTP: a.http(),
		Client: a.client, Version: cmdenv.Version, MetadataURL: a.logins.MetadataURL,
		RedirectURI: a.settings.OAuth.RedirectURI, Ports: a.logins.CallbackPorts(),
		ClientID: o.clientID, Issuer: o.issuer, Scopes: o.scopes, Way: s.way(o), Force: o.force,
		Say: func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) },
	}
	if o.show != nil {
		f.Open = func(_ context.Context, address string) error { return o.show(address) }
	} else if !o.noBrowser {
		f.Open = flow.OpenWith(flow.Opener(a.logins.Browser, s.proc.Getenv), s.proc.Environ())
	}
	if in, ok := s.proc.Stdin.(*os.File); ok && console.IsTerminal(in) && console.IsTerminal(cmd.ErrOrStderr()) {
		f.Ask = func(ctx context.Context, question string, secret bool) (login.Secret, error) {
			line, err := console.ReadLine(ctx, in, cmd.ErrOrStderr(), question, secret, maxAnswer)
			if errors.Is(err, io.EOF) {
				err = errors.New("nothing was typed")
			}
			return login.Secret(line), err
		}
	}
	_, fresh, err := flow.Run(ctx, f)
	var changed control.LoginParams
	if err == nil {
		changed.Target = a.target
	}
	s.tellLogins(cmd, changed)
	switch {
	case errors.Is(err, flow.ErrTooOften):
		return cmdenv.WithHint(fmt.Errorf("%s: %w", name, err),
			"to try it all the same: holdline servers login "+name+" --force")
	case errors.Is(err, flow.ErrUnasked) && a.hasLogin():
		return cmdenv.WithHint(fmt.Errorf("%s: %w", name, err),
			"to end the login that it had: holdline servers logout "+name)
	case err != nil && cmd.Context().Err() != nil:
		return fmt.Errorf("%s: the login was ended; nothing has changed", name)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	already := ""
	if !fresh {
		already = "already "
	}
	return console.Say(cmd, "%s: %s%s", name, already, loginWords(a))
}

// tellLogins has a running daemon look at the logins anew. Without one there is nothing to do: the
// next daemon reads the files.
func (s *serversCommand) tellLogins(cmd *cobra.Command, changed control.LoginParams) {
	_, err := attach.Ask[struct{}](cmd, s.proc, control.LoginChanged, changed)
	if remote, ok := errors.AsType[*control.RemoteError](err); ok && remote.Fault != nil &&
		remote.Fault.Fault.Code == fault.UnknownMethod {
		return // an older daemon: the next call finds the login
	}
	if err != nil && !errors.Is(err, socket.ErrNoDaemon) && cmd.Context().Err() == nil {
		console.Warn(cmd, "the running daemon was not told: %v", err)
	}
}

// way returns how the person reaches the authorization server.
func (s *serversCommand) way(o *loginOptions) flow.Way {
	switch {
	case o.paste:
		return flow.Paste
	case o.device:
		return flow.Device
	case o.noBrowser || o.show != nil || flow.HasBrowser(s.proc.Getenv):
		return flow.Browser
	}
	return flow.Headless
}

// loginWords says for people how the login of a server stands.
func loginWords(a *account) string {
	words, _ := launch.ShowLogin(a.store, a.target, false).Words(a.settings.Name)
	return words
}

// newLogout returns the command servers logout.
func newLogout(s *serversCommand) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "logout NAME\n  holdline servers logout --url URL",
		Short: "Log out of a remote server, for all agents",
		Long: `End the login to a server: the authorization server is asked to revoke its tokens, if it
can, and they are deleted here in any case. From then on calls of the server fail, and
so do calls of other servers with the same login; the command names these.

--url ends the login to servers that are no longer configured.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (address != "") {
				return cmdenv.WithHint(fmt.Errorf("%w: wants NAME or --url URL", cmdenv.ErrUsage),
					"holdline servers logout NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if address != "" {
				return s.logOutOfAddress(cmd, address)
			}
			_, cfg, err := s.loadConfig()
			if err != nil {
				return err
			}
			a, err := s.account(&cfg, args[0])
			if err != nil {
				return err
			}
			others := s.sharing(&cfg, a.store, a.target, args[0])
			out, err := flow.Logout(cmd.Context(), a.store, a.http(), a.target, &a.client)
			s.tellLogins(cmd, control.LoginParams{Target: a.target, Out: true})
			return sayLogout(cmd, args[0], &out, others, err)
		},
	}
	cmd.Flags().StringVar(&address, "url", "", "address of a server that is not configured any more")
	return cmd
}

// logOutOfAddress ends all logins to an address.
func (s *serversCommand) logOutOfAddress(cmd *cobra.Command, address string) error {
	_, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	store, err := s.store(&cfg.Logins)
	if err != nil {
		return err
	}
	ids, err := targetsOf(store, address)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return console.Say(cmd, "there is no login to %s", redact.URL(address))
	}
	for _, id := range ids {
		var c login.Credentials
		if err := store.ReadWhole(id, &c); err != nil {
			return err
		}
		others := s.sharing(&cfg, store, id, "")
		out, err := flow.Logout(cmd.Context(), store, login.NewClient(address, c.Issuer, cmdenv.Version), id, &c)
		s.tellLogins(cmd, control.LoginParams{Target: id, Out: true})
		if err := sayLogout(cmd, redact.URL(address), &out, others, err); err != nil {
			return err
		}
	}
	return nil
}

// sharing returns the names of the servers that lose their login if a target is logged out: they use the
// same one. That with the given name is left out, and so are servers whose login cannot be read.
func (s *serversCommand) sharing(cfg *config.Config, store *login.Store, target, name string) (names []string) {
	gone, err := store.Status(target, false)
	if err != nil || gone.Login == "" {
		return nil
	}
	for _, other := range spelling.Sorted(maps.Keys(cfg.Servers)) {
		if other == name {
			continue
		}
		a, err := s.account(cfg, other)
		if err != nil {
			continue // a server without logins
		}
		if status, err := store.Status(a.target, false); err == nil && status.Login == gone.Login {
			names = append(names, other)
		}
	}
	return names
}

// loggedInAt returns the address of a server that has a login, as a shell reads it, and "" for
// others.
func (s *serversCommand) loggedInAt(name string) string {
	_, cfg, err := s.loadConfig()
	if err != nil {
		return ""
	}
	a, err := s.account(&cfg, name)
	if err != nil {
		return ""
	}
	if !a.hasLogin() {
		return ""
	}
	return redact.URL(login.BareAddress(a.address.URL))
}

// targetsOf returns the ids of the targets that have an address.
func targetsOf(store *login.Store, address string) ([]string, error) {
	ids, err := store.IDs(&login.Target{})
	return slices.DeleteFunc(ids, func(id string) bool {
		var t login.Target
		return store.Read(id, &t) != nil || t.URL != login.BareAddress(address)
	}), err
}

// sayLogout says what came of a logout. others are the servers that had the same login.
func sayLogout(cmd *cobra.Command, name string, out *flow.LoggedOut, others []string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: the login could not be deleted: %w", name, err)
	case !out.Had:
		return console.Say(cmd, "%s: there is no login", name)
	}
	text := "logged out; the authorization server has taken its tokens back"
	if !out.Revoked {
		until := ""
		if time.Now().Before(out.Expires) {
			until = " until " + out.Expires.Local().Format("2006-01-02 15:04")
		}
		text = fmt.Sprintf("logged out here. Its tokens were not taken back and may still be good%s: %s", until,
			strings.TrimPrefix(out.Why, "the login "))
	}
	err = console.Say(cmd, "%s: %s", name, text)
	for _, other := range others {
		err = errors.Join(err, console.Say(cmd, "%s: logged out as well, since it had the same login; "+
			"to log in again: holdline servers login %[1]s", other))
	}
	return err
}

// checkLogin asks a server that was added whether it wants a login, and says so, or logs in at
// once. It is no error if the server cannot be asked: what it lacks may come later.
func (s *serversCommand) checkLogin(cmd *cobra.Command, name string, andLogin bool) error {
	_, cfg, err := s.loadConfig()
	if err != nil {
		return nil //nolint:nilerr // it was read a moment ago, and there is nothing to say of the server
	}
	settings, _ := cfg.Server(name)
	if !settings.Enabled || !settings.LogsIn() || settings.OAuth.Grant != "" {
		return nil
	}
	a, err := s.account(&cfg, name)
	if err != nil {
		return nil //nolint:nilerr // what the entry lacks is said already
	}
	asks, err := flow.Probe(cmd.Context(), a.http(), a.server())
	switch {
	case errors.Is(err, flow.ErrClear) && !andLogin:
		return nil // it was not asked, and can be used without a login
	case err != nil:
		console.Lines(cmd.ErrOrStderr(), fmt.Sprintf("warning: %s: %v", name, err))
		return nil
	case asks == nil:
		return nil
	case andLogin, console.IsTerminal(s.proc.Stdin) &&
		console.Confirm(cmd, s.proc.Stdin, name+" needs a login. Log in now? [Y/n] ", true):
		return s.logInTo(cmd, a, &loginOptions{timeout: 10 * time.Minute})
	}
	return console.Say(cmd, "%s needs a login: holdline servers login %[1]s", name)
}
