package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/networds"
)

// Limits of a login.
const (
	loginTime  = 10 * time.Minute // also that of the cookie
	maxCode    = 4 << 10          // bytes
	maxLogins  = 3                // for the same scopes within againTime
	againTime  = 10 * time.Minute
	keptLogins = 8 // that a target remembers
)

// Way is how the person reaches the authorization server.
type Way int

// The ways of a login.
const (
	Browser  Way = iota // on this machine
	Paste               // in a browser elsewhere, whose last address is pasted here
	Device              // a code that is typed elsewhere
	Headless            // Device where the server offers it, else Paste
	nobody              // no person: see [Machine]
)

// Options say to what a person logs in, and how.
type Options struct {
	Name    string            // of the server
	Address string            // of the server
	Headers map[string]string // of the server
	Store   *login.Store
	HTTP    *login.Client
	Client  login.Credentials // what the configuration says of the client
	Version string            // of this program

	MetadataURL string // logins.client_metadata_url, or ""
	RedirectURI string // oauth.redirectUri or that of oauth.callbackPort, or ""
	Ports       []int  // logins.ports; at least one

	// What the command line says.
	ClientID string
	Issuer   string
	Scopes   []string // besides the others
	Way      Way
	Force    bool // also if there is a login

	// Say prints a line for the person.
	Say func(format string, args ...any)
	// Open opens an address in the person's browser. Nil prints the address only.
	Open func(ctx context.Context, address string) error
	// Ask asks the person for a line, which is not shown if it is secret. Nil if there is no
	// terminal.
	Ask func(ctx context.Context, question string, secret bool) (login.Secret, error)
}

// Errors of [Run] that callers tell apart.
var (
	// ErrTooOften means that the same login was made again and again, without help.
	ErrTooOften = errors.New("logged in several times within ten minutes, and the server asked for it again")
	// ErrNoTerminal means that only a person at a terminal could go on.
	ErrNoTerminal = errors.New("wants a terminal")
	// ErrUnasked means that the server asks for no login, and could not be logged in to.
	ErrUnasked = errors.New("it asks for no login, and has no metadata for one")
)

// run is one run of [Run].
type run struct {
	*Options

	id      string // of the target
	target  login.Target
	unasked bool              // the server does not ask for a login at the beginning
	before  login.Login       // the target's login until now; zero if there is none
	stored  login.Credentials // the target's; zero if there are none
	isNew   bool              // the client was registered in this run
	found   *Found
	way     Way // not Headless
	door    *door
	client  client
	scopes  []string
}

// client is who we are for the authorization server.
type client struct {
	id         string
	method     string
	secret     login.Secret
	registered *login.Registration // nil if it was not registered by us
	typed      bool                // a person has typed it
}

// Run logs in, and returns the login once it is stored. If there is one already that
// serves the same address it returns that, with fresh false, unless o.Force. Everything
// that may fail without the person comes first.
func Run(ctx context.Context, o *Options) (l *login.Login, fresh bool, err error) {
	r := &run{Options: o, id: o.targetID()}
	if err := r.load(ctx); err != nil {
		return nil, false, err
	}
	// Processes read them at each renewal, and may wait for new ones.
	if err := o.Store.Configure(ctx, r.id, &o.Client); err != nil {
		return nil, false, err
	}
	challenge, err := Probe(ctx, o.HTTP, &Server{Address: o.Address, Headers: o.Headers, Version: o.Version})
	switch {
	case err != nil:
		return nil, false, err
	case challenge == nil: // it may refuse something else than the beginning
		challenge, r.unasked = &r.target.Challenge, true
	}
	if challenge.DPoP && !challenge.Bearer {
		return nil, false, errors.New("it needs DPoP, which Holdline does not speak")
	}
	if err := r.find(ctx, challenge); errors.Is(err, ErrUnasked) {
		return nil, false, cmp.Or(o.Store.Unasked(ctx, r.id), err)
	} else if err != nil {
		return nil, false, err
	}
	defer func() {
		if r.door != nil {
			r.door.drop()
		}
	}()
	if err := r.chooseClient(ctx); err != nil {
		return nil, false, err
	}
	if l := r.present(); l != nil {
		return l, false, r.storeTarget(ctx, l.ID(), false)
	}
	if r.tooOften() && !r.Force {
		return nil, false, ErrTooOften
	}
	r.Say("%s: %s, login at %s", r.Name, login.Clean(login.BareAddress(r.Address)), login.Clean(r.found.Server.Issuer))
	if len(r.scopes) > 0 {
		r.Say("asks for: %s", strings.Join(r.scopes, " "))
	}
	var g *login.Grant
	switch r.way {
	case Device:
		g, err = r.byDevice(ctx)
	case Paste:
		g, err = r.byPaste(ctx)
	default:
		l, err = r.byBrowser(ctx)
	}
	if err == nil && l == nil {
		l, err = r.store(ctx, g)
	}
	if err != nil {
		return nil, false, r.unwanted(ctx, err)
	}
	return l, true, nil
}

// unwanted returns the error of a login. If the authorization server does not know one of the
// scopes, those that calls lacked are not asked for again.
func (r *run) unwanted(ctx context.Context, err error) error {
	e, ok := errors.AsType[*refusedError](err)
	if ok && e.code == "invalid_target" && r.found.Resource != "" && r.Client.Resource == nil {
		return fmt.Errorf("%w. If it does not know the parameter resource (%s), set oauth.resource of the server to "+
			"what it knows, or to \"\", then log in again", err, login.Clean(r.found.Resource))
	}
	lacked := r.target.Wanted
	if !ok || e.code != "invalid_scope" || len(lacked) == 0 {
		return err
	}
	if r.Store.Renew(ctx, r.id, &r.target, func() error {
		r.target.Wanted = login.Without(r.target.Wanted, lacked)
		r.target.Challenge.Scopes = login.Without(r.target.Challenge.Scopes, lacked)
		return nil
	}) != nil {
		return err
	}
	return fmt.Errorf("%w. The next login does not ask for %s, which calls wanted", err, strings.Join(lacked, " "))
}

// targetID returns the id of the target of the server.
func (o *Options) targetID() string {
	return login.TargetID(o.Address, o.Client.ClientID, o.Client.Issuer, o.Client.Account)
}

// load reads what the store has of the target. It removes a damaged file of the target's client.
func (r *run) load(ctx context.Context) error {
	if err := r.Store.ReadWhole(r.id, &r.target); err != nil {
		return err
	}
	err := r.Store.ReadIfThere(r.id, &r.stored)
	if login.IsDamaged(err) {
		err = r.Store.Remove(ctx, r.id, &r.stored)
	}
	return errors.Join(r.Store.ReadWhole(r.target.Login, &r.before), err)
}

// find fills in where to log in, and which way.
func (r *run) find(ctx context.Context, challenge *login.Challenge) (err error) {
	way := func(m *Metadata) Way {
		if r.Way == Headless && m.DeviceEndpoint != "" {
			return Device
		} else if r.Way == Headless {
			return Paste
		}
		return r.Way
	}
	r.found, err = Find(ctx, &Query{
		HTTP: r.HTTP, Address: r.Address, Metadata: challenge.Metadata,
		Issuer: cmp.Or(r.Issuer, r.Client.Issuer), Resource: r.Client.Resource, AssumePKCE: r.Client.AssumePKCE,
		Unasked: r.unasked, Known: r.known, Usable: r.usable, Way: way,
	})
	if err != nil {
		return err
	}
	r.way = way(r.found.Server)
	if r.way == Paste && r.Ask == nil {
		return fmt.Errorf("the login %w: without a browser here, an address has to be pasted", ErrNoTerminal)
	}
	asked := firstOf(r.Client.Scopes, challenge.Scopes, r.found.Scopes)
	var before, offline []string
	if r.before.Issuer == r.found.Server.Issuer && r.before.Resource == r.found.Resource {
		before = append(before, r.before.Granted...)
		before = append(before, r.before.Requested...)
	}
	if slices.Contains(r.found.Server.Scopes, offlineScope) {
		offline = []string{offlineScope}
	}
	r.scopes = login.JoinScopes(asked, r.Scopes, r.target.Wanted, before, offline)
	return nil
}

// offlineScope is the scope with which OpenID servers give out refresh tokens.
const offlineScope = "offline_access"

// present returns a login that serves the target as it is, or nil: it has a token that is good or
// can be renewed, and all scopes.
func (r *run) present() *login.Login {
	l := r.key()
	if r.Force || r.Store.Read(l.ID(), l) != nil || l.Lost != nil || l.Retry.Failures > 0 || l.Access == "" ||
		l.Refresh == "" && !l.Expires.IsZero() && time.Now().After(l.Expires) {
		return nil
	}
	missing := login.Without(r.scopes, slices.Concat(l.Granted, l.Requested))
	if len(missing)+len(l.Lacks(r.target.Wanted)) > 0 {
		return nil
	}
	return l
}

// key returns a login with what its id is made of.
func (r *run) key() *login.Login {
	return &login.Login{
		Issuer: r.found.Server.Issuer, Resource: r.found.Resource, Audience: r.found.Audience,
		ClientID: r.client.id, Account: r.Client.Account,
	}
}

// tooOften reports whether this would be the third login for the same scopes within ten
// minutes: the server gives out tokens and refuses them.
func (r *run) tooOften() bool {
	n := 0
	for _, a := range r.target.Asked {
		if time.Since(a.At) < againTime && slices.Equal(a.Scopes, r.scopes) {
			n++
		}
	}
	return n >= maxLogins-1
}

// endpoint is an endpoint of the authorization server, as our client asks there.
func (r *run) endpoint(address string) login.Endpoint {
	return login.Endpoint{
		URL: address, Issuer: r.found.Server.Issuer, ClientID: r.client.id, Method: r.client.method,
		Secret: r.client.secret, Key: r.Client.PrivateKey, KeyID: r.Client.KeyID, Alg: r.Client.Alg,
	}
}

// with adds the parameter resource to a form or query, byte for byte, and scope if scoped is set and
// there are any.
func (r *run) with(v url.Values, scoped bool) url.Values {
	if r.found.Resource != "" {
		v.Set("resource", r.found.Resource)
	}
	if scoped && len(r.scopes) > 0 {
		v.Set("scope", strings.Join(r.scopes, " "))
	}
	return v
}

// store stores what the token endpoint has granted, the registration first. It goes on if the
// person ends the login now: the server may have ended the one before.
func (r *run) store(ctx context.Context, g *login.Grant) (*login.Login, error) {
	ctx = context.WithoutCancel(ctx)
	m := r.found.Server
	if reg := r.client.registered; r.isNew {
		was := new(login.Registration)
		err := r.Store.Renew(ctx, reg.ID(), was, func() error {
			head := was.Head
			*was = *reg
			was.Head = head
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if r.client.typed || r.Client.ClientID != "" {
		c := new(login.Credentials)
		err := r.Store.Renew(ctx, r.id, c, func() error {
			c.ClientID, c.Secret, c.Typed, c.Bound = r.client.id, r.client.secret, r.client.typed, m.Issuer
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	l := new(login.Login)
	err := r.Store.Renew(ctx, r.key().ID(), l, func() error {
		head, generation := l.Head, l.Generation
		*l = *r.key()
		l.Head, l.Generation = head, generation
		l.AuthMethod, l.TokenURL, l.RevokeURL = r.client.method, m.TokenEndpoint, m.RevocationEndpoint
		if reg := r.client.registered; reg != nil {
			l.Registered, l.Secret = reg.ID(), reg.Secret
		}
		l.Take(*g, r.scopes)
		return nil
	})
	if err != nil {
		return nil, err
	}
	lacks := l.Lacks(r.scopes)
	if l.Refresh != "" { // what that scope is for was granted, whatever the answer says
		lacks = login.Without(lacks, []string{offlineScope})
	}
	if len(lacks) > 0 {
		r.Say("%s: the server did not grant: %s", r.Name, strings.Join(lacks, " "))
	}
	return l, r.storeTarget(ctx, l.ID(), true)
}

// storeTarget makes a login that of the target, and drops the one before.
func (r *run) storeTarget(ctx context.Context, id string, fresh bool) error {
	before := ""
	err := r.Store.Renew(ctx, r.id, &r.target, func() error {
		before = r.target.Login
		r.target.URL, r.target.Login = login.BareAddress(r.Address), id
		r.target.Wanted = login.Without(r.target.Wanted, r.scopes)
		if fresh {
			r.target.Asked = append(r.target.Asked, login.Asked{At: time.Now(), Scopes: r.scopes})
			r.target.Asked = r.target.Asked[max(0, len(r.target.Asked)-keptLogins):]
		}
		return nil
	})
	if err == nil && before != "" && before != id {
		r.drop(ctx, before)
	}
	return err
}

// drop deletes a login that the target had before, such as that of a registration for fewer scopes: no
// logout would find it. It stays if another target has it, too, or if it cannot be deleted.
func (r *run) drop(ctx context.Context, id string) {
	targets, err := r.Store.IDs(&login.Target{})
	if err != nil {
		return
	}
	for _, target := range targets {
		var other login.Target
		if r.Store.Read(target, &other) != nil || other.Login == id {
			return
		}
	}
	_ = r.Store.Remove(ctx, id, &login.Login{}) // the new login is good all the same
}

// refusedError is what an authorization server says in place of a token, in words.
type refusedError struct{ code, text string }

// Error returns the words.
func (e *refusedError) Error() string { return e.text }

// refusal returns the error of an endpoint in words.
func refusal(what string, err error) error {
	if e, ok := errors.AsType[*login.RefusalError](err); ok {
		words := cmp.Or(e.Description, e.Code, fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
		return &refusedError{e.Code, "the authorization server refuses " + what + ": " + words}
	}
	return fmt.Errorf("the authorization server does not answer as it should when asked %s: %s", what, networds.Of(err))
}
