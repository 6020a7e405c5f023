package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login/logintest"
)

// browser is an HTTP client with cookies that follows no redirect by itself.
func browser() *http.Client {
	jar, _ := cookiejar.New(nil) // it never fails
	return &http.Client{
		Jar: jar, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{DisableKeepAlives: true},
	}
}

// visit asks for an address and returns the status, the header and the page.
func visit(t *testing.T, c *http.Client, address string, change ...func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, readAll(resp)
}

// readAll returns the text of an answer, and closes it.
func readAll(resp *http.Response) string {
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // half a page fails the test
	return string(b)
}

// freePort returns a port of loopback that nobody has, and that no test of cmd/e2e takes.
func freePort(t *testing.T) int {
	t.Helper()
	return logintest.FreePort(t, 10000)
}

// opened returns a door at a port of the system's choice, which is served until the test ends.
func opened(t *testing.T) *door {
	t.Helper()
	d, err := open("http://127.0.0.1:0/callback")
	if err != nil {
		t.Fatal(err)
	}
	d.leadsTo = "https://as.example.com/authorize?state=" + d.state
	t.Cleanup(d.serve())
	return d
}

// outcome is what a login gets of its door.
type outcome struct {
	query url.Values
	err   error
}

// login waits for the browser, and sends it to a page.
func (d *door) login(ctx context.Context, p page) <-chan outcome {
	out := make(chan outcome, 1)
	go func() { // ends with ctx, or with the first answer
		query, err := d.wait(ctx)
		if err == nil {
			d.leave(p)
		}
		out <- outcome{query, err}
	}()
	return out
}

// TestDoor checks the way of a browser through the door, and the headers of each page.
func TestDoor(t *testing.T) {
	d, c := opened(t), browser()
	got := d.login(t.Context(), page{status: http.StatusOK, good: true, title: "In <b>", text: `as "a" & b`})
	code, header, _ := visit(t, c, d.start())
	if code != http.StatusFound || header.Get("Location") != d.leadsTo {
		t.Fatalf("the start: %d %v", code, header)
	}
	cookie := header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Lax", "Path=/callback", "Max-Age=600", "holdline_login_" + d.redirect.Port() + "="} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie %q lacks %s", cookie, want)
		}
	}
	if code, _, page := visit(t, browser(), d.start()); code != http.StatusGone || !strings.Contains(page, "--no-browser") {
		t.Errorf("the second start: %d %s", code, page)
	}
	code, header, _ = visit(t, c, d.text+"?code=secret&state="+d.state)
	if code != http.StatusSeeOther || strings.Contains(header.Get("Location"), "secret") {
		t.Fatalf("the way back: %d %v", code, header)
	}
	code, header, body := visit(t, c, "http://"+d.redirect.Host+header.Get("Location"))
	if code != http.StatusOK || !strings.Contains(body, "In &lt;b&gt;") || strings.Contains(body, `"a"`) {
		t.Errorf("the page: %d %s", code, body)
	}
	for _, not := range []string{"<script", "http://", "https://", "src=", "href="} {
		if strings.Contains(strings.ToLower(body), not) {
			t.Errorf("the page has %s: %s", not, body)
		}
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
		"X-Frame-Options": "DENY", "Content-Type": "text/html; charset=utf-8", "Access-Control-Allow-Origin": "",
	} {
		if header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, header.Get(name), want)
		}
	}
	policy := header.Get("Content-Security-Policy")
	for _, want := range []string{
		"default-src 'none'", "style-src 'sha256-", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
	} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if x := <-got; x.err != nil || x.query.Get("code") != "secret" {
		t.Errorf("the login gets %v", x)
	}
	if code, _, _ := visit(t, c, d.text+"?code=secret&state="+d.state); code != http.StatusGone {
		t.Errorf("a second way back: %d", code)
	}
}

// TestDoorRefuses checks that nothing but the answer to this login, by the browser that has
// started it, goes through the door, and that the login then goes on.
func TestDoorRefuses(t *testing.T) {
	d, c := opened(t), browser()
	got := d.login(t.Context(), page{status: http.StatusOK})
	visit(t, c, d.start())
	good := d.text + "?code=x&state=" + d.state
	for name, test := range map[string]struct {
		client  *http.Client
		address string
		change  func(*http.Request)
		want    int
	}{
		"no cookie":           {browser(), good, nil, http.StatusBadRequest},
		"another cookie":      {browser(), good, func(r *http.Request) { r.Header.Set("Cookie", d.cookieName()+"=x") }, http.StatusBadRequest},
		"no state":            {c, d.text + "?code=x", nil, http.StatusBadRequest},
		"another state":       {c, d.text + "?code=x&state=" + random(), nil, http.StatusBadRequest},
		"two states":          {c, good + "&state=" + d.state, nil, http.StatusBadRequest},
		"two codes":           {c, good + "&code=y", nil, http.StatusBadRequest},
		"a query of nonsense": {c, good + "&%zz", nil, http.StatusBadRequest},
		"another host":        {c, good, func(r *http.Request) { r.Host = "evil.example.com" }, http.StatusNotFound},
		"another port":        {c, good, func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusNotFound},
		"localhost": {c, good, func(r *http.Request) {
			r.Host = "localhost:" + d.redirect.Port()
		}, http.StatusNotFound},
		"another method":  {c, good, func(r *http.Request) { r.Method = http.MethodPost }, http.StatusNotFound},
		"another path":    {c, strings.Replace(good, "callback", "callback/", 1), nil, http.StatusNotFound},
		"another start":   {c, strings.TrimSuffix(d.start(), d.nonce) + random(), nil, http.StatusNotFound},
		"the page unseen": {c, "http://" + d.redirect.Host + "/done/" + random(), nil, http.StatusNotFound},
		"the root":        {c, "http://" + d.redirect.Host + "/", nil, http.StatusNotFound},
	} {
		change := test.change
		if change == nil {
			change = func(*http.Request) {}
		}
		if code, header, _ := visit(t, test.client, test.address, change); code != test.want ||
			header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d, want %d", name, code, test.want)
		}
		select {
		case x := <-got:
			t.Fatalf("%s: the login ends: %v", name, x)
		default:
		}
	}
	code, header, _ := visit(t, c, good)
	if code != http.StatusSeeOther {
		t.Fatalf("the right answer after all of that: %d", code)
	}
	visit(t, c, "http://"+d.redirect.Host+header.Get("Location"))
	if x := <-got; x.err != nil {
		t.Error(x.err)
	}
}

// TestStrayCallbacks_LoginGoesOn checks that answers which do not belong to the login never end
// it, however many come: any web page can have a browser ask for the callback.
func TestStrayCallbacks_LoginGoesOn(t *testing.T) {
	d, c := opened(t), browser()
	got := d.login(t.Context(), page{status: http.StatusOK})
	visit(t, c, d.start())
	for i := range 100 {
		client, address := browser(), d.text+"?state=guess"
		switch i % 4 {
		case 1:
			client = c // a page in the person's own browser: it has the cookie
		case 2:
			client, address = c, d.text
		case 3:
			address = d.text + "?error=access_denied&state=" + random()
		}
		if code, _, _ := visit(t, client, address); code != http.StatusBadRequest {
			t.Fatalf("stray %d: %d", i, code)
		}
		select {
		case x := <-got:
			t.Fatalf("stray %d ends the login: %v", i, x.err)
		default:
		}
	}
	code, header, _ := visit(t, c, d.text+"?code=right&state="+d.state)
	if code != http.StatusSeeOther {
		t.Fatalf("the right answer after all strays: %d", code)
	}
	visit(t, c, "http://"+d.redirect.Host+header.Get("Location"))
	if x := <-got; x.err != nil || x.query.Get("code") != "right" {
		t.Errorf("the login ends with %v, %v", x.query, x.err)
	}
}

// TestDoorTimesOut checks that a login without an answer ends when its context does, and that
// nothing listens afterwards.
func TestDoorTimesOut(t *testing.T) {
	d, err := open("http://127.0.0.1:0/callback")
	if err != nil {
		t.Fatal(err)
	}
	end := d.serve()
	late := errors.New("too late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, late)
	defer cancel()
	if x := <-d.login(ctx, page{}); !errors.Is(x.err, late) {
		t.Errorf("the login ends with %v", x)
	}
	end()
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", d.redirect.Host); err == nil {
		c.Close()
		t.Error("something listens still")
	}
}

// TestPorts checks which port is listened at if some are taken.
func TestPorts(t *testing.T) {
	var taken []int
	for range 2 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		taken = append(taken, l.Addr().(*net.TCPAddr).Port)
	}
	free := freePort(t)
	d, err := openFirst("127.0.0.1", append(taken, free), false)
	if err != nil || d.text != fmt.Sprintf("http://127.0.0.1:%d/callback", free) {
		t.Fatalf("the third port is free: %v", err)
	}
	d.drop()
	if _, err := openFirst("127.0.0.1", taken, false); err == nil || !strings.Contains(err.Error(), fmt.Sprint(taken[0], ", ")) {
		t.Errorf("all taken: %v", err)
	}
	if d, err = openFirst("127.0.0.1", taken, true); err != nil || d.redirect.Port() == "0" || !strings.Contains(d.text, d.redirect.Port()) {
		t.Errorf("all taken, and any will do: %v", err)
	}
	d.drop()
}

// TestLocalhost checks that localhost means both families, and that a port which somebody else
// has on one of them is not used.
func TestLocalhost(t *testing.T) {
	six, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no IPv6")
	}
	defer six.Close()
	port := six.Addr().(*net.TCPAddr).Port
	if _, err := openFirst("localhost", []int{port}, false); err == nil {
		t.Error("a port is used that somebody else has on ::1")
	}
	six.Close()
	d, err := openFirst("localhost", []int{port}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.serve()()
	for _, host := range []string{"127.0.0.1", "::1"} {
		code, _, _ := visit(t, browser(), "http://"+net.JoinHostPort(host, fmt.Sprint(port))+"/start/"+d.nonce,
			func(r *http.Request) { r.Host = d.redirect.Host })
		if code != http.StatusFound && code != http.StatusGone {
			t.Errorf("%s: %d", host, code)
		}
	}
}

// TestDoorOddRedirects checks which redirect URIs can be listened at.
func TestDoorOddRedirects(t *testing.T) {
	for _, redirect := range []string{
		"https://127.0.0.1:1/callback", "http://127.0.0.1/callback", "http://example.com:1/callback", "x", "http://0.0.0.0:1/",
	} {
		if d, err := open(redirect); err == nil {
			d.drop()
			t.Errorf("%s is listened at", redirect)
		}
	}
	d, err := newDoor("http://localhost:1")
	if err != nil || d.redirect.Path != "/" || d.text != "http://localhost:1" {
		t.Errorf("a redirect URI without a path: %v, %+v", err, d)
	}
}

// FuzzCallback checks that no query gets through the door unless it has this login's state,
// and each parameter once.
func FuzzCallback(f *testing.F) {
	for _, query := range []string{
		"state=STATE&code=x", "state=STATE&state=x", "state=x", "state=STATE;code=x", "%zz", "state=STATE&error=access_denied", "",
	} {
		f.Add(query)
	}
	d, err := newDoor("http://127.0.0.1:28123/callback")
	if err != nil {
		f.Fatal(err)
	}
	r := &run{door: d}
	f.Fuzz(func(t *testing.T, query string) {
		query = strings.ReplaceAll(query, "STATE", d.state)
		got, err := r.pasted(d.text + "?" + query)
		if err != nil {
			if strings.Contains(err.Error(), d.state) {
				t.Errorf("an error shows the state: %v", err)
			}
			return
		}
		if got.Get("state") != d.state {
			t.Errorf("%q gets through", query)
		}
		for name, values := range got {
			if len(values) != 1 {
				t.Errorf("%q: %s stands %d times", query, name, len(values))
			}
		}
	})
}
