package login_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login"
)

// TestAddressesThatAreNotAsked checks which addresses a client asks and opens, for a server
// on the public network and for one on this machine.
func TestAddressesThatAreNotAsked(t *testing.T) {
	public := login.NewClient("https://203.0.113.1/mcp", "", "1")
	local := login.NewClient("http://127.0.0.1:1/mcp", "", "1")
	for _, address := range []string{
		"javascript:alert(1)", "file:///etc/passwd", "https://", "https://u:p@h/", "http://h/", "https:h", "ftp://h/",
		"http://[fe80::1]/", "https://h/" + strings.Repeat("x", 9000), "http://127.0.0.1.evil/", "://",
	} {
		for _, c := range []*login.Client{public, local} {
			if err := c.Check(address); !errors.Is(err, login.ErrForbidden) {
				t.Errorf("Check(%.40q) = %v", address, err)
			}
		}
	}
	for _, address := range []string{"http://127.0.0.1/", "http://[::1]:9/x", "http://localhost/"} {
		if err := public.Check(address); !errors.Is(err, login.ErrForbidden) {
			t.Errorf("Check(%q) of a public server = %v", address, err)
		}
		if err := local.Check(address); err != nil {
			t.Errorf("Check(%q) of a local server = %v", address, err)
		}
	}
	for _, address := range []string{
		"https://10.0.0.1/", "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest", "https://100.64.0.1/",
		"https://[fd00::1]/", "https://0.0.0.0/", "https://[::ffff:10.0.0.1]/", "https://[64:ff9b::a00:1]/",
		"https://localhost/", "https://224.0.0.1/", "https://[2002:a00:1::]/",
	} {
		if _, err := public.Get(t.Context(), address); !errors.Is(err, login.ErrForbidden) {
			t.Errorf("Get(%q) of a public server: %v, want ErrForbidden", address, err)
		}
	}
	if _, err := local.Get(t.Context(), "https://169.254.169.254/"); !errors.Is(err, login.ErrForbidden) {
		t.Errorf("a local server reached the metadata service: %v", err)
	}
}

// TestOneMoreAddress_OpensNothing checks how far from the public network a host counts as: one private
// address more does not make a public server a private one, whose metadata may name private addresses.
func TestOneMoreAddress_OpensNothing(t *testing.T) {
	for text, want := range map[string]int{
		"203.0.113.1": 0, "127.0.0.1 203.0.113.1": 0, "2001:db8::1 10.0.0.1": 0, "127.0.0.1 10.0.0.1": 1,
		"127.0.0.1 ::1": 2, "169.254.169.254": 3, "": 3,
	} {
		var ips []netip.Addr
		for ip := range strings.FieldsSeq(text) {
			ips = append(ips, netip.MustParseAddr(ip))
		}
		if got := login.Nearest(ips...); got != want {
			t.Errorf("%q counts as %d, want %d", text, got, want)
		}
	}
}

// TestBoundsOfAnswers checks what a client follows and how much it reads.
func TestBoundsOfAnswers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "elsewhere")
	}))
	defer other.Close()
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch r.URL.Path {
		case "/one":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", 257<<10))
		default:
			fmt.Fprint(w, r.Header.Get("User-Agent"), r.Header.Get("Cookie"))
		}
	}))
	defer srv.Close()
	c := login.NewClient(srv.URL, "", "1.2")
	if a, err := c.Get(t.Context(), srv.URL+"/one"); err != nil || string(a.Body) != "holdline/1.2" {
		t.Errorf("one redirect: %v, %v", a, err)
	}
	asked = 0
	if a, err := c.Get(t.Context(), srv.URL+"/loop"); err != nil || a.Status != http.StatusTemporaryRedirect || asked != 4 {
		t.Errorf("a loop: %v, %v, asked %d times", a, err, asked)
	}
	if a, err := c.Get(t.Context(), srv.URL+"/away"); err != nil || a.Status != http.StatusFound {
		t.Errorf("to another origin: %v, %v", a, err)
	}
	if _, err := c.Get(t.Context(), srv.URL+"/large"); err == nil {
		t.Error("a large answer was read")
	}
	asked = 0
	if a, err := c.Post(t.Context(), srv.URL+"/loop", "text/plain", []byte("x")); err != nil || asked != 1 {
		t.Errorf("a POST was redirected: %v, %v, asked %d times", a, err, asked)
	}
}

// TestTokenEndpoint checks what is sent to a token endpoint in each way of authentication,
// and how its answers are read.
func TestTokenEndpoint(t *testing.T) {
	var got *http.Request
	status, body := 200, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = r
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer srv.Close()
	c := login.NewClient(srv.URL, "", "1")
	ask := func(method string) (login.Grant, error) {
		e := login.Endpoint{URL: srv.URL, ClientID: "a b", Method: method, Secret: "s:/+"}
		return c.Ask(t.Context(), e, url.Values{"grant_type": {"refresh_token"}, "resource": {"https://h"}}, nil)
	}
	const good = `{"access_token":"at","token_type":"bearer"`
	for method, want := range map[string][3]string{ // id and secret in the body, and the header
		login.AuthNone: {"a b", "", ""}, login.AuthPost: {"a b", "s:/+", ""},
		login.AuthBasic: {"", "", "Basic YStiOnMlM0ElMkYlMkI="},
	} {
		body = good + "}"
		if _, err := ask(method); err != nil {
			t.Fatal(err)
		}
		f := got.PostForm
		if is := [3]string{f.Get("client_id"), f.Get("client_secret"), got.Header.Get("Authorization")}; is != want ||
			f.Get("resource") != "https://h" {
			t.Errorf("%s: sent %v, %v, want %v", method, is, f, want)
		}
	}
	for text, seconds := range map[string]int{
		good + `}`: 0, good + `,"expires_in":60}`: 60, good + `,"expires_in":"60"}`: 60,
		good + `,"expires_in":0}`: 0, good + `,"expires_in":-1}`: 0, good + `,"expires_in":null}`: 0,
		good + `,"expires_in":1e300}`: 0, good + `,"expires_in":"NaN"}`: 0,
	} {
		body = text
		g, err := ask(login.AuthNone)
		if err != nil || g.Access.Reveal() != "at" || g.Expires.IsZero() != (seconds == 0) ||
			seconds > 0 && g.Expires.Sub(g.Obtained) != time.Duration(seconds)*time.Second {
			t.Errorf("%s: %v, expires %v", text, err, g.Expires)
		}
	}
	body = good + `,"scope":"a b","refresh_token":"rt",` +
		`"id_token":"x.eyJlbWFpbCI6ImFkYVx1MDAxYkBleGFtcGxlLmNvbSJ9.y"}`
	if g, err := ask(login.AuthNone); err != nil || len(g.Scopes) != 2 || g.Refresh.Reveal() != "rt" ||
		g.Person != "ada@example.com" {
		t.Errorf("scopes %v, person %q, %v", g.Scopes, g.Person, err)
	}
	for text, scopes := range map[string]int{
		good + `,"scope":["a","b"]}`: 2, good + `,"scope":[]}`: 0, good + `,"scope":null}`: 0, good + `,"scope":7}`: 0,
		"\ufeff" + good + `,"scope":"a"}`: 1, `{"access_token":"at"}`: 0, `{"access_token":"at","token_type":null}`: 0,
		`{"access_token":"at","token_type":"user"}`: 0, "access_token=at&expires_in=60&scope=a+b&token_type=bearer": 2,
		"\ufeffaccess_token=at&scope=\n": 0,
	} {
		body = text
		if g, err := ask(login.AuthNone); err != nil || g.Access.Reveal() != "at" || len(g.Scopes) != scopes {
			t.Errorf("%s: scopes %q, %v", text, g.Scopes, err)
		}
	}
	for _, text := range []string{
		"", "{}", "[]", "token_type=bearer", `{"access_token":"at","token_type":"mac"}`,
		`{"access_token":"at","token_type":"DPoP"}`, "access_token=&token_type=bearer",
		`{"access_token":"a t","token_type":"Bearer"}`, `{"access_token":"","token_type":"Bearer"}`,
		`{"access_token":"` + strings.Repeat("x", 16385) + `","token_type":"Bearer"}`,
		`{"access_token":"at","token_type":"Bearer","refresh_token":"x\ny"}`,
	} {
		body = text
		if _, err := ask(login.AuthNone); !errors.Is(err, login.ErrNonsense) {
			t.Errorf("%.60s: %v, want ErrNonsense", text, err)
		}
	}
	status, body = 400, `{"error":"invalid_grant","error_description":"no\u0007 such"}`
	_, err := ask(login.AuthNone)
	refused, ok := errors.AsType[*login.RefusalError](err)
	if !ok || refused.Code != "invalid_grant" || refused.Description != "no such" || refused.RetryAfter != 7*time.Second {
		t.Errorf("refusal: %+v, %v", refused, err)
	}
}

// TestEarlyAnswer_WaitsForTheMark checks that an answer which comes before the form was sent, as from a
// gateway, does not overtake the hook that writes the mark.
func TestEarlyAnswer_WaitsForTheMark(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the connection
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1)) // of the header
		_, _ = io.WriteString(c, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}()
	address := "http://" + l.Addr().String()
	written, release, done := false, make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := login.NewClient(address, "", "1").Ask(t.Context(), login.Endpoint{URL: address}, url.Values{}, func() error {
			<-release
			written = true
			return nil
		})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Ask returns while the mark is written: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	if _, refused := errors.AsType[*login.RefusalError](<-done); !refused || !written {
		t.Errorf("refused: %v, the mark is written: %v", refused, written)
	}
}

// TestNothingIsSentIfTheMarkFails checks that a token is not on the wire if the hook before
// it fails, and that the hook is not called without a connection.
func TestNothingIsSentIfTheMarkFails(t *testing.T) {
	sent := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err == nil {
			sent <- r.PostForm.Encode()
		}
	}))
	defer srv.Close()
	c, full := login.NewClient(srv.URL, "", "1"), errors.New("the disk is full")
	form := url.Values{"refresh_token": {"rt"}}
	if _, err := c.Ask(t.Context(), login.Endpoint{URL: srv.URL}, form, func() error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	srv.Close()
	select {
	case text := <-sent:
		t.Errorf("sent %s", text)
	default:
	}
	called := false
	_, err := c.Ask(t.Context(), login.Endpoint{URL: srv.URL}, form, func() error { called = true; return nil })
	if err == nil || called {
		t.Errorf("without a connection: %v, hook called: %v", err, called)
	}
}
