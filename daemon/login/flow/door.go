package flow

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/daemon/login"
)

// Limits of the door.
const (
	maxConns   = 16
	maxHeaders = 16 << 10 // bytes
	readTime   = 5 * time.Second
	lastTime   = 2 * time.Second // for the last page
)

// errTaken is the error of a port that cannot be used.
var errTaken = errors.New("port is taken")

// door is where the browser starts and comes back: a listener on loopback that lives as
// long as one login. Only the browser that has started can come back, since it has the
// cookie, and only with the answer to this login, since that has the state.
type door struct {
	redirect *url.URL
	text     string // redirect, as it is registered
	socks    []net.Listener
	conns    atomic.Int32

	state, cookie, nonce, done string
	leadsTo                    string // where the browser is sent from the start address
	started                    atomic.Bool

	arrived chan url.Values // the query with which the browser comes back; unbuffered: the login takes one
	over    chan struct{}   // closed when the login has ended
	close   func()          // closes over
	last    page            // what the browser shows then; written before over is closed
	seen    chan struct{}   // gets a value when the browser has shown it
}

// newDoor returns a door that is not open yet: for a login without listener.
func newDoor(redirect string) (*door, error) {
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "http" || !login.IsLoopback(u.Hostname()) || u.Port() == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("the redirect URI %s is not http on loopback with a port", quote(redirect))
	}
	d := &door{
		redirect: u, text: redirect, state: random(), cookie: random(), nonce: random(), done: random(),
		arrived: make(chan url.Values), over: make(chan struct{}), seen: make(chan struct{}, 1),
	}
	d.close = sync.OnceFunc(func() { close(d.over) })
	u.Path = cmp.Or(u.Path, "/") // as the browser asks for it
	return d, nil
}

// open listens at a redirect URI, whose host is a literal address or localhost. The name
// may lead to either family, so both are listened at then. An error wraps [errTaken] if
// another process has the port.
func open(redirect string) (*door, error) {
	d, err := newDoor(redirect)
	if err != nil {
		return nil, err
	}
	u := d.redirect
	hosts := []string{u.Hostname()}
	if strings.EqualFold(u.Hostname(), "localhost") {
		hosts = []string{"127.0.0.1", "::1"}
	}
	var lc net.ListenConfig
	for _, host := range hosts {
		sock, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(host, u.Port()))
		// Port 0 stands for one of the system's choice, which is then that of the other
		// family as well.
		if err == nil && u.Port() == "0" {
			_, port, _ := net.SplitHostPort(sock.Addr().String())
			u.Host = net.JoinHostPort(u.Hostname(), port)
			d.text = u.String()
		}
		// A machine may have one family only.
		if err != nil && host == "::1" && len(d.socks) > 0 && !errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			d.drop()
			return nil, fmt.Errorf("%w: %s", errTaken, u.Port())
		}
		d.socks = append(d.socks, sock)
	}
	return d, nil
}

// drop closes the sockets, of which a server has closed its own already.
func (d *door) drop() {
	for _, sock := range d.socks {
		_ = sock.Close() // it may be closed
	}
}

// openFirst listens at the first of some ports that is free, with a host name or address.
// anyPort says that the system may choose one if none is.
func openFirst(host string, ports []int, anyPort bool) (*door, error) {
	if anyPort {
		ports = append(slices.Clip(ports), 0)
	}
	for _, port := range ports {
		d, err := open(redirectAt(host, port))
		if !errors.Is(err, errTaken) {
			return d, err
		}
	}
	names := make([]string, len(ports))
	for i, port := range ports {
		names[i] = strconv.Itoa(port)
	}
	return nil, fmt.Errorf("other programs have the ports %s, and this login cannot use others; "+
		"end one of them, or set logins.ports", strings.Join(names, ", "))
}

// redirectAt returns our redirect URI of a port.
func redirectAt(host string, port int) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/callback"
}

// random returns 32 random bytes as 43 characters that an address may have.
func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// start is the address that begins the login in a browser. It works once, and has nothing
// in it that helps a user who reads the arguments of processes.
func (d *door) start() string { return "http://" + d.redirect.Host + "/start/" + d.nonce }

// serve answers browsers until the context of the login ends, or [door.leave]. The caller
// must call the function that it returns, which ends the server.
func (d *door) serve() (end func()) {
	srv := &http.Server{
		Handler: d, ReadHeaderTimeout: readTime, IdleTimeout: readTime,
		MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ConnState: func(c net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				if d.conns.Add(1) > maxConns {
					_ = c.Close() // there are enough
				}
			case http.StateClosed, http.StateHijacked:
				d.conns.Add(-1)
			default:
			}
		},
	}
	ended := make(chan struct{}, len(d.socks))
	for _, sock := range d.socks {
		go func() { // ends with the server
			_ = srv.Serve(sock) // always an error
			ended <- struct{}{}
		}()
	}
	return func() {
		d.close()
		_ = srv.Close() // what was written is on its way
		for range d.socks {
			<-ended
		}
	}
}

// wait returns the query with which the browser comes back.
func (d *door) wait(ctx context.Context) (url.Values, error) {
	select {
	case query := <-d.arrived:
		return query, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// leave sends the browser that has come back to the last page, and waits a moment until
// it has got that. The browser need not be there any more.
func (d *door) leave(p page) {
	d.last = p
	d.close()
	select {
	case <-d.seen:
	case <-time.After(lastTime):
	}
}

// same compares a secret in constant time.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// ServeHTTP answers a browser. A request to another host is a page elsewhere whose name
// leads here.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w.Header())
	nonce, isStart := strings.CutPrefix(r.URL.Path, "/start/")
	done, isDone := strings.CutPrefix(r.URL.Path, "/done/")
	switch {
	case r.Host != d.redirect.Host, r.Method != http.MethodGet:
	case isStart && same(nonce, d.nonce):
		d.begin(w)
		return
	case isDone && same(done, d.done):
		d.finish(w, r)
		return
	case r.URL.Path == d.redirect.Path:
		d.callback(w, r)
		return
	}
	page{status: http.StatusNotFound, title: "There is nothing here"}.write(w)
}

// begin sends the browser to the authorization server, once: whoever comes second may not
// be the person who logs in.
func (d *door) begin(w http.ResponseWriter) {
	if !d.started.CompareAndSwap(false, true) {
		page{
			status: http.StatusGone, title: "This address was opened already",
			text: "It works once. If it was not you: end the login in the terminal with Ctrl-C, and repeat it with " +
				"--no-browser.",
		}.write(w)
		return
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // loopback has no https
		Name: d.cookieName(), Value: d.cookie, Path: d.redirect.Path, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: int(loginTime.Seconds()),
	})
	w.Header().Set("Location", d.leadsTo)
	w.WriteHeader(http.StatusFound)
}

// cookieName is the cookie that tells the browser that started from all others. Cookies do not know
// ports, and another login may be under way.
func (d *door) cookieName() string { return "holdline_login_" + d.redirect.Port() }

// callback takes a browser that comes back. What does not belong to the login is refused,
// and the login goes on, however often that comes: so no web page can end it. Nobody guesses
// a state of 32 random bytes.
func (d *door) callback(w http.ResponseWriter, r *http.Request) {
	query, err := single(r.URL.RawQuery)
	cookie, missing := r.Cookie(d.cookieName())
	if err != nil || missing != nil || !same(cookie.Value, d.cookie) || !same(query.Get("state"), d.state) {
		page{
			status: http.StatusBadRequest, title: "This does not belong to the login",
			text: "The login in the terminal goes on. Open the address that it shows, in one browser from beginning " +
				"to end.",
		}.write(w)
		return
	}
	select {
	case d.arrived <- query:
	case <-d.over:
		page{status: http.StatusGone, title: "This login has ended"}.write(w)
		return
	case <-r.Context().Done():
		return
	}
	// The page is at another address: neither the code nor the state stays in the
	// browser's history.
	select {
	case <-d.over:
		w.Header().Set("Location", "/done/"+d.done)
		w.WriteHeader(http.StatusSeeOther)
	case <-r.Context().Done():
	}
}

// finish shows the last page.
func (d *door) finish(w http.ResponseWriter, r *http.Request) {
	select {
	case <-d.over:
		d.last.write(w)
		_ = http.NewResponseController(w).Flush() // the connection is closed after this
		select {
		case d.seen <- struct{}{}:
		default:
		}
	case <-r.Context().Done():
	}
}

// single parses a query in which each parameter stands at most once.
func single(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	for _, values := range query {
		if len(values) > 1 { // even its name may be a secret
			return nil, errors.New("it has a parameter twice")
		}
	}
	return query, nil
}
