package launch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"holdline/daemon/adapter/remote"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/login"
)

// Logins is where the logins of servers are, and what seals them.
type Logins struct {
	Dir        string
	KeyCommand []string
}

// Open returns the store of logins; environ is what the key command inherits from.
func (l Logins) Open(environ []string) *login.Store {
	return login.Open(l.Dir, login.NewKey(l.KeyCommand, resolve.Environment(config.InheritCore, environ, nil)))
}

// Client returns what the oauth object of a server says of its client, variables expanded, and
// the id of the server's target. The error names the key, and shows no value.
func Client(s *config.Settings, a resolve.Around, address string) (c login.Credentials, target string, err error) {
	o, err := a.Client(*s)
	if err != nil {
		return c, "", err
	}
	c = login.Credentials{
		ClientID: o.ClientID, Secret: o.ClientSecret, KeyID: o.KeyID, Alg: o.Alg, AuthMethod: o.AuthMethod,
		Grant: o.Grant, Issuer: o.Issuer, Resource: o.Resource, Scopes: o.Scopes, Account: o.Account,
		AssumePKCE: o.AssumePKCE,
	}
	if o.PrivateKey != "" {
		b, perm, err := config.ReadSafe(o.PrivateKey)
		switch {
		case err != nil:
			return c, "", fmt.Errorf("mcpServers.%s.oauth.privateKeyFile: %w", s.Name, err)
		case perm&0o077 != 0:
			return c, "", fmt.Errorf("mcpServers.%s.oauth.privateKeyFile: others can read it (mode %04o). "+
				"Fix: chmod 600 %s", s.Name, perm, o.PrivateKey)
		}
		c.PrivateKey = login.Secret(b)
	}
	return c, login.TargetID(address, c.ClientID, c.Issuer, c.Account), nil
}

// loginOf returns where the process of a server finds its login. It puts the client's secrets
// there first: they are needed at each renewal, and the process is given none. It returns nil
// for a server that needs no login.
func (l *Start) loginOf(s *config.Settings, a resolve.Around, address string) (*remote.LoginAt, error) {
	if l.Logins.Dir == "" || !s.LogsIn() {
		return nil, nil //nolint:nilnil // most servers have none
	}
	c, target, err := Client(s, a, address)
	if err != nil {
		return nil, err
	}
	err = l.Logins.Open(a.Environ).Configure(context.Background(), target, &c)
	if err != nil && !errors.Is(err, login.ErrNoKey) { // the process says so
		return nil, fmt.Errorf("mcpServers.%s.oauth cannot be stored: %w", s.Name, err)
	}
	return &remote.LoginAt{Dir: l.Logins.Dir, Target: target, KeyCommand: l.Logins.KeyCommand}, nil
}

// LoginCommand returns the process that logs a person in to a server by its name: this program,
// with the configuration and the logins of the daemon. target is the id of what it logs in to,
// and "" if no person can log in there.
func (l *Launcher) LoginCommand(server string) (target string, argv, env []string) {
	s, ok := l.File.Current().Server(server)
	if !ok || s.Transport != config.HTTP || !s.LogsIn() || s.OAuth.Grant == config.GrantMachine {
		return "", nil, nil
	}
	target, err := l.target(&s)
	if err != nil { // the fault of the call says why
		return "", nil, nil
	}
	env = append(l.Env.List(), "HOME="+l.Home, "HOLDLINE_CONFIG="+l.File.Path(),
		"XDG_STATE_HOME="+filepath.Dir(filepath.Dir(l.LoginDir)))
	return target, []string{l.Image, "login", server}, env
}
