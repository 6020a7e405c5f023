package login

import (
	"bytes"
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
	"strconv"
	"strings"
	"time"

	"holdline/daemon/lazyregexp"
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

// maxNested bounds how deep the words of an error are looked for in an answer.
const maxNested = 4

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
	Description string        // what else it says, cleaned
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

// IsVerdict reports whether the answer is one about the grant or the client, by the authorization server
// itself: a status with which it refuses, and a code as OAuth has them. Others, such as that of a gateway or of
// a server that is down or busy, say nothing of them.
func (e *RefusalError) IsVerdict() bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity:
	default:
		if e.Status/100 != 2 { // some say by 200 that they refuse
			return false
		}
	}
	switch e.Code {
	case "server_error", "internal_error", "internal_server_error", "temporarily_unavailable", "service_unavailable",
		"slow_down", "too_many_requests", "rate_limited", "rate_limit_exceeded":
		return false
	}
	return oauthCode().MatchString(e.Code)
}

// oauthCode matches codes such as invalid_grant.
var oauthCode = lazyregexp.New(`^[a-z]+(_[a-z]+)+$`)

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
	answer, secrets, err := c.post(ctx, e, form, before)
	faultpoint.At("login.sent")
	if err != nil {
		return Grant{}, err
	}
	answer.Body = asJSON(answer.Body)
	g, err := parseGrant(answer.Body, start)
	if err != nil {
		if refused := ParseRefusal(answer, secrets...); refused.Code != "" {
			return Grant{}, refused
		} else if refused.Description != "" {
			err = fmt.Errorf("%w: %s", err, refused.Error())
		}
		return Grant{}, err
	}
	g.Skew = skew(answer.Header)
	return g, nil
}

// PostForm posts a form to an endpoint as the client that e names, and returns an answer of
// success (2xx), or an error as [Client.Ask] does. It is for endpoints that issue no token:
// device authorization and revocation. It does not change form.
func (c *Client) PostForm(ctx context.Context, e Endpoint, form url.Values, before func() error) (*Answer, error) {
	answer, _, err := c.post(ctx, e, form, before)
	return answer, err
}

// post is [Client.PostForm], and returns what an answer must not repeat, too.
func (c *Client) post(
	ctx context.Context, e Endpoint, form url.Values, before func() error,
) (*Answer, []Secret, error) {
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
			return nil, nil, err
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
		return nil, nil, fmt.Errorf("%w: %s is no address", ErrForbidden, Clean(e.URL))
	}
	req.Header, req.ContentLength = header, int64(len(text))
	answer, err := c.Do(req, postTimeout)
	once.End() // the answer may come before the body was read
	if err != nil {
		return nil, nil, err
	}
	secrets := []Secret{e.Secret}
	for _, key := range []string{
		"refresh_token", "code", "code_verifier", "device_code", "client_secret", "client_assertion", "token",
	} {
		secrets = append(secrets, Secret(body.Get(key)))
	}
	if answer.Status/100 != 2 {
		return nil, nil, ParseRefusal(answer, secrets...)
	}
	return answer, secrets, nil
}

// masked returns a text with *** in place of secrets, as they are and as programs write them.
func masked(text string, secrets []Secret) string {
	var words []string
	for _, secret := range secrets {
		words = append(words, secret.Reveal())
	}
	return redact.Mask(text, redact.Forms(words))
}

// parseGrant reads the answer to a request that began at start.
func parseGrant(body []byte, start time.Time) (Grant, error) {
	var a struct {
		Access  string          `json:"access_token"`
		Type    string          `json:"token_type"`
		Expires json.RawMessage `json:"expires_in"`
		Refresh string          `json:"refresh_token"`
		Scope   json.RawMessage `json:"scope"` // a string; some give a list
		ID      string          `json:"id_token"`
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	switch {
	case json.Unmarshal(body, &a) != nil:
		return Grant{}, fmt.Errorf("%w: it is no JSON object with tokens", ErrNonsense)
	case !validToken(a.Access) || a.Refresh != "" && !validToken(a.Refresh):
		return Grant{}, fmt.Errorf("%w: it has no token, or one that no header can have", ErrNonsense)
	case wantsProof(a.Type):
		return Grant{}, fmt.Errorf("%w: its token is of the type %q, not Bearer", ErrNonsense, Clean(a.Type))
	}
	g := Grant{Access: Secret(a.Access), Refresh: Secret(a.Refresh), Obtained: start, Person: personOf(a.ID)}
	var scope string
	var scopes []string
	switch {
	case len(a.Scope) == 0 || string(a.Scope) == "null":
	case json.Unmarshal(a.Scope, &scope) == nil:
		g.Scopes = append([]string{}, ParseScopes(scope)...)
	case json.Unmarshal(a.Scope, &scopes) == nil:
		g.Scopes = append([]string{}, ParseScopes(strings.Join(scopes, " "))...)
	}
	seconds, err := strconv.ParseFloat(strings.Trim(string(a.Expires), `"`), 64)
	if err == nil && seconds > 0 && seconds < math.MaxInt32 {
		g.Expires = start.Add(time.Duration(seconds * float64(time.Second)))
	}
	return g, nil
}

// wantsProof reports whether a token of that type can only be shown together with a proof, which Holdline cannot
// make. Many servers leave the type out, or name in it for whom the token is ("user"): such tokens are shown as Bearer.
func wantsProof(kind string) bool {
	switch strings.ToLower(kind) {
	case "dpop", "pop", "mac", "n_a":
		return true
	}
	return false
}

// asJSON returns the answer of a token endpoint as JSON, if it is a form, as some servers answer whatever they are
// asked for. Another answer is returned as it is.
func asJSON(body []byte) []byte {
	text := strings.TrimSpace(strings.TrimPrefix(string(body), "\ufeff"))
	form, err := url.ParseQuery(text)
	if json.Valid([]byte(text)) || err != nil || !form.Has("access_token") && !form.Has("error") {
		return body
	}
	members := map[string]string{}
	for key := range form {
		members[key] = form.Get(key)
	}
	out, err := json.Marshal(members)
	if err != nil {
		return body
	}
	return out
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
	code, description := wordsOf(asJSON(a.Body), maxNested)
	e := &RefusalError{
		Status: a.Status, Skew: skew(a.Header),
		Code: Clean(masked(code, secrets)), Description: Clean(masked(description, secrets)),
	}
	text := a.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		e.RetryAfter = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		e.RetryAfter = max(0, time.Until(at))
	}
	return e
}

// wordsOf returns the code of the error that an answer names, and what else it says. Not every server
// writes as RFC 6749 wants: the error may be an object, in a list, or under another name, and gateways
// answer by text or by a page. Of those the words are shown, unless they may have a token.
func wordsOf(body []byte, depth int) (code, description string) {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	var (
		text   string
		list   []json.RawMessage
		object map[string]json.RawMessage
	)
	switch {
	case !json.Valid(body):
		text = strings.Join(strings.Fields(markup().ReplaceAllString(string(body), " ")), " ")
		return "", withoutTokens(text)
	case json.Unmarshal(body, &text) == nil:
		return "", withoutTokens(text)
	case depth == 0:
		return "", withoutTokens(string(body))
	case json.Unmarshal(body, &list) == nil && len(list) > 0:
		if code, description = wordsOf(list[0], depth-1); code == "" && len(list) > 1 {
			description = withoutTokens(string(body))
		}
		return code, description
	case json.Unmarshal(body, &object) != nil || len(object) == 0:
		return "", ""
	}
	first := func(keys ...string) string {
		for _, key := range keys {
			var s string
			if json.Unmarshal(object[key], &s) == nil && s != "" {
				return s
			}
		}
		return ""
	}
	description = first("error_description", "message", "error_message", "msg", "detail", "title")
	for _, key := range []string{"error", "errors"} {
		if inner := object[key]; code == "" && len(inner) > 0 && (inner[0] == '{' || inner[0] == '[') {
			var nested string
			code, nested = wordsOf(inner, depth-1)
			if code == "" {
				code = textOf(inner, "code")
			}
			description = cmp.Or(description, nested)
		}
	}
	if code = cmp.Or(first("error"), code); code == "" && description == "" {
		description = withoutTokens(string(body))
	}
	return code, description
}

// textOf returns the text of a key of an object, or "".
func textOf(object json.RawMessage, key string) (text string) {
	var o map[string]json.RawMessage
	if json.Unmarshal(object, &o) == nil {
		_ = json.Unmarshal(o[key], &text) // a number stays in the description
	}
	return text
}

// markup matches what a page has beside its words.
var markup = lazyregexp.New(`(?is)<script\b.*?</script>|<style\b.*?</style>|<!--.*?-->|<[^>]*>`)

// token matches where an answer of another form may have a token.
var token = lazyregexp.New(`(?i)token("\s*:|=)`)

// withoutTokens returns the words of an answer of another form, or nothing if a token may be among them.
func withoutTokens(words string) string {
	if token().MatchString(words) {
		return ""
	}
	return words
}

// skew returns how far the server's clock is ahead of ours, by the Date of its answer.
func skew(h http.Header) time.Duration {
	at, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return time.Until(at).Round(time.Second)
}
