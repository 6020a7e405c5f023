// Package logintest has a stand-in for a protected MCP server with its authorization
// server, for tests: rotation of refresh tokens, expiry, and answers that break. It counts
// every use of every refresh token, so that it can say who broke the rules.
package logintest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Rotation is what a renewal makes of the refresh token.
type Rotation int

// Rotations.
const (
	Strict   Rotation = iota // another one; a second use of the old one ends the login
	Graceful                 // another one; the old one is good for a while
	Fixed                    // the same one for ever
)

// Options are the switches of a [Server]. [Server.Set] changes them.
type Options struct {
	Rotation     Rotation
	Life         time.Duration                      // of access tokens; 0 says nothing of it
	NoRefresh    bool                               // no refresh tokens
	Scopes       []string                           // supported
	Need         func(method, tool string) []string // scopes of a message; nil needs none
	Refuse       bool                               // no access token is accepted
	Open         bool                               // initialize passes without a token
	Public       bool                               // nothing needs a token, and there is no metadata
	Metadata     map[string]any                     // replaces keys of the issuer's metadata; nil removes one
	Resource     map[string]any                     // the same for the metadata of the resource
	NoIss        bool                               // no iss in the answer of an authorization
	Confidential bool                               // registered clients get a secret
	Person       string                             // who logs in, told in an id_token; "" tells nothing
	Form         bool                               // the person is asked by a form, and not agreed for at once
	Interval     float64                            // seconds between questions for a device's code; 0 is 1
	Back         func(answer url.Values)            // changes with what the browser is sent back; nil does not
	Register     func(asked map[string]any) *Reply  // answers a registration, unless it returns nil
	// Token may answer a request to the token endpoint; n counts them from 1.
	Token func(n int, form url.Values) *Reply
}

// Reply is how the token endpoint answers.
type Reply struct {
	Handle bool // the request is handled, and the status and text are those of its outcome
	Status int
	Text   string
	Header http.Header
	Cut    int           // bytes after which the connection ends, if Break
	Break  bool          // the connection ends within the answer
	Wait   chan struct{} // the answer is not sent before this is closed; nil for at once
}

// Server is the stand-in. It is safe for concurrent use.
type Server struct {
	URL  string // of the MCP server
	Base string // its origin, which is the issuer, too
	http *httptest.Server

	mu      sync.Mutex
	o       Options // guarded by mu, as all below
	access  map[string]*issued
	refresh map[string]*issued
	codes   map[string]*issued
	devices map[string]*issued
	clients map[string]string // secrets by id; "" is none
	tokens  int               // requests to the token endpoint

	registrations []map[string]any // requests
	names         int
	forms         []url.Values // of the token endpoint, with the path as "path"
	paths         []string     // of all requests
	calls         int          // messages tools/call that were answered
	store         string       // see Watch
	wrong         []string
}

// issued is a token or a code.
type issued struct {
	family    *family
	scopes    []string
	expires   time.Time // zero is never
	uses      int
	used      time.Time // first use of a refresh token
	successor string    // access token of the first use
	challenge string    // of a code
	redirect  string    // of a code
	approved  bool      // of a device
}

// family is a login: all tokens that come from one authorization.
type family struct {
	client, resource string
	dead             bool
}

// grace is how long an old refresh token is good with [Graceful].
const grace = time.Minute

// Start starts a stand-in, which ends with the test.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s := &Server{
		o: o, access: map[string]*issued{}, refresh: map[string]*issued{}, codes: map[string]*issued{},
		devices: map[string]*issued{}, clients: map[string]string{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", s.serveMCP)
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", s.serveResource)
	mux.HandleFunc("/.well-known/oauth-authorization-server", s.serveIssuer)
	mux.HandleFunc("/authorize", s.authorize)
	mux.HandleFunc("/register", s.register)
	mux.HandleFunc("/device", s.device)
	mux.HandleFunc("/revoke", s.revoke)
	mux.HandleFunc("/token", s.token)
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.paths = append(s.paths, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	tb.Cleanup(s.http.Close)
	s.Base, s.URL = s.http.URL, s.http.URL+"/mcp"
	return s
}

// Close ends the stand-in, as one that is gone.
func (s *Server) Close() { s.http.Close() }

// Set changes the switches.
func (s *Server) Set(change func(*Options)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.o)
}

// Tokens are those of one login.
type Tokens struct {
	Client, Access, Refresh string
	Issued, Expires         time.Time // Expires is zero if unknown
}

// Issue makes a login of a public client without a person, for a test that begins with one.
func (s *Server) Issue(scopes ...string) Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nameLocked("client")
	s.clients[id] = ""
	access, refresh := s.issueLocked(&family{client: id, resource: s.URL}, scopes)
	return Tokens{id, access, refresh, time.Now(), s.access[access].expires}
}

// AddClient registers a client by hand, without a secret if that is "".
func (s *Server) AddClient(id, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = secret
}

// Registrations returns the requests to register a client.
func (s *Server) Registrations() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.registrations)
}

// Expire ends all access tokens now, though their holders do not know.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.access {
		a.expires = time.Now().Add(-time.Second)
	}
}

// Revoke ends all logins.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.access {
		a.family.dead = true
	}
	for _, r := range s.refresh {
		r.family.dead = true
	}
}

// Renewals returns how often refresh tokens were used, and the most uses of one of them.
func (s *Server) Renewals() (all, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.refresh {
		all += r.uses
		most = max(most, r.uses)
	}
	return all, most
}

// Calls returns how many tools/call were answered.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Forms returns what was posted to the authorization server, each with its path as "path".
func (s *Server) Forms() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.forms)
}

// Paths returns the method and path of each request.
func (s *Server) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.paths)
}

// Secrets returns all tokens and codes that were issued, for a search in what must not have
// them.
func (s *Server) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, m := range []map[string]*issued{s.access, s.refresh, s.codes, s.devices} {
		for token := range m {
			all = append(all, token)
		}
	}
	for _, secret := range s.clients {
		if secret != "" {
			all = append(all, secret)
		}
	}
	return all
}

// Watch makes the server look into a directory of logins at each request: a refresh token
// must have its mark on disk when it comes, and an access token must be on disk.
func (s *Server) Watch(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = dir
}

// Wrong returns which rules were broken.
func (s *Server) Wrong() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrong)
}

// wrongLocked records a broken rule. The caller must hold s.mu.
func (s *Server) wrongLocked(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// nameLocked returns a new name that says what it is. A test that looks for secrets finds it by its
// mark. The id of a client lacks that, and differs from those of other stand-ins. The caller must hold
// s.mu.
func (s *Server) nameLocked(kind string) string {
	s.names++
	if kind == "client" {
		return fmt.Sprintf("client-%s-%04d", s.Base[strings.LastIndexByte(s.Base, ':')+1:], s.names)
	}
	return fmt.Sprintf("%s-marked-secret-%04d", kind, s.names)
}

// issueLocked issues tokens. The caller must hold s.mu.
func (s *Server) issueLocked(f *family, scopes []string) (access, refresh string) {
	a := &issued{family: f, scopes: scopes}
	if s.o.Life > 0 {
		a.expires = time.Now().Add(s.o.Life)
	}
	access = s.nameLocked("access")
	s.access[access] = a
	if !s.o.NoRefresh {
		refresh = s.nameLocked("refresh")
		s.refresh[refresh] = &issued{family: f, scopes: scopes}
	}
	return access, refresh
}

// bearer returns the token of a request.
func bearer(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return token
}
