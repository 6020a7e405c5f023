package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// bridge lets clients that can only connect to a URL use a proxy on stdio. It serves
// streamable HTTP, with a proxy for each session of the legacy eras. The modern era has no
// sessions: all clients with the same capabilities count as one client with one proxy. The
// bridge implements only what that needs of HTTP, and is not part of holdline.
type bridge struct {
	p     *place
	flags []string // of mcp-stdio

	mu       sync.Mutex
	sessions map[string]*span // of the legacy eras; guarded by mu
	clients  map[string]*span // of the modern era, by capabilities; guarded by mu
	last     int64            // id of the latest modern request to a proxy; guarded by mu
}

// newBridge serves the bridge until the test ends, and returns its URL.
func newBridge(t *testing.T, p *place, flags ...string) string {
	t.Helper()
	b := &bridge{p: p, flags: flags, sessions: map[string]*span{}, clients: map[string]*span{}}
	s := httptest.NewServer(b)
	t.Cleanup(func() {
		s.CloseClientConnections() // streams of clients that are still open
		s.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, one := range b.sessions {
			one.close()
		}
		for _, one := range b.clients {
			one.close()
		}
	})
	return s.URL + "/mcp"
}

// span is one proxy of the bridge, and the exchanges that wait for its lines.
type span struct {
	a    *agent
	done chan struct{} // closed when the proxy's output has ended

	mu    sync.Mutex
	open  []*exchange // requests without an answer, oldest first; guarded by mu
	loose chan string // lines that belong to no request
}

// exchange is a request with all messages up to its answer.
type exchange struct {
	id      string // as sent to the proxy
	own     json.RawMessage
	listens bool // a subscription
	lines   chan string
}

// spoken has the members of a message that the bridge reads.
type spoken struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
	Error *struct{ Code int } `json:"error"`
}

// mostLines limits how many lines wait for an HTTP client to read them.
const mostLines = 1024

// span starts a proxy, and reads its lines.
func (b *bridge) span() (*span, error) {
	// The proxy lives until close is called; startAgent makes sure of that at the test's
	// end.
	cmd := exec.Command(filepath.Join(programs, "holdline"), append([]string{"mcp-stdio"}, b.flags...)...)
	cmd.Env, cmd.Dir = b.p.env, b.p.project
	a, err := b.p.startAgent(cmd)
	if err != nil {
		return nil, err
	}
	s := &span{a: a, done: make(chan struct{}), loose: make(chan string, mostLines)}
	go s.read() // ends with the proxy
	return s, nil
}

// read passes each line of the proxy to the exchange that it belongs to.
func (s *span) read() {
	defer close(s.done)
	for line := range s.a.lines {
		var m spoken
		if json.Unmarshal([]byte(line), &m) != nil {
			continue
		}
		to := s.loose
		if x := s.whose(&m); x != nil {
			to, line = x.lines, x.owned(line)
		}
		select {
		case to <- line:
		default: // no client reads this stream
		}
	}
}

// whose returns the exchange that a message belongs to, nil if there is none. An answer
// belongs to its own request, a notification of a change to the subscription, and any other
// message to the latest open request.
func (s *span) whose(m *spoken) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := m.ID
	if m.Method != "" {
		id = m.Params.Meta[mcp.MetaSubscription]
	}
	if id == nil {
		for _, x := range slices.Backward(s.open) {
			if !x.listens {
				return x
			}
		}
		return nil
	}
	i := slices.IndexFunc(s.open, func(x *exchange) bool { return x.id == string(id) })
	if i < 0 {
		return nil
	}
	x := s.open[i]
	if m.Method == "" {
		s.open = slices.Delete(s.open, i, i+1)
	}
	return x
}

// owned returns a line with the id that the client gave the request.
func (x *exchange) owned(line string) string {
	if x.id == string(x.own) {
		return line
	}
	at := ""
	var change func(key string, value []byte) []byte
	change = func(key string, value []byte) []byte {
		switch at + key {
		case "id", "params._meta." + mcp.MetaSubscription:
			return x.own
		case "params", "params._meta":
			before := at
			at += key + "."
			if inner, err := jsonrpc.Rewrite(value, change); err == nil {
				value = inner
			}
			at = before
		}
		return value
	}
	changed, err := jsonrpc.Rewrite(json.RawMessage(line), change)
	if err != nil {
		return line
	}
	return string(changed)
}

// drop removes a request whose client has disconnected.
func (s *span) drop(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = slices.DeleteFunc(s.open, func(one *exchange) bool { return one == x })
}

// send sends a message, as one line.
func (s *span) send(message []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, message); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := s.a.stdin.Write(line.Bytes())
	return err
}

// close ends the proxy.
func (s *span) close() {
	_ = s.a.stdin.Close()
	<-s.done
	_ = s.a.cmd.Wait()
}

// ServeHTTP serves the methods of streamable HTTP.
func (b *bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !local(r) {
		http.Error(w, "not for others", http.StatusForbidden)
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	b.mu.Lock()
	s := b.sessions[id]
	b.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		b.post(w, r, s, id)
	case s == nil:
		http.Error(w, "no such session", http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet:
		s.stream(w, r)
	case r.Method == http.MethodDelete:
		b.mu.Lock()
		delete(b.sessions, id)
		b.mu.Unlock()
		s.close()
	default:
		http.Error(w, "no such method", http.StatusMethodNotAllowed)
	}
}

// local reports whether a request is for this machine, and not from a foreign page.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil || host != "127.0.0.1" && host != "localhost" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || strings.HasPrefix(origin, "http://127.0.0.1:") ||
		strings.HasPrefix(origin, "http://localhost:")
}

// stream sends the lines that belong to no request.
func (s *span) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case line := <-s.loose:
			sse(w, line)
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

func sse(w http.ResponseWriter, line string) {
	_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", line)
	_ = http.NewResponseController(w).Flush()
}

// post passes a message to the session's proxy, or to a new one.
func (b *bridge) post(w http.ResponseWriter, r *http.Request, s *span, id string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	var m spoken
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}`)
		return
	}
	version, modern := m.Params.Meta[mcp.MetaVersion]
	if modern && string(version) != fmt.Sprintf("%q", r.Header.Get("Mcp-Protocol-Version")) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"header mismatch"}}`, m.ID)
		return
	}
	x := &exchange{id: string(m.ID), own: m.ID, listens: m.Method == mcp.Listen, lines: make(chan string, mostLines)}
	switch {
	case s != nil:
	case id != "":
		http.Error(w, "no such session", http.StatusNotFound)
		return
	case modern:
		if s, err = b.client(m.Params.Meta[mcp.MetaCapabilities]); err == nil && m.ID != nil {
			body, err = b.number(x, body)
		}
	default:
		if s, err = b.span(); err != nil {
			break
		}
		if m.Method != mcp.Initialize {
			defer s.close()
			break
		}
		id = rand.Text()
		b.mu.Lock()
		b.sessions[id] = s
		b.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if m.Method == "" || m.ID == nil {
		if s.send(body) != nil {
			http.Error(w, "the proxy has gone", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.exchange(w, r, x, body)
}

// client returns the proxy for clients with these capabilities.
func (b *bridge) client(can json.RawMessage) (*span, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.clients[string(can)]
	if s == nil {
		var err error
		if s, err = b.span(); err != nil {
			return nil, err
		}
		b.clients[string(can)] = s
	}
	return s, nil
}

// number gives a request an id that is unique for its proxy.
func (b *bridge) number(x *exchange, body []byte) ([]byte, error) {
	b.mu.Lock()
	b.last++
	x.id = strconv.FormatInt(b.last, 10)
	b.mu.Unlock()
	return jsonrpc.Rewrite(body, func(key string, value []byte) []byte {
		if key == "id" {
			return []byte(x.id)
		}
		return value
	})
}

// exchange makes a request, and passes on all messages up to its answer: as JSON if there
// is only the answer, else as events.
func (s *span) exchange(w http.ResponseWriter, r *http.Request, x *exchange, body []byte) {
	defer s.drop(x)
	s.mu.Lock()
	s.open = append(s.open, x)
	s.mu.Unlock()
	if s.send(body) != nil {
		http.Error(w, "the proxy has gone", http.StatusBadGateway)
		return
	}
	for streams := false; ; streams = true {
		select {
		case line := <-x.lines:
			var m spoken
			if json.Unmarshal([]byte(line), &m); m.Method == "" && !streams {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(statusOf(&m, r))
				_, _ = io.WriteString(w, line)
				return
			}
			if !streams {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			if sse(w, line); m.Method == "" {
				return
			}
		case <-r.Context().Done():
			_ = s.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s}}`,
				mcp.CancelledNote, x.id))
			return
		case <-s.done:
			if !streams {
				http.Error(w, "the proxy has gone", http.StatusBadGateway)
			}
			return
		}
	}
}

// statusOf returns the HTTP status of an answer: the modern era has a status for some
// errors.
func statusOf(m *spoken, r *http.Request) int {
	if m.Error == nil || r.Header.Get("Mcp-Protocol-Version") != mcp.Modern && m.Error.Code != mcp.CodeVersion {
		return http.StatusOK
	}
	switch m.Error.Code {
	case -32601:
		return http.StatusNotFound
	case -32700, -32600, -32602, -32020, -32021, mcp.CodeVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
