package flow

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"holdline/daemon/login"
)

// Limits of the ways.
const (
	maxPastes     = 3
	maxPaste      = 16 << 10 // bytes
	deviceTime    = 15 * time.Minute
	devicePause   = 5 * time.Second // between two questions, and what slow_down adds
	maxDeviceWait = time.Minute     // between two questions
)

// byBrowser logs in with a browser on this machine, which starts and ends at the door.
func (r *run) byBrowser(ctx context.Context) (l *login.Login, err error) {
	verifier := random()
	d := r.door
	d.leadsTo = r.authorization(verifier)
	defer d.serve()()
	const end = "   (Ctrl-C ends the login)"
	if r.Open == nil || r.Open(ctx, d.start()) != nil {
		r.Say("open this address in a browser on this machine: %s%s", d.start(), end)
	} else {
		r.Say("opened in your browser; if it was not: %s%s", d.start(), end)
	}
	r.Say("if this machine has no browser: holdline servers login %s --paste", r.Name)
	query, err := d.wait(ctx)
	if err != nil {
		return nil, err
	}
	g, err := r.exchange(ctx, query, verifier)
	if err == nil {
		l, err = r.store(ctx, g)
	}
	if err != nil {
		d.leave(page{status: http.StatusOK, title: "Not logged in to " + r.Name, text: sentence(err.Error())})
		return nil, err
	}
	text := "Your agents can use the server now."
	if l.Person != "" {
		text = "You are logged in as " + l.Person + ". " + text
	}
	d.leave(page{status: http.StatusOK, good: true, title: "Logged in to " + r.Name, text: text})
	return l, nil
}

// sentence returns a text of this program as a sentence of its own.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// authorization returns the address at which the person logs in, which binds the answer to
// this login: by its state, and by the verifier that only we know (PKCE).
func (r *run) authorization(verifier string) string {
	challenge := sha256.Sum256([]byte(verifier))
	v := r.with(url.Values{
		"response_type": {"code"}, "client_id": {r.client.id}, "redirect_uri": {r.door.text}, "state": {r.door.state},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(challenge[:])},
		"code_challenge_method": {"S256"},
	}, true)
	if slices.Contains(r.scopes, offlineScope) {
		v.Set("prompt", "consent")
	}
	// What the endpoint has in its query is kept as it is.
	at, _, _ := strings.Cut(r.found.Server.AuthorizationEndpoint, "#")
	if strings.Contains(at, "?") {
		return at + "&" + v.Encode()
	}
	return at + "?" + v.Encode()
}

// exchange returns what the token endpoint grants for the answer with which the browser
// came back. The state of the answer is that of this login already.
func (r *run) exchange(ctx context.Context, answer url.Values, verifier string) (*login.Grant, error) {
	iss, sent := answer["iss"]
	switch {
	case !sent && r.found.Server.SendsIssuer:
		return nil, errors.New("the answer does not say which authorization server it is from, as this one always does")
	case sent && iss[0] != r.found.Server.Issuer: // nothing of such an answer is used or shown
		return nil, errors.New("the answer is from another authorization server than the one that was asked")
	}
	if code := answer.Get("error"); code != "" {
		return nil, declined(code, answer.Get("error_description"))
	}
	code := answer.Get("code")
	if code == "" || len(code) > maxCode {
		return nil, errors.New("the authorization server sent no code that can be used")
	}
	g, err := r.HTTP.Ask(ctx, r.endpoint(r.found.Server.TokenEndpoint), r.with(url.Values{
		"grant_type": {login.GrantCode}, "code": {code}, "redirect_uri": {r.door.text}, "code_verifier": {verifier},
	}, false), nil)
	if err != nil {
		return nil, refusal("to give out a token", err)
	}
	return &g, nil
}

// declined returns the error of an authorization server or of its person.
func declined(code, description string) error {
	words := login.Clean(code)
	if description != "" {
		words += ": " + login.Clean(description)
	}
	if code == "access_denied" {
		return errors.New(strings.TrimSuffix("the login was declined in the browser ("+words+")", " (access_denied)"))
	}
	return &refusedError{code, "the authorization server refuses the login (" + words + ")"}
}

// byPaste logs in with a browser elsewhere. It ends at our redirect URI, which leads nowhere
// there, and the person pastes that address here.
func (r *run) byPaste(ctx context.Context) (*login.Grant, error) {
	verifier := random()
	r.Say("open this address in any browser:\n\n%s\n", r.authorization(verifier))
	r.Say("log in there; the browser then ends at an address that it cannot reach:\n%s?...", r.door.text)
	for range maxPastes {
		line, err := r.Ask(ctx, "paste that whole address here (it is not shown), then press Enter: ", true)
		if err != nil {
			return nil, err
		}
		answer, err := r.pasted(strings.TrimSpace(line.Reveal()))
		if err == nil {
			return r.exchange(ctx, answer, verifier)
		}
		r.Say("%v", err)
	}
	return nil, fmt.Errorf("no address of this login was pasted, %d times", maxPastes)
}

// pasted returns the answer that an address has at which the browser has ended.
func (r *run) pasted(address string) (url.Values, error) {
	raw, ours := strings.CutPrefix(address, r.door.text+"?")
	raw, _, _ = strings.Cut(raw, "#")
	query, err := single(raw)
	switch {
	case len(address) > maxPaste:
		return nil, errors.New("that is too long for an address")
	case !ours:
		return nil, fmt.Errorf("that does not begin with %s?", r.door.text)
	case err != nil:
		return nil, fmt.Errorf("that is not the address of an answer: %w", err)
	case !same(query.Get("state"), r.door.state):
		return nil, errors.New("that is the answer to another login")
	}
	return query, nil
}

// byDevice logs in by a code that the person types elsewhere (RFC 8628).
func (r *run) byDevice(ctx context.Context) (*login.Grant, error) {
	form := r.with(url.Values{}, true)
	answer, err := r.HTTP.PostForm(ctx, r.endpoint(r.found.Server.DeviceEndpoint), form, nil)
	if err != nil {
		return nil, refusal("to give out a code", err)
	}
	var a struct {
		Device   string  `json:"device_code"`
		Code     string  `json:"user_code"`
		At       string  `json:"verification_uri"`
		Complete string  `json:"verification_uri_complete"`
		Expires  float64 `json:"expires_in"`
		Interval float64 `json:"interval"`
	}
	if json.Unmarshal(answer.Body, &a) != nil || a.Device == "" || a.Code == "" || r.HTTP.Check(a.At) != nil {
		return nil, errors.New("the authorization server gives out a code that cannot be used")
	}
	r.Say("open %s in any browser, and enter the code: %s", login.Clean(a.At), login.Clean(a.Code))
	if a.Complete != "" && r.HTTP.Check(a.Complete) == nil {
		r.Say("or open %s", login.Clean(a.Complete))
	}
	limit := deviceTime
	if a.Expires > 0 { // the number may be too large for a duration
		limit = time.Duration(min(limit.Seconds(), a.Expires) * float64(time.Second))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("nobody entered the code in time"))
	defer cancel()
	pause := devicePause
	if a.Interval > 0 {
		pause = time.Duration(min(a.Interval, maxDeviceWait.Seconds()) * float64(time.Second))
	}
	return r.poll(ctx, a.Device, pause)
}

// poll asks the token endpoint until the person has entered the code.
func (r *run) poll(ctx context.Context, device string, pause time.Duration) (*login.Grant, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
		g, err := r.HTTP.Ask(ctx, r.endpoint(r.found.Server.TokenEndpoint), r.with(url.Values{
			"grant_type": {login.GrantDevice}, "device_code": {device},
		}, false), nil)
		e, refused := errors.AsType[*login.RefusalError](err)
		timeout, ok := errors.AsType[interface {
			error
			Timeout() bool
		}](err)
		switch {
		case err == nil:
			return &g, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case refused && e.Code == "authorization_pending":
		case refused && e.Code == "slow_down":
			pause = min(pause+devicePause, maxDeviceWait)
		case ok && timeout.Timeout():
			pause = min(2*pause, maxDeviceWait)
		case refused && !e.IsVerdict() && e.Code != "access_denied" && e.Code != "expired_token":
			pause = min(max(2*pause, e.RetryAfter), maxDeviceWait) // a gateway, or a server that is down or busy
		case refused && e.Code == "access_denied":
			return nil, declined(e.Code, e.Description)
		case refused && e.Code == "expired_token":
			return nil, errors.New("nobody entered the code in time")
		default:
			return nil, refusal("to give out a token", err)
		}
	}
}
