package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Headers of the transport. The user's own headers never replace them.
const (
	headerSession  = "Mcp-Session-Id"
	headerVersion  = "Mcp-Protocol-Version"
	headerMethod   = "Mcp-Method"
	headerName     = "Mcp-Name"
	headerLastSeen = "Last-Event-ID"
)

// versionHeaderSince is the version of MCP that brought headerVersion. Servers of older ones do not know it.
const versionHeaderSince = "2025-06-18"

// Times of a connection. A call itself has no limit here: its caller sets one.
const (
	dialTimeout = 10 * time.Second
	idleTimeout = 90 * time.Second
	byeTimeout  = 2 * time.Second
)

// Options of a [Client].
type Options struct {
	Name       string            // of the server, for errors
	URL        string            // http or https
	Headers    map[string]string // sent with every request; those of the transport win
	MaxMessage int               // bytes of one message; 0 is [jsonrpc.MaxFrame]
	Version    string            // of this program, for the User-Agent
	Log        *slog.Logger      // of what the client skips; nil for none
	Login      Login             // nil if requests carry no token of a login
	Secrets    []string          // that it is sent besides tokens of the login, and must not be shown when it repeats them
}

// Emit receives one message, without a newline. For each call of the client, one
// goroutine at a time calls it. The line is valid only until Emit returns. An error of
// Emit ends the call.
type Emit func(line []byte) error

// Client is one session with a server. It is safe for concurrent use.
type Client struct {
	o      Options
	http   *http.Client
	unsaid *unsaid // what the server must not show

	renewing  chan struct{} // holds a token while one caller begins a new session
	onRenewed func()        // called after that; it does not block; nil for none

	mu    sync.Mutex
	now   session // guarded by mu
	hello []byte  // the initialize that the session began with, or nil; guarded by mu
	ready []byte  // the notification after it, or nil; guarded by mu

	moved *url.URL // where the server is now, within its origin; nil for o.URL; guarded by mu

	// The last session that took a message, or a request, with its version in the header, by its era. Guarded by mu.
	takenIn, answeredIn int

	untaken []string // versions that the server has agreed to and takes in no header; guarded by mu

	tools map[string][]mirrored // arguments in headers, by name of the tool; guarded by mu

	// What the server has granted until the session ends: the params of the requests, by URI or
	// levelKey. Guarded by mu.
	standing map[string]json.RawMessage

	skipped    atomic.Int64 // events that were no messages
	answers400 atomic.Bool  // a status 400 of this server does not mean that the session is gone
}

// session is what each request of a session carries.
type session struct {
	id      string // "" if the server keeps none
	version string // negotiated; "" before that
	era     int    // how many there were before
	renewed bool   // it took the place of one that the server had forgotten
	fresh   bool   // it has only just begun, for the message at hand
}

// New returns a client that has sent nothing yet. The caller must call [Client.Close].
func New(o Options) *Client {
	if o.MaxMessage == 0 {
		o.MaxMessage = jsonrpc.MaxFrame
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{
		o: o, unsaid: newUnsaid(o.Secrets), renewing: make(chan struct{}, 1), standing: map[string]json.RawMessage{},
		http: &http.Client{
			// A body is read for as long as a call takes, so nothing here
			// limits the whole.
			Transport:     newTransport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close ends the session, for which the server has two seconds, and closes idle
// connections. Calls that are under way fail. ctx need not be alive: its end does not
// stop Close.
func (c *Client) Close(ctx context.Context) {
	if s := c.session(); s.id != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), byeTimeout)
		defer cancel()
		if req, err := c.request(ctx, http.MethodDelete, nil, s); err == nil {
			if resp, _, err := c.do(req, nil, 0); err == nil {
				_ = resp.Body.Close() // a server need not know DELETE
			}
		}
	}
	c.http.CloseIdleConnections()
}

// session returns the present session.
func (c *Client) session() session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// begin remembers the message with which a session begins, and forgets the session
// before. The new session has no id until [Client.establish].
func (c *Client) begin(hello []byte) session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello, c.ready, c.standing, c.moved = hello, nil, map[string]json.RawMessage{}, nil
	c.now = session{era: c.now.era + 1}
	return c.now
}

// establish replaces the present session by s, unless a later one has begun since.
func (c *Client) establish(s session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.era >= c.now.era {
		c.now = s
	}
}

// setReady remembers the notification that ended the handshake. A new session needs it
// again.
func (c *Client) setReady(line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = line
}

// handshake returns the two messages with which a new session begins.
func (c *Client) handshake() (hello, ready []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello, c.ready
}

// message is a line with what the client needs to know of it.
type message struct {
	jsonrpc.Message

	line    []byte
	version string            // that it carries itself: it is a modern one
	name    string            // of the tool, prompt or resource
	mirror  map[string]string // headers that repeat arguments
	repeats bool              // the server may get it twice
}

// parse reads one line. The message keeps line, so the caller must not change it.
func parse(line []byte) (message, error) {
	m, err := jsonrpc.Parse(line)
	if err != nil {
		return message{}, err
	}
	out := message{Message: m, line: line, repeats: m.Kind == jsonrpc.Request && isRepeatable(m.Method)}
	if len(m.Params) == 0 || m.Params[0] != '{' {
		return out, nil
	}
	p, err := mcp.ParseParams(m.Params)
	if err != nil {
		return message{}, err
	}
	out.version, _ = mcp.String(p.Meta.Version)
	switch m.Method {
	case mcp.ToolsCall:
		out.name, _ = mcp.String(p.Name)
		return out, out.unmark()
	case mcp.PromptsGet:
		out.name, _ = mcp.String(p.Name)
	case mcp.ResourcesRead:
		out.name, _ = mcp.String(jsonrpc.Field(m.Params, "uri"))
	}
	return out, nil
}

// isRepeatable reports whether a request of this method does no more harm if it is made twice.
// Of a tool call the daemon says so.
func isRepeatable(method string) bool {
	switch method {
	case mcp.Initialize, mcp.Ping, mcp.Discover, mcp.ToolsList, mcp.PromptsList, mcp.PromptsGet, mcp.ResourcesList,
		mcp.TemplatesList, mcp.ResourcesRead, mcp.Complete, mcp.SetLevel, mcp.Subscribe, mcp.Unsubscribe:
		return true
	}
	return false
}

// unmark takes the mark of a call that may be made twice out of the message. A _meta that has
// nothing else goes, too.
func (m *message) unmark() error {
	if !bytes.Contains(m.line, []byte(mcp.MetaRepeats)) {
		return nil
	}
	meta := jsonrpc.Field(m.Params, "_meta")
	m.repeats = string(jsonrpc.Field(meta, mcp.MetaRepeats)) == "true"
	meta, err := jsonrpc.Replace(meta, mcp.MetaRepeats, nil)
	if string(meta) == "{}" {
		meta = nil
	}
	if err == nil {
		m.Params, err = jsonrpc.Replace(m.Params, "_meta", meta)
	}
	if err == nil {
		m.line, err = jsonrpc.Replace(m.line, "params", m.Params)
	}
	return err
}

// operation returns the name of the request in faults, and "" for a nil m: what the server
// sends unasked has none.
func (m *message) operation() string {
	switch {
	case m == nil:
		return ""
	case m.Method == mcp.ToolsCall:
		return m.Method + ":" + m.name
	}
	return m.Method
}

// request returns an HTTP request of session s with the headers of the transport. m is
// the message that it is to carry, or nil. A modern message names its version itself and
// belongs to no session.
//
// The user's headers are set first and those of the transport last: a configured
// Mcp-Session-Id would break every session.
func (c *Client) request(ctx context.Context, method string, m *message, s session) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.address(), nil) // the body comes with each attempt
	if err != nil {
		return nil, err
	}
	h := req.Header
	for name, value := range c.o.Headers {
		if strings.EqualFold(name, "Host") {
			req.Host = value
		}
		h.Set(name, value)
	}
	h.Set("User-Agent", "holdline/"+c.o.Version)
	for _, name := range []string{headerSession, headerVersion, headerMethod, headerName, headerLastSeen} {
		h.Del(name)
	}
	for name := range h { // in its canonical form
		if strings.HasPrefix(name, headerParam) {
			h.Del(name)
		}
	}
	h.Set("Accept", "text/event-stream")
	if m != nil {
		h.Set("Accept", "application/json, text/event-stream")
		h.Set("Content-Type", "application/json")
	}
	if m != nil && m.version != "" { // a modern one, which belongs to no session
		h.Set(headerVersion, m.version)
		h.Set(headerMethod, headerText(m.Method))
		if m.name != "" {
			h.Set(headerName, headerText(m.name))
		}
		for name, value := range m.mirror {
			h.Set(name, value)
		}
		return req, nil
	}
	if s.id != "" {
		h.Set(headerSession, s.id)
	}
	if s.version >= versionHeaderSince {
		h.Set(headerVersion, s.version)
	}
	return req, nil
}

// headerText returns s in a form that a header may have (MCP 2026-07-28, standard
// headers): plain, or as base64. Empty text is encoded, since an empty header reads like
// none.
func headerText(s string) string {
	const prefix, suffix = "=?base64?", "?="
	plain := s != "" && strings.TrimSpace(s) == s && !strings.HasPrefix(s, prefix) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return s
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(s)) + suffix
}

// oneLine returns a JSON text without line breaks, or an error if it is none. Numbers and
// strings keep their spelling. Text on one line is returned as it is.
func oneLine(text []byte) ([]byte, error) {
	if !bytes.ContainsAny(text, "\r\n") && json.Valid(text) {
		return bytes.TrimSpace(text), nil
	}
	var out bytes.Buffer
	err := json.Compact(&out, text)
	return out.Bytes(), err
}
