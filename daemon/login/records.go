package login

import (
	"context"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"holdline/daemon/sendonce"
)

// Target is the address of a server, and which login it uses. Servers of the same address
// share it, whatever their names are.
type Target struct {
	Head
	URL       string    `json:"url"`                 // without query and fragment
	Login     string    `json:"login,omitempty"`     // id of a [Login]; "" if there was none yet
	Wanted    []string  `json:"wanted,omitempty"`    // scopes that calls were refused for
	Challenge Challenge `json:"challenge,omitzero"`  // of the last refusal
	Seen      time.Time `json:"challenged,omitzero"` // when that was; zero if the server has answered since
	Asked     []Asked   `json:"asked,omitempty"`     // the last logins, newest last
}

// Asked is a login that a person has made: when, and for which scopes.
type Asked struct {
	At     time.Time `json:"at"`
	Scopes []string  `json:"scopes,omitempty"`
}

func (*Target) dir() string                { return "targets" }
func (*Target) hidden() map[string]*Secret { return nil }

// asks reports whether the server wanted a login when it was last asked without one.
func (t *Target) asks() bool { return t.Challenge.Bearer && !t.Seen.IsZero() }

// again returns when a server that wanted a login may be asked whether it still does.
func (t *Target) again(now time.Time) time.Time {
	if t.Seen.After(now) { // the clock was set back
		return now
	}
	return t.Seen.Add(askPause)
}

// TargetID returns the id of the target of a server: its address, without query and
// fragment, and what its configuration says of the login (oauth.clientId, oauth.issuer
// and oauth.account, or "").
func TargetID(address, clientID, issuer, account string) string {
	return hashID(BareAddress(address), clientID, issuer, account)
}

// BareAddress returns an address without query and fragment, and without the / of an
// empty path. The rest stays byte for byte.
func BareAddress(address string) string {
	address, _, _ = strings.Cut(address, "#")
	address, _, _ = strings.Cut(address, "?")
	if u, err := url.Parse(address); err == nil && u.Path == "/" {
		address = strings.TrimSuffix(address, "/")
	}
	return address
}

// Login is what an authorization server has issued for a resource.
type Login struct {
	Head
	Issuer     string   `json:"issuer"`
	Audience   string   `json:"audience"` // URL that covers the addresses to which the token may go
	Resource   string   `json:"resource"` // parameter of requests, byte for byte; "" sends none
	ClientID   string   `json:"client_id"`
	Account    string   `json:"account_label,omitempty"` // oauth.account
	AuthMethod string   `json:"auth_method"`             // AuthNone and so on
	Registered string   `json:"registration,omitempty"`  // id of the [Registration] of the client, "" if it is none
	Secret     Secret   `json:"client_secret,omitempty"` // of a registered client: its registration may be replaced
	TokenURL   string   `json:"token_endpoint"`
	RevokeURL  string   `json:"revocation_endpoint,omitempty"`
	Access     Secret   `json:"access_token,omitempty"`
	Refresh    Secret   `json:"refresh_token,omitempty"`
	Granted    []string `json:"granted,omitempty"`   // scopes
	Requested  []string `json:"requested,omitempty"` // scopes
	Person     string   `json:"person,omitempty"`    // as whom, for display only

	Obtained   time.Time     `json:"obtained,omitzero"`
	Expires    time.Time     `json:"expires,omitzero"`    // zero if unknown
	Generation int           `json:"generation"`          // counts the tokens
	Rotates    *bool         `json:"rotates,omitempty"`   // whether the last renewal brought another refresh token
	Mark       *Mark         `json:"mark,omitempty"`      // a renewal whose outcome is not known
	Lost       *Lost         `json:"lost,omitempty"`      // why a person must log in again
	Retry      Retry         `json:"retry,omitzero"`      // after a renewal that failed and spent nothing
	Unnamed    bool          `json:"unnamed,omitempty"`   // renewals do not send Resource, since the server refuses it there
	Skew       time.Duration `json:"clock_skew,omitzero"` // how far the server's clock is ahead
}

func (*Login) dir() string { return "." }

func (l *Login) hidden() map[string]*Secret {
	return map[string]*Secret{"access_token": &l.Access, "refresh_token": &l.Refresh, "client_secret": &l.Secret}
}

// ID returns the id of the login, by issuer, resource, client and account. A resource that
// the user has made up says nothing of where the token may go, so the audience counts, too.
func (l *Login) ID() string {
	parts := []string{l.Issuer, l.Resource, l.ClientID, l.Account}
	if l.Resource != l.Audience {
		parts = append(parts, l.Audience)
	}
	return hashID(parts...)
}

// Mark is written before a refresh token is sent, and removed once the outcome is known.
type Mark struct {
	Generation int       `json:"generation"`
	At         time.Time `json:"at"`
	Try        int       `json:"try"` // how often the token was sent
}

// Lost says why a login does not work any more, for people, and since when.
type Lost struct {
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// Retry says when a renewal may be tried again.
type Retry struct {
	At       time.Time `json:"at,omitzero"`
	Failures int       `json:"failures,omitzero"` // in a row
	Refusals int       `json:"refusals,omitzero"` // verdicts in a row about something else than the token
	Since    time.Time `json:"since,omitzero"`    // of the first failure
	Why      string    `json:"why,omitempty"`     // for people
	Client   bool      `json:"client,omitempty"`  // the server refuses the client, not the token
}

// Endpoint returns the token endpoint of the login, with what its client needs there. c is the
// client of the configuration, or that a person has typed.
func (l *Login) Endpoint(c *Credentials) Endpoint {
	e := Endpoint{URL: l.TokenURL, Issuer: l.Issuer, ClientID: l.ClientID, Method: l.AuthMethod, Secret: l.Secret}
	if l.Registered == "" && c.ClientID == l.ClientID {
		e.Secret, e.Key, e.KeyID, e.Alg = c.Secret, c.PrivateKey, c.KeyID, c.Alg
	}
	return e
}

// Lacks returns those of the scopes that were not granted.
func (l *Login) Lacks(scopes []string) []string {
	return Without(scopes, l.Granted)
}

// Without returns those of the scopes that are not among others.
func Without(scopes, others []string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return slices.Contains(others, s) })
}

// Registration is a client that an authorization server has registered for us.
type Registration struct {
	Head
	Issuer      string    `json:"issuer"`
	RedirectURI string    `json:"redirect_uri"`
	ClientID    string    `json:"client_id"`
	Secret      Secret    `json:"client_secret,omitempty"`
	Expires     time.Time `json:"client_secret_expires,omitzero"` // of the secret; zero is never
	AuthMethod  string    `json:"auth_method"`
	Scopes      []string  `json:"scopes,omitempty"` // nil if any may be asked for
}

func (*Registration) dir() string { return "registrations" }

func (r *Registration) hidden() map[string]*Secret {
	return map[string]*Secret{"client_secret": &r.Secret}
}

// ID returns the id of the registration.
func (r *Registration) ID() string { return hashID(r.Issuer, r.RedirectURI) }

// Credentials are what the configuration says of a target's client, or what a person has
// typed at a login. The daemon writes them before it starts a process of the server.
type Credentials struct {
	Head
	ClientID   string   `json:"client_id"`
	Secret     Secret   `json:"client_secret,omitempty"`
	PrivateKey Secret   `json:"private_key,omitempty"` // PEM
	KeyID      string   `json:"key_id,omitempty"`
	Alg        string   `json:"alg,omitempty"`         // ES256 or RS256
	AuthMethod string   `json:"auth_method,omitempty"` // oauth.authMethod; "" lets the server's metadata decide
	Grant      string   `json:"grant,omitempty"`       // GrantClient, or "" if a person logs in
	Issuer     string   `json:"issuer,omitempty"`      // oauth.issuer
	Resource   *string  `json:"resource,omitempty"`    // oauth.resource; nil if it is not set
	Scopes     []string `json:"scopes,omitempty"`      // oauth.scopes
	Account    string   `json:"account,omitempty"`     // oauth.account
	AssumePKCE bool     `json:"assume_pkce,omitempty"` // oauth.assumePkce
	Typed      bool     `json:"typed,omitempty"`       // by a person at a login
	// Bound is the issuer with which the client was used first. No other sees it, unless the
	// configuration names that.
	Bound string `json:"bound_issuer,omitempty"`
}

func (*Credentials) dir() string { return "secrets" }

func (c *Credentials) hidden() map[string]*Secret {
	return map[string]*Secret{"client_secret": &c.Secret, "private_key": &c.PrivateKey}
}

// Configure writes what the configuration says of a target's client, unless it is there already. It
// keeps the issuer to which the client is bound, and a client that a person has typed if the
// configuration names none.
func (s *Store) Configure(ctx context.Context, target string, want *Credentials) error {
	var have Credentials
	err := s.ReadIfThere(target, &have)
	with := func() Credentials {
		c := *want
		c.Head, c.Bound = have.Head, have.Bound
		if c.ClientID == "" && have.Typed {
			c.ClientID, c.Secret, c.Typed = have.ClientID, have.Secret, true
		}
		return c
	}
	if err == nil && reflect.DeepEqual(with(), have) {
		return nil
	}
	return s.Update(ctx, target, &have, func() error {
		have = with()
		return nil
	})
}

// Covers reports whether a token of a resource may go to an address: scheme, host and port
// are the same, and the resource's path is the address's or an ancestor of it by whole
// segments. A query and a final / do not count.
func Covers(resource, address string) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Fragment != "" || r.Host == "" || r.User != nil {
		return false
	}
	a, err := url.Parse(address)
	if err != nil || sendonce.Origin(r) != sendonce.Origin(a) {
		return false
	}
	parent := strings.TrimSuffix(r.EscapedPath(), "/")
	return strings.HasPrefix(strings.TrimSuffix(a.EscapedPath(), "/")+"/", parent+"/")
}
