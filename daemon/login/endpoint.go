package login

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/login/assertion"
	"holdline/daemon/redact"
	"holdline/daemon/sendonce"
	"holdline/protocol/faultpoint"
)

// Ways in which a client shows a token endpoint who it is.
const (
	AuthNone  = "none"
	AuthBasic = "client_secret_basic"
	AuthPost  = "client_secret_post"
	AuthJWT   = "private_key_jwt"
)

// Grants of a token endpoint.
const (
	GrantCode    = "authorization_code"
	GrantRefresh = "refresh_token"
	GrantClient  = "client_credentials"
	GrantDevice  = "urn:ietf:params:oauth:grant-type:device_code"
)

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// Endpoint is a token endpoint, or another endpoint of the same server, and the client
// that asks there.
type Endpoint struct {
	URL      string
	Issuer   string // audience of a JWT
	ClientID string
	Method   string // AuthNone and so on
	Secret   Secret // for AuthBasic and AuthPost
	Key      Secret // PEM, for AuthJWT
	KeyID    string // for AuthJWT; "" is none
	Alg      string // for AuthJWT: ES256 or RS256; "" is that of the key
}

// Grant is what a token endpoint has issued.
type Grant struct {
	Access   Secret
	Refresh  Secret // "" if there was none
	Obtained time.Time
	Expires  time.Time // zero if unknown
	Scopes   []string  // nil if the answer names none: then they are those of the request
	Person   string    // of an id_token, for display only
	Skew     time.Duration
}

// RefusalError is an answer of an endpoint that issues nothing.
type RefusalError struct {
	Status      int
	Code        string        // such as invalid_grant; "" if it names none
	Description string        // cleaned
	RetryAfter  time.Duration // 0 if it names none
	Skew        time.Duration // how far the server's clock is ahead
}

// Error says what the server said.
func (e *RefusalError) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	if words := strings.TrimSpace(e.Code + " " + e.Description); words != "" {
		text += ": " + words
	}
	return text
}

// ErrNonsense reports an answer of success that cannot be used.
var ErrNonsense = errors.New("the answer makes no sense")

// Ask posts a form to the token endpoint and returns what it grants. before, if it is not
// nil, is called once the connection stands, before any byte of the form is sent. If it
// fails, nothing is sent, and Ask returns its error.
//
// The error is a [*RefusalError], or wraps [ErrNonsense] or what went wrong with the
// connection.
func (c *Client) Ask(ctx context.Context, e Endpoint, form url.Values, before func() error) (Grant, error) {
	start := time.Now()
	answer, err := c.PostForm(ctx, e, form, before)
	faultpoint.At("login.sent")
	if err != nil {
		return Grant{}, err
	}
	g, err := parseGrant(answer.Body, start)
	if err != nil {
		return Grant{}, err
	}
	g.Skew = skew(answer.Header)
	return g, nil
}

// PostForm posts a form to an endpoint as the client that e names, and returns an answer of
// success (200), or an error as [Client.Ask] does. It is for endpoints that issue no token:
// device authorization and revocation. It does not change form.
func (c *Client) PostForm(ctx context.Context, e Endpoint, form url.Values, before func() error) (*Answer, error) {
	body := maps.Clone(form)
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	switch e.Method {
	case AuthBasic:
		pair := url.QueryEscape(e.ClientID) + ":" + url.QueryEscape(e.Secret.Reveal())
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	case AuthJWT:
		who := assertion.Client{ID: e.ClientID, Key: e.Key, KeyID: e.KeyID, Alg: e.Alg}
		jwt, err := who.Assert(e.Issuer, time.Now())
		if err != nil {
			return nil, err
		}
		body.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		body.Set("client_assertion", jwt)
	case AuthPost:
		body.Set("client_secret", e.Secret.Reveal())
		body.Set("client_id", e.ClientID)
	default:
		body.Set("client_id", e.ClientID)
	}
	text := body.Encode()
	once := sendonce.New([]byte(text), before)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, once)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no address", ErrForbidden, Clean(e.URL))
	}
	req.Header, req.ContentLength = header, int64(len(text))
	answer, err := c.Do(req, postTimeout)
	once.End() // the answer may come before the body was read
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		var secrets []Secret
		for _, key := range []string{
			"refresh_token", "code", "code_verifier", "device_code", "client_secret", "client_assertion", "token",
		} {
			secrets = append(secrets, Secret(body.Get(key)))
		}
		return nil, ParseRefusal(answer, append(secrets, e.Secret)...)
	}
	return answer, nil
}

// masked returns a text with *** in place of secrets, also as they stand in a form; the longest
// first.
func masked(text string, secrets []Secret) string {
	var words []string
	for _, secret := range secrets {
		if secret != "" {
			words = append(words, secret.Reveal(), url.QueryEscape(secret.Reveal()))
		}
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	return redact.Mask(text, words)
}

// parseGrant reads the answer to a request that began at start.
func parseGrant(body []byte, start time.Time) (Grant, error) {
	var a struct {
		Access  string          `json:"access_token"`
		Type    string          `json:"token_type"`
		Expires json.RawMessage `json:"expires_in"`
		Refresh string          `json:"refresh_token"`
		Scope   *string         `json:"scope"`
		ID      string          `json:"id_token"`
	}
	switch {
	case json.Unmarshal(body, &a) != nil:
		return Grant{}, fmt.Errorf("%w: it is no JSON object with tokens", ErrNonsense)
	case !validToken(a.Access) || a.Refresh != "" && !validToken(a.Refresh):
		return Grant{}, fmt.Errorf("%w: it has no token, or one that no header can have", ErrNonsense)
	case !strings.EqualFold(a.Type, "Bearer"):
		return Grant{}, fmt.Errorf("%w: its token is of the type %q, not Bearer", ErrNonsense, Clean(a.Type))
	}
	g := Grant{Access: Secret(a.Access), Refresh: Secret(a.Refresh), Obtained: start, Person: personOf(a.ID)}
	if a.Scope != nil {
		g.Scopes = append([]string{}, ParseScopes(*a.Scope)...)
	}
	seconds, err := strconv.ParseFloat(strings.Trim(string(a.Expires), `"`), 64)
	if err == nil && seconds > 0 && seconds < math.MaxInt32 {
		g.Expires = start.Add(time.Duration(seconds * float64(time.Second)))
	}
	return g, nil
}

// validToken reports whether a header can have the token.
func validToken(s string) bool {
	return s != "" && len(s) <= maxToken && !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

// personOf returns as whom a token was issued, by the claims of an id_token. Nothing
// verifies them: they came from the token endpoint, and are shown only.
func personOf(idToken string) string {
	parts := strings.Split(idToken, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var claims struct {
		Email string `json:"email"`
		Name  string `json:"preferred_username"`
		Sub   string `json:"sub"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return Clean(cmp.Or(claims.Email, claims.Name, claims.Sub))
}

// ParseRefusal returns the error of an answer that issues nothing. Some servers repeat the secrets
// of the request in it.
func ParseRefusal(a *Answer, secrets ...Secret) *RefusalError {
	var body struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	_ = json.Unmarshal(a.Body, &body) // the status is enough
	e := &RefusalError{
		Status: a.Status, Skew: skew(a.Header),
		Code: Clean(masked(body.Code, secrets)), Description: Clean(masked(body.Description, secrets)),
	}
	text := a.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		e.RetryAfter = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		e.RetryAfter = max(0, time.Until(at))
	}
	return e
}

// skew returns how far the server's clock is ahead of ours, by the Date of its answer.
func skew(h http.Header) time.Duration {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return time.Until(at).Round(time.Second)
}
