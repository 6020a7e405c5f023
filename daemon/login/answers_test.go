package login_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/login/logintest"
	"holdline/protocol/fault"
)

// renewalFails makes n renewals fail, as if the pauses between them were over, and returns the last error.
func renewalFails(t *testing.T, u *user, n int) (err error) {
	t.Helper()
	for range n {
		if err = u.call(t.Context(), u.tokens()); err == nil {
			t.Fatal("a call had a token")
		}
		u.change(func(l *login.Login) {
			l.Retry.At = time.Time{}
			if l.Mark != nil {
				l.Mark.At = l.Mark.At.Add(-time.Minute)
			}
		})
	}
	return err
}

// TestAnswerIsNoVerdict_LoginIsRenewedAfterwards checks that no answer of a token endpoint, however often it
// comes, costs the login unless it is a verdict, that the fault says what the endpoint says and when the next
// try is, and that the login is renewed once the endpoint gives out tokens again.
func TestAnswerIsNoVerdict_LoginIsRenewedAfterwards(t *testing.T) {
	t.Parallel()
	reply := func(status int, text string) *logintest.Reply { return &logintest.Reply{Status: status, Text: text} }
	moved := reply(302, "")
	moved.Header = http.Header{"Location": {"https://login.example/"}}
	for name, tt := range map[string]struct {
		reply *logintest.Reply
		says  string
	}{
		"502 by a gateway, a page":     {reply(502, "<html><head><style>p{}</style></head><h1>Bad gateway</h1></html>"), "502 Bad Gateway: Bad gateway"},
		"500 that says invalid_grant":  {reply(500, `{"error":"invalid_grant"}`), "500 Internal Server Error: invalid_grant"},
		"500 that says invalid_client": {reply(500, `{"error":"invalid_client"}`), "invalid_client"},
		"503 without a word":           {reply(503, ""), "503 Service Unavailable"},
		"504 cut within its page":      {&logintest.Reply{Status: 504, Text: strings.Repeat("x", 99), Break: true, Cut: 90}, "504 Gateway Timeout"},
		"520 of Cloudflare":            {reply(520, "error code: 520"), "error code: 520"},
		"502 without an end":           {reply(502, strings.Repeat("<p>sorry ", 64<<10)), "502 Bad Gateway: sorry"},
		"429":                          {reply(429, `{"error":"invalid_grant","error_description":"too many"}`), "too many"},
		"408":                          {reply(408, "too slow"), "too slow"},
		"403 of a firewall":            {reply(403, "<html>Attention Required!</html>"), "Attention Required!"},
		"404 during a deployment":      {reply(404, "default backend - 404"), "default backend - 404"},
		"405 without a word":           {reply(405, ""), "405 Method Not Allowed"},
		"400 with an object":           {reply(400, `{"error":{"code":503,"message":"upstream is away"}}`), "upstream is away"},
		"400 that is busy":             {reply(400, `{"error":"temporarily_unavailable"}`), "temporarily_unavailable"},
		"302 to a page":                {moved, "302 Found"},
		"200 without a token":          {reply(200, `{"status":"maintenance"}`), "maintenance"},
		"200 and nothing":              {reply(200, ""), "no token"},
		"200 of another network":       {reply(200, "<html>Welcome to the hotel</html>"), "Welcome to the hotel"},
		"200 with another form":        {reply(200, "status=maintenance&token_type=bearer"), "no token"},
		"202":                          {reply(202, "{}"), "no token"},
		"204":                          {reply(204, ""), "no token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			down := true
			u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
				if down {
					return tt.reply
				}
				return nil
			}})
			u.srv.Expire()
			err := renewalFails(t, u, 12)
			wants(t, err, fault.TransportFailure, fault.Unreachable, tt.says)
			if f, ok := errors.AsType[*fault.Record](err); !ok || f.RetryAfterMS == nil ||
				!strings.Contains(f.Fault.Detail, "servers login") || strings.Contains(f.Fault.Detail, "abc") {
				t.Errorf("the fault: %v", err)
			}
			if _, l := u.file(); l.Lost != nil || l.Mark != nil || l.Refresh == "" {
				t.Errorf("lost %+v, mark %+v, refresh token kept: %v", l.Lost, l.Mark, l.Refresh != "")
			}
			u.srv.Set(func(*logintest.Options) { down = false })
			if err := u.call(t.Context(), u.tokens()); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestVerdict_EndsTheLogin checks that what is a verdict about the grant or the client counts as one in each
// form in which servers give it.
func TestVerdict_EndsTheLogin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		text   string
		says   string
	}{
		"as RFC 6749 wants":        {400, `{"error":"invalid_grant"}`, "the refresh token was refused"},
		"by 401":                   {401, `{"error":"invalid_grant","error_description":"it ran out"}`, "the refresh token was refused"},
		"by 200":                   {200, `{"error":"invalid_grant"}`, "the refresh token was refused"},
		"in an object":             {400, `{"error":{"code":"invalid_grant","message":"no"}}`, "the refresh token was refused"},
		"in a list":                {400, `[{"error":"invalid_grant"}]`, "the refresh token was refused"},
		"behind a mark of UTF-8":   {400, "\ufeff" + `{"error":"invalid_grant"}`, "the refresh token was refused"},
		"another one, five times":  {400, `{"error":"invalid_target"}`, "its renewal was refused: 400 Bad Request: invalid_target"},
		"a word of the server":     {200, `{"error":"bad_refresh_token"}`, "its renewal was refused: 200 OK: bad_refresh_token"},
		"with a description aside": {400, `{"error":"invalid_request","error_description":"resource"}`, "invalid_request resource"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := logIn(t, logintest.Options{Life: time.Hour, Token: func(int, url.Values) *logintest.Reply {
				return &logintest.Reply{Status: tt.status, Text: tt.text}
			}})
			u.srv.Expire()
			wants(t, renewalFails(t, u, 6), fault.Unauthenticated, fault.NotLoggedIn, tt.says)
		})
	}
}

// TestRenewalWithResourceRefused_SentOnceMoreWithout renews a login at a server that refuses the parameter resource in
// renewals alone. Later renewals go without it at once.
func TestRenewalWithResourceRefused_SentOnceMoreWithout(t *testing.T) {
	t.Parallel()
	var u *user
	var sent []bool // with the parameter
	u = logIn(t, logintest.Options{Life: time.Hour, Token: func(_ int, form url.Values) *logintest.Reply {
		if sent = append(sent, form.Has("resource")); !form.Has("resource") {
			form.Set("resource", u.srv.URL) // which such a server knows by itself
			return nil
		}
		const words = "AADSTS901002: The 'resource' request parameter is not supported."
		return &logintest.Reply{Status: 400, Text: `{"error":"invalid_request","error_description":"` + words + `"}`}
	}})
	for n, want := range [][]bool{{true, false}, {true, false, false}} {
		u.srv.Expire()
		if err := u.call(t.Context(), u.tokens()); err != nil {
			t.Fatalf("renewal %d: %v", n, err)
		}
		if _, l := u.file(); !slices.Equal(sent, want) || l.Mark != nil {
			t.Errorf("renewal %d: sent with resource %v, want %v; %+v", n, sent, want, l.Mark)
		}
	}
}

// TestAnyStatusOf2xx_TokenIsTaken renews a login whose endpoint answers a token by that status.
func TestAnyStatusOf2xx_TokenIsTaken(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 202, 203, 299} {
		u := logIn(t, logintest.Options{Life: time.Hour, Token: func(n int, _ url.Values) *logintest.Reply {
			return &logintest.Reply{Status: status, Text: `{"access_token":"new","token_type":"bearer","refresh_token":"next"}`}
		}})
		u.srv.Expire()
		_ = u.call(t.Context(), u.tokens()) // the server knows no such token
		if _, l := u.file(); l.Refresh.Reveal() != "next" || l.Access.Reveal() != "new" || l.Mark != nil {
			t.Errorf("%d: %+v", status, l)
		}
	}
}

// TestWordsOfRefusal checks what is shown of an answer that issues nothing.
func TestWordsOfRefusal(t *testing.T) {
	body := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(body))
	}))
	defer srv.Close()
	for text, want := range map[string]string{
		``:                            "400 Bad Request",
		`{}`:                          "400 Bad Request",
		`[]`:                          "400 Bad Request",
		`null`:                        "400 Bad Request",
		`"no such token"`:             "400 Bad Request: no such token",
		`["first","second"]`:          `400 Bad Request: ["first","second"]`,
		`["only"]`:                    "400 Bad Request: only",
		`{"error":["a","b"]}`:         `400 Bad Request: ["a","b"]`,
		`{"errors":[{"detail":"x"}]}`: "400 Bad Request: x",
		`{"error":"a_b","error_description":"c"}`:                          "400 Bad Request: a_b c",
		`{"error":{"error":"a_b","error_description":"c"}}`:                "400 Bad Request: a_b c",
		`{"code":400,"error_code":"gone","msg":"Refresh Token Not Found"}`: "400 Bad Request: Refresh Token Not Found",
		`{"message":"Forbidden"}`:                                          "400 Bad Request: Forbidden",
		`{"errcode":7}`:                                                    `400 Bad Request: {"errcode":7}`,
		`7`:                                                                "400 Bad Request",
		"plain\x1b[31m words\n and more":                                   "400 Bad Request: plain[31m words and more",
		`the token is sent-by-us`:                                          "400 Bad Request: the token is ***",
		`{"refresh_token":"another"}`:                                      "400 Bad Request",
		`{"error":{"error":{"error":{"error":{"error":{"error":"a_b"}}}}}}`: `400 Bad Request: {"error":{"error":"a_b"}}`,
		strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000):               "400 Bad Request: [[[",
	} {
		body = text
		e := login.Endpoint{URL: srv.URL, ClientID: "c"}
		_, err := login.NewClient(srv.URL, "", "1").Ask(t.Context(), e, url.Values{"refresh_token": {"sent-by-us"}}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) || len(text) < 1000 && err.Error() != want {
			t.Errorf("%.80s: %.200v, want %q", text, err, want)
		}
	}
}
