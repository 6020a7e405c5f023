package flow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/login"
)

// known reports whether the target's login, or a registration, is of an issuer.
func (r *run) known(issuer string) bool {
	if sameIssuer(r.before.Issuer, issuer) {
		return true
	}
	for _, redirect := range r.redirects() {
		for _, spelling := range []string{issuer, strings.TrimSuffix(issuer, "/"), issuer + "/"} {
			reg := login.Registration{Issuer: spelling, RedirectURI: redirect}
			if r.Store.Read(reg.ID(), &reg) == nil {
				return true
			}
		}
	}
	return false
}

// redirects returns the redirect URIs that this login may use, the first one first.
func (r *run) redirects() []string {
	if r.RedirectURI != "" {
		return []string{r.RedirectURI}
	}
	var all []string
	for _, port := range r.Ports {
		all = append(all, redirectAt("127.0.0.1", port))
	}
	return all
}

// usable returns why no client id can be had for an authorization server.
func (r *run) usable(m *Metadata) error {
	switch {
	case r.Client.ClientID != "":
		return boundTo(cmp.Or(r.Client.Issuer, r.stored.Bound, r.before.Issuer), m)
	case r.typedFor(m), r.documented(m), m.RegistrationEndpoint != "", r.known(m.Issuer), r.Ask != nil:
	default:
		return r.noClient(m)
	}
	return nil
}

// boundTo returns why a client that was registered by hand at an issuer, or "" if it is unknown
// where, is not shown to an authorization server.
func boundTo(issuer string, m *Metadata) error {
	if issuer == "" || sameIssuer(issuer, m.Issuer) {
		return nil
	}
	return fmt.Errorf("its client id belongs to %s, and the login would be at %s; if the client id is "+
		"registered there, too, set oauth.issuer of the server to that", quote(issuer), quote(m.Issuer))
}

// typedFor reports whether a person has typed a client for an authorization server, now or at an
// earlier login there.
func (r *run) typedFor(m *Metadata) bool { return r.ClientID != "" || r.storedFor(m) }

// storedFor reports whether a typed client of an earlier login is for an authorization server.
func (r *run) storedFor(m *Metadata) bool { return r.stored.Typed && r.stored.Bound == m.Issuer }

// documented reports whether the address of our metadata document is our client id.
func (r *run) documented(m *Metadata) bool { return r.MetadataURL != "" && m.TakesDocuments }

// noClient returns the error of a server for which a person has to register a client.
func (r *run) noClient(m *Metadata) error {
	return fmt.Errorf("the authorization server %s registers no clients by itself. Register one there, with the "+
		"redirect URI %s. Then: holdline servers login %s --client-id ID (or set oauth.clientId and "+
		"oauth.clientSecret of the server)", quote(m.Issuer), r.redirects()[0], r.Name)
}

// chooseClient listens for the browser if there is to be one, and chooses the client id, in
// the order: configured, document, registered earlier, registered now, typed.
func (r *run) chooseClient(ctx context.Context) error {
	m := r.found.Server
	fixed := r.Client.ClientID != "" || r.typedFor(m) || r.documented(m)
	if err := r.listen("127.0.0.1", !fixed && m.RegistrationEndpoint != ""); err != nil {
		return err
	}
	switch {
	case r.Client.ClientID != "":
		c := &r.Client
		r.client = client{id: c.ClientID, secret: c.Secret, method: methodOf(m, c, c.Secret)}
		return nil
	case r.typedFor(m):
		return r.typedClient(ctx)
	case r.documented(m):
		r.client = client{id: r.MetadataURL, method: login.AuthNone}
		return nil
	}
	reg, err := r.registered(), error(nil)
	if reg == nil && m.RegistrationEndpoint != "" {
		reg, err = r.register(ctx)
	}
	switch {
	case reg != nil:
		r.client = client{id: reg.ClientID, secret: reg.Secret, method: reg.AuthMethod, registered: reg}
		return nil
	case err != nil && (r.Ask == nil || ctx.Err() != nil || r.door == nil):
		return err
	case err != nil:
		r.Say("%s: %v", r.Name, err)
	case r.Ask == nil:
		return r.noClient(m)
	}
	r.Say("%s: register a client at %s, with the redirect URI %s", r.Name, login.Clean(m.Issuer), r.door.text)
	return r.typedClient(ctx)
}

// typedClient asks the person for what is missing of a client that they have registered.
func (r *run) typedClient(ctx context.Context) error {
	c := client{id: r.ClientID, typed: true}
	if s := &r.stored; r.storedFor(r.found.Server) && (c.id == "" || c.id == s.ClientID) {
		c.id, c.secret = s.ClientID, s.Secret
	}
	ask := func(question string, secret bool) (answer login.Secret, err error) {
		if answer, err = r.Ask(ctx, question, secret); len(answer) > maxCode || err == nil && !secret && answer == "" {
			err = errors.New("that is no id or secret of a client")
		}
		return answer, err
	}
	// The secret of a client that was refused may be another one by now.
	wantsSecret := r.Ask != nil && (r.ClientID != "" || r.before.Retry.Client)
	if c.id == "" {
		id, err := ask("its client id: ", false)
		if err != nil {
			return err
		}
		c.id, wantsSecret = id.Reveal(), true
	}
	if wantsSecret {
		secret, err := ask("its secret (it is not shown; Enter if there is no other): ", true)
		if err != nil {
			return err
		}
		c.secret = cmp.Or(secret, c.secret)
	}
	c.method = methodOf(r.found.Server, &r.Client, c.secret)
	r.client = c
	return nil
}

// listen makes the door of the login. Only a browser on this machine needs one that is
// open. anyPort says that the redirect URI need not be known beforehand.
func (r *run) listen(host string, anyPort bool) (err error) {
	switch {
	case r.way != Browser:
		r.door, err = newDoor(r.redirects()[0])
	case r.RedirectURI != "":
		if r.door, err = open(r.RedirectURI); errors.Is(err, errTaken) {
			return fmt.Errorf("another program has the port of %s; end it, or set another redirect URI", r.RedirectURI)
		}
	default:
		r.door, err = openFirst(host, r.Ports, anyPort)
	}
	return err
}

// methodOf returns how a client that was not registered by us shows who it is. It is never
// tried out: a code and a refresh token are good for one request.
func methodOf(m *Metadata, c *login.Credentials, secret login.Secret) string {
	methods := m.AuthMethods
	switch {
	case c.AuthMethod != "":
		return c.AuthMethod
	case c.PrivateKey != "":
		return login.AuthJWT
	case secret == "":
		return login.AuthNone
	case len(methods) == 0 || slices.Contains(methods, login.AuthBasic):
		return login.AuthBasic
	}
	return login.AuthPost
}

// registration returns the key of a registration for this login. One for codes of devices
// has another grant, so it is kept apart.
func (r *run) registration() *login.Registration {
	reg := &login.Registration{Issuer: r.found.Server.Issuer, RedirectURI: r.door.text}
	if r.way == Device {
		reg.RedirectURI = login.GrantDevice
	}
	return reg
}

// registered returns an earlier registration that can be used, or nil.
func (r *run) registered() *login.Registration {
	reg := r.registration()
	if r.Store.Read(reg.ID(), reg) != nil || !reg.Expires.IsZero() && time.Now().After(reg.Expires) {
		return nil
	}
	if reg.Scopes != nil && len(login.Without(r.scopes, reg.Scopes)) > 0 {
		return nil
	}
	return reg
}

// register registers a client at the authorization server (RFC 7591). If that does not like
// an address in the redirect URI, it is asked once more with localhost; if it does not like something else,
// with what each server must know alone.
func (r *run) register(ctx context.Context) (*login.Registration, error) {
	reg, err := r.askRegistration(ctx, false)
	e, refused := errors.AsType[*login.RefusalError](err)
	switch {
	case err == nil:
		return reg, nil
	case refused && r.dislikesAddress(e):
		return r.registerLocalhost(ctx)
	case refused && e.Code == "invalid_client_metadata" && r.way != Device:
		if bare, bareErr := r.askRegistration(ctx, true); bareErr == nil {
			return bare, nil
		}
	}
	return nil, refusal("to register a client", err)
}

// dislikesAddress reports whether a server refuses a registration since its redirect URI has an address in place of
// localhost, and may have that.
func (r *run) dislikesAddress(e *login.RefusalError) bool {
	if r.RedirectURI != "" || r.way == Device {
		return false
	}
	return e.Code == "invalid_redirect_uri" || e.Code == "invalid_client_metadata" &&
		strings.Contains(strings.ToLower(e.Description), "redirect")
}

// registerLocalhost is register with localhost in the redirect URI.
func (r *run) registerLocalhost(ctx context.Context) (*login.Registration, error) {
	if r.way == Paste {
		r.door.redirect.Host = "localhost:" + r.door.redirect.Port()
		r.door.text = r.door.redirect.String()
	} else {
		r.door.drop()
		if err := r.listen("localhost", true); err != nil {
			return nil, err
		}
	}
	if reg := r.registered(); reg != nil {
		return reg, nil
	}
	reg, err := r.askRegistration(ctx, false)
	if err != nil {
		return nil, refusal("to register a client", err)
	}
	return reg, nil
}

// askRegistration makes one request for a registration. A bare one leaves out what some servers refuse: the kind of
// client, its software, and renewals, which they grant or not by their own rules.
func (r *run) askRegistration(ctx context.Context, bare bool) (*login.Registration, error) {
	m, reg := r.found.Server, r.registration()
	grants := []string{login.GrantCode, login.GrantRefresh}
	if r.way == Device {
		grants = append(grants, login.GrantDevice)
	}
	reg.AuthMethod = login.AuthNone
	if len(m.AuthMethods) > 0 {
		for _, method := range []string{login.AuthPost, login.AuthBasic, login.AuthNone} {
			if slices.Contains(m.AuthMethods, method) {
				reg.AuthMethod = method
			}
		}
	}
	kind, software, version := "native", "holdline", r.Version
	if bare {
		kind, software, version, grants = "", "", "", grants[:1]
	}
	body, err := json.Marshal(struct {
		Name      string   `json:"client_name"`
		Redirects []string `json:"redirect_uris"`
		Type      string   `json:"application_type,omitempty"`
		Grants    []string `json:"grant_types"`
		Responses []string `json:"response_types"`
		Method    string   `json:"token_endpoint_auth_method"`
		Scope     string   `json:"scope,omitempty"`
		Software  string   `json:"software_id,omitempty"`
		Version   string   `json:"software_version,omitempty"`
	}{
		"Holdline",
		[]string{r.door.text},
		kind, grants,
		[]string{"code"},
		reg.AuthMethod,
		strings.Join(r.scopes, " "), software, version,
	})
	if err != nil {
		return nil, err
	}
	answer, err := r.HTTP.Post(ctx, m.RegistrationEndpoint, "application/json", body)
	if err != nil {
		return nil, err
	}
	if answer.Status/100 != 2 {
		return nil, login.ParseRefusal(answer)
	}
	err = readRegistration(answer.Body, reg)
	r.isNew = err == nil
	return reg, err
}

// readRegistration reads the answer to a registration into reg, which has what was asked for.
func readRegistration(body []byte, reg *login.Registration) error {
	var a struct {
		ID      string       `json:"client_id"`
		Secret  login.Secret `json:"client_secret"`
		Expires float64      `json:"client_secret_expires_at"`
		Method  string       `json:"token_endpoint_auth_method"`
		Scope   *string      `json:"scope"`
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	_ = json.NewDecoder(bytes.NewReader(body)).Decode(&a) // what is missing is refused
	if a.ID == "" || len(a.ID) > maxCode {
		return errors.New("the authorization server registers a client and gives it no id")
	}
	reg.ClientID, reg.Secret = a.ID, a.Secret
	reg.AuthMethod = cmp.Or(a.Method, reg.AuthMethod)
	switch reg.AuthMethod {
	case login.AuthNone:
	case login.AuthBasic, login.AuthPost:
		if a.Secret == "" {
			return errors.New("the authorization server registers a client and gives it no secret")
		}
	default:
		return fmt.Errorf("the authorization server wants clients to show who they are by %s, which Holdline cannot do",
			quote(reg.AuthMethod))
	}
	if a.Expires > 0 {
		reg.Expires = time.Unix(int64(a.Expires), 0)
	}
	if a.Scope != nil {
		reg.Scopes = login.ParseScopes(*a.Scope)
	}
	return nil
}
