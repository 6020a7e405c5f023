package flow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/networds"
	"holdline/daemon/sendonce"
)

// Limits of discovery.
const (
	findTime   = 30 * time.Second
	maxServers = 8 // authorization servers that are looked at
	maxShown   = 3 // failures that an error names
)

// resourceMetadata describes a server (RFC 9728).
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// Metadata describes an authorization server (RFC 8414).
type Metadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint"`
	RevocationEndpoint    string   `json:"revocation_endpoint"`
	DeviceEndpoint        string   `json:"device_authorization_endpoint"`
	Scopes                []string `json:"scopes_supported"`
	ResponseTypes         []string `json:"response_types_supported"`
	Challenges            []string `json:"code_challenge_methods_supported"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported"`
	SendsIssuer           bool     `json:"authorization_response_iss_parameter_supported"`
	TakesDocuments        bool     `json:"client_id_metadata_document_supported"`
	WantsPushed           bool     `json:"require_pushed_authorization_requests"`
}

// Query is what [Find] looks for.
type Query struct {
	HTTP     *login.Client
	Address  string  // of the server
	Metadata string  // address of its metadata by its challenge; may be ""
	Issuer   string  // the only one to be used, or ""
	Resource *string // replaces the parameter of that name; nil for that of the metadata

	Unasked    bool // the server has not asked for a login
	AssumePKCE bool // a server that does not say so does it, too
	// Known reports whether there is something for an issuer in the store already: it
	// goes before the others.
	Known func(issuer string) bool
	// Usable returns why an authorization server cannot be used, for example because
	// there is no client id for it. A server that can be used goes before.
	Usable func(*Metadata) error
	// Way returns how the person reaches a server: by some ways it needs less.
	Way func(*Metadata) Way
}

// Found is the outcome of [Find].
type Found struct {
	Resource string   // the parameter of that name, byte for byte; "" if none is sent
	Audience string   // the address that the resource has, which covers the server's
	Scopes   []string // that the server's metadata names
	Server   *Metadata
}

// Find returns where to log in to a server. It makes requests without any credential,
// and follows only what the rules of the MCP authorization text allow: no endpoint is
// ever guessed.
func Find(ctx context.Context, q *Query) (*Found, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, findTime, errors.New("it did not say in time where to log in"))
	defer cancel()
	f := &finder{Query: q, read: func(at string) (*login.Answer, error) { return q.HTTP.Get(ctx, at) }}
	return f.find(ctx)
}

// find is [Find] with a way to read documents.
func (f *finder) find(ctx context.Context) (*Found, error) {
	q := f.Query
	address, err := url.Parse(q.Address)
	if err != nil || q.HTTP.Check(q.Address) != nil {
		return nil, ErrClear
	}
	f.address = address
	document, err := f.resource(ctx)
	if err != nil {
		return nil, err
	}
	out := &Found{Resource: login.BareAddress(q.Address)}
	issuers := []string{sendonce.Origin(address)}
	if document != nil {
		out.Resource, out.Scopes = document.Resource, document.Scopes
	}
	isGuessed := document == nil || len(document.Servers) == 0
	if !isGuessed {
		issuers = document.Servers
	}
	out.Audience = out.Resource
	if q.Resource != nil {
		out.Resource = *q.Resource
	}
	if issuers, err = f.ordered(issuers, isGuessed); err != nil {
		return nil, err
	}
	if out.Server, err = f.server(ctx, issuers, isGuessed); err != nil && isGuessed && document != nil {
		err = fmt.Errorf("its metadata names no authorization server, and its own address is none: %w", err)
	}
	return out, err
}

// finder is one run of [Find].
type finder struct {
	*Query

	read     func(address string) (*login.Answer, error)
	address  *url.URL
	failures []string // of documents, for an error that names them
	unsure   bool     // a document may be there, and could not be had
}

// resource returns the server's metadata, or nil if it says that it has none, as servers of
// 2025-03-26 do.
func (f *finder) resource(ctx context.Context) (*resourceMetadata, error) {
	base := sendonce.Origin(f.address) + "/.well-known/oauth-protected-resource"
	of := base + strings.TrimSuffix(f.address.EscapedPath(), "/")
	if f.address.RawQuery != "" {
		of += "?" + f.address.RawQuery
	}
	tried := map[string]bool{"": true}
	for _, at := range []string{f.Metadata, of, base} {
		if tried[at] {
			continue
		}
		tried[at] = true
		var d resourceMetadata
		if !f.get(at, &d) {
			continue
		}
		if f.checkAddress(d.Resource) != nil || !login.Covers(d.Resource, f.Address) {
			return nil, fmt.Errorf("its metadata is of another resource: %s", quote(d.Resource))
		}
		return &d, nil
	}
	if ctx.Err() != nil || !f.unsure {
		return nil, context.Cause(ctx)
	}
	return nil, f.named("its metadata cannot be had at the moment")
}

// ordered returns the issuers in the order in which they are tried. guessed says that the
// only one is the server's own origin.
func (f *finder) ordered(issuers []string, guessed bool) ([]string, error) {
	issuers = issuers[:min(len(issuers), maxServers)]
	if want := f.Issuer; want != "" {
		listed := slices.Contains(issuers, want) || guessed && strings.TrimSuffix(want, "/") == issuers[0]
		if !listed {
			names := make([]string, len(issuers))
			for i, one := range issuers {
				names[i] = quote(one)
			}
			return nil, fmt.Errorf("it does not use the authorization server %s, but: %s",
				quote(want), strings.Join(names, ", "))
		}
		return []string{want}, nil
	}
	known := slices.DeleteFunc(slices.Clone(issuers), func(issuer string) bool { return !f.Known(issuer) })
	return append(known, slices.DeleteFunc(slices.Clone(issuers), f.Known)...), nil
}

// server returns the metadata of the first issuer that can be used. If none can, but the
// metadata of one is good, it returns the reason why that one cannot.
func (f *finder) server(ctx context.Context, issuers []string, guessed bool) (*Metadata, error) {
	var first, firstUnusable error
	for _, issuer := range issuers {
		m, err := f.metadata(issuer, guessed)
		if err == nil {
			if err = f.Usable(m); err == nil {
				return m, nil
			}
			firstUnusable = cmp.Or(firstUnusable, err)
		}
		first = cmp.Or(first, err)
	}
	return nil, cmp.Or(context.Cause(ctx), firstUnusable, first)
}

// metadata returns the metadata of one authorization server, which fulfils all that is
// asked of it.
func (f *finder) metadata(issuer string, guessed bool) (*Metadata, error) {
	u, err := url.Parse(issuer)
	if err != nil || f.checkAddress(issuer) != nil || strings.Contains(issuer, "?") {
		return nil, fmt.Errorf("%s cannot be an authorization server: that wants an https address without query",
			quote(issuer))
	}
	base, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	places := []string{
		base + "/.well-known/oauth-authorization-server" + path,
		base + "/.well-known/openid-configuration" + path,
	}
	if path != "" { // where others than RFC 8414 have it, but still of this issuer
		places = append(places, base+path+"/.well-known/openid-configuration",
			base+path+"/.well-known/oauth-authorization-server")
	}
	for _, at := range places {
		var m Metadata
		if !f.get(at, &m) {
			continue
		}
		if !sameIssuer(m.Issuer, issuer) {
			return nil, fmt.Errorf("the metadata of the authorization server %s is of another one: %s",
				quote(issuer), quote(m.Issuer))
		}
		if err := f.check(&m); err != nil {
			return nil, fmt.Errorf("the authorization server %s %w", quote(issuer), err)
		}
		return &m, nil
	}
	return nil, f.absent(issuer, guessed)
}

// sameIssuer reports whether two issuers are one. A / at the end makes no difference: RFC 8414, section
// 3.1, removes it, so that both lead to the same document.
func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// absent returns the error of a server whose metadata is nowhere, with what went wrong.
func (f *finder) absent(issuer string, guessed bool) error {
	words := fmt.Sprintf("the authorization server %s has no metadata", quote(issuer))
	switch {
	case guessed && f.Unasked && len(f.failures) == 0:
		return ErrUnasked
	case guessed && f.Unasked:
		words = ErrUnasked.Error()
	case guessed:
		words = "it asks for a login, and does not say where (it has no metadata for OAuth)"
	}
	return f.named(words)
}

// named returns an error of these words and the failures.
func (f *finder) named(words string) error {
	if shown := f.failures[:min(len(f.failures), maxShown)]; len(shown) > 0 {
		words += ": " + strings.Join(shown, "; ")
	}
	return errors.New(words)
}

// check returns what an authorization server lacks.
func (f *finder) check(m *Metadata) error {
	way := f.Way(m)
	type address struct{ what, at string }
	needed := []address{{"to get a token", m.TokenEndpoint}}
	switch way {
	case nobody:
	case Device:
		needed = append(needed, address{"for codes of devices", m.DeviceEndpoint})
	default:
		needed = append(needed, address{"to log in", m.AuthorizationEndpoint})
	}
	for _, one := range needed {
		if one.at == "" {
			return fmt.Errorf("names no address %s", one.what)
		}
		if err := f.checkAddress(one.at); err != nil {
			return fmt.Errorf("names an address %s that cannot be used: %w", one.what, err)
		}
	}
	// Addresses that are not needed are forgotten if they cannot be used.
	for _, at := range []*string{&m.RegistrationEndpoint, &m.RevocationEndpoint, &m.DeviceEndpoint} {
		if f.checkAddress(*at) != nil {
			*at = ""
		}
	}
	switch {
	case way == Device || way == nobody: // they have no codes that somebody could intercept
		return nil
	case m.WantsPushed:
		return errors.New("wants pushed authorization requests (PAR), which Holdline does not speak")
	case len(m.ResponseTypes) > 0 && !slices.Contains(m.ResponseTypes, "code"):
		return errors.New("gives out no codes")
	case len(m.Challenges) == 0 && !f.AssumePKCE:
		return errors.New("does not say that it does PKCE; if it does, set oauth.assumePkce of the server")
	case len(m.Challenges) > 0 && !slices.Contains(m.Challenges, "S256"):
		return errors.New("does not do PKCE with S256")
	}
	return nil
}

// get fetches a JSON object into v, and reports whether it is there. What went wrong is
// added to the failures, unless the server says that there is nothing.
func (f *finder) get(at string, v any) bool {
	failed := func(what string) bool {
		shown, _, _ := strings.Cut(at, "?")
		f.failures = append(f.failures, quote(shown)+": "+what)
		return false
	}
	if err := f.checkAddress(at); err != nil {
		return failed(err.Error())
	}
	answer, err := f.read(at)
	unsure := err != nil || answer.Status == http.StatusTooManyRequests || answer.Status >= 500
	f.unsure = f.unsure || unsure
	switch {
	case err != nil:
		return failed(networds.Of(err))
	case answer.Status >= 400 && !unsure:
		return false
	case answer.Status != http.StatusOK:
		return failed(fmt.Sprintf("it answers %d", answer.Status))
	case !decode(answer.Body, v):
		return failed("it answers with something else than JSON")
	}
	return true
}

// decode reads a JSON object into v. A member of another type than it should have counts as
// absent: most are not needed, and the others are checked.
func decode(text []byte, v any) bool {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	err := json.Unmarshal(text, v)
	_, typed := errors.AsType[*json.UnmarshalTypeError](err)
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && (err == nil || typed)
}

// checkAddress returns why an address from a document cannot be used.
func (f *finder) checkAddress(at string) error {
	if err := f.HTTP.Check(at); err != nil {
		return err
	}
	if strings.Contains(at, "#") {
		return fmt.Errorf("%s has a fragment", quote(at))
	}
	return nil
}

// quote returns words of a server in quotes, cleaned.
func quote(text string) string { return strconv.Quote(login.Clean(text)) }
