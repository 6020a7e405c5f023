package remote_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdline/daemon/adapter/remote"
	"holdline/daemon/redact"
	"holdline/protocol/fault"
)

// tokens is a login that hands out the tokens in turn, one more after each refusal.
type tokens struct {
	mu      sync.Mutex
	all     []redact.Secret
	refused []string
	err     error
}

func (l *tokens) Token(context.Context, bool) (redact.Secret, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[0], l.err
}

func (l *tokens) Refused(
	_ context.Context, token redact.Secret, status int, header http.Header, again bool,
) (redact.Secret, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, token.Reveal()+" "+http.StatusText(status)+" "+header.Get("WWW-Authenticate"))
	if again || len(l.all) == 1 {
		return "", fault.New(fault.Unauthenticated, fault.Server, "", "no login").WithReason(fault.NotLoggedIn)
	}
	l.all = l.all[1:]
	return l.all[0], nil
}

func (l *tokens) Answered(context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = append(l.refused, "none needed")
}

// TestRefusedToken_MessageIsSentAgainOnce checks that each request carries the token, that a
// message whose token is refused is sent once more, and what becomes of a second refusal.
func TestRefusedToken_MessageIsSentAgainOnce(t *testing.T) {
	var mu sync.Mutex
	var got []string
	var open atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, r.Method+" "+r.Header.Get("Authorization"))
		mu.Unlock()
		switch {
		case r.Header.Get("Authorization") != "Bearer good" && !open.Load():
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			w.Header().Set("Mcp-Session-Id", "s")
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`))
		}
	}))
	defer srv.Close()
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	send := func(login *tokens, also func(c *remote.Client)) (answers int, err error) {
		c := remote.New(remote.Options{Name: "s", URL: srv.URL, Login: login})
		err = c.Send(t.Context(), []byte(hello), func([]byte) error { answers++; return nil })
		if also != nil {
			also(c)
		}
		c.Close(t.Context())
		return answers, err
	}
	login := &tokens{all: []redact.Secret{"bad", "good"}}
	if n, err := send(login, func(c *remote.Client) {
		if err := c.Listen(t.Context(), nil); err != nil {
			t.Errorf("Listen: %v", err)
		}
	}); n != 1 || err != nil || len(login.refused) != 1 || login.refused[0] != "bad Unauthorized Bearer" {
		t.Errorf("%d answers, %v, refused %v", n, err, login.refused)
	}
	if want := []string{"POST Bearer bad", "POST Bearer good", "GET Bearer good", "DELETE Bearer good"}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	got = nil
	_, err := send(&tokens{all: []redact.Secret{"bad", "worse", "good"}}, nil)
	wantFault(t, err, "no login")
	if len(got) != 2 {
		t.Errorf("a second refusal: sent %q", got)
	}
	got = nil
	_, err = send(&tokens{
		all: []redact.Secret{""},
		err: fault.New(fault.Unauthenticated, fault.Server, "", "lost").WithReason(fault.NotLoggedIn),
	}, nil)
	wantFault(t, err, "lost")
	if len(got) != 0 {
		t.Errorf("without a login: sent %q", got)
	}
	open.Store(true)
	login = &tokens{all: []redact.Secret{""}}
	if n, err := send(login, nil); n != 1 || err != nil || !slices.Equal(login.refused, []string{"none needed"}) {
		t.Errorf("a server that wants no login: %d answers, %v, the login hears %q", n, err, login.refused)
	}
}

// TestListeningRefused checks that a server which refuses to let anybody listen costs no renewal, and
// is not asked again and again: only another token that is stored by then is tried.
func TestListeningRefused(t *testing.T) {
	for want, stored := range map[string]redact.Secret{"a ": "", "a b ": "b"} {
		got := ""
		login := &tokens{all: []redact.Secret{"a", "renewed"}}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				got += strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + " "
				if stored != "" {
					login.mu.Lock()
					login.all[0] = stored
					login.mu.Unlock()
				}
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Mcp-Session-Id", "s")
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`))
		}))
		c := remote.New(remote.Options{Name: "s", URL: srv.URL, Login: login})
		hello := []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
		if err := c.Send(t.Context(), hello, func([]byte) error { return nil }); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := c.Listen(ctx, nil); err != nil || got != want || len(login.refused) > 0 {
			t.Errorf("Listen: %v, with %q, want %q; the login heard %q", err, got, want, login.refused)
		}
		cancel()
		srv.Close()
	}
}

// wantFault checks that err is the fault of a login, with the operation of the message.
func wantFault(t *testing.T, err error, text string) {
	t.Helper()
	f := fault.From(err, fault.Host, "")
	if f.Reason() != fault.NotLoggedIn || f.Operation != "initialize" || !strings.Contains(f.Error(), text) {
		t.Errorf("got %+v, want %q of initialize", f, text)
	}
}
