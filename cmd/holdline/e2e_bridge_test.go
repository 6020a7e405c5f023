package main

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
	"strings"
	"sync"
	"testing"

	"holdline/protocol/mcp"
)

// bridge lets clients that know servers by a URL only speak with a proxy on
// stdio: streamable HTTP, a proxy for each session of the legacy eras, and one
// for each request of the modern era, which knows no sessions. It knows as
// much of HTTP as that takes, and is no part of holdline.
type bridge struct {
	p     *place
	flags []string // of mcp-stdio

	mu       sync.Mutex
	sessions map[string]*span // guarded by mu
}

// newBridge serves the bridge until the test ends, and returns its URL.
func newBridge(t *testing.T, p *place, flags ...string) string {
	t.Helper()
	b := &bridge{p: p, flags: flags, sessions: map[string]*span{}}
	s := httptest.NewServer(b)
	t.Cleanup(func() {
		s.CloseClientConnections() // streams of clients that have not hung up
		s.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, one := range b.sessions {
			one.close()
		}
	})
	return s.URL + "/mcp"
}

// span is one proxy of the bridge, and who waits for what it says.
type span struct {
	a    *agent
	done chan struct{} // closed when the proxy's output has ended

	mu    sync.Mutex
	open  []*exchange // requests without an answer, oldest first; guarded by mu
	loose chan string // what belongs to none of them
}

// exchange is a request and what is said until its answer.
type exchange struct {
	id    string
	lines chan string
}

// spoken is what the bridge reads of a message.
type spoken struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
	Error *struct{ Code int } `json:"error"`
}

// mostLines bounds what waits for an HTTP client to read it.
const mostLines = 1024

func (b *bridge) span() (*span, error) {
	// It lives until it is closed; startAgent sees to it at the test's end.
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

// read gives each line of the proxy to who waits for it: an answer to its
// request, anything else to the latest request that is open.
func (s *span) read() {
	defer close(s.done)
	for line := range s.a.lines {
		var m spoken
		if json.Unmarshal([]byte(line), &m) != nil {
			continue
		}
		to := s.loose
		s.mu.Lock()
		if n := len(s.open); m.Method != "" && n > 0 {
			to = s.open[n-1].lines
		} else if i := slices.IndexFunc(s.open, func(x *exchange) bool { return x.id == string(m.ID) }); m.Method == "" && i >= 0 {
			to = s.open[i].lines
			s.open = slices.Delete(s.open, i, i+1)
		}
		s.mu.Unlock()
		select {
		case to <- line:
		default: // nobody reads
		}
	}
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

// close has the proxy leave.
func (s *span) close() {
	_ = s.a.stdin.Close()
	<-s.done
	_ = s.a.cmd.Wait()
}

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

// local tells whether a request is for this machine and from its pages.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil || host != "127.0.0.1" && host != "localhost" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || strings.HasPrefix(origin, "http://127.0.0.1:") || strings.HasPrefix(origin, "http://localhost:")
}

// stream is the stream of what belongs to no request.
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

// post takes a message to the session's proxy, or to one of its own.
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
	if s == nil {
		if id != "" {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		if s, err = b.span(); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if m.Method == mcp.Initialize && !modern {
			id = rand.Text()
			b.mu.Lock()
			b.sessions[id] = s
			b.mu.Unlock()
			w.Header().Set("Mcp-Session-Id", id)
		} else {
			defer s.close()
		}
	}
	if m.Method == "" || m.ID == nil {
		if s.send(body) != nil {
			http.Error(w, "the proxy has gone", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.exchange(w, r, string(m.ID), body)
}

// exchange makes a request and passes on what is said until it is answered: as
// JSON if that is the answer alone.
func (s *span) exchange(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	x := &exchange{id: id, lines: make(chan string, mostLines)}
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
			_ = s.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s}}`, mcp.CancelledNote, id))
			return
		case <-s.done:
			if !streams {
				http.Error(w, "the proxy has gone", http.StatusBadGateway)
			}
			return
		}
	}
}

// statusOf is the status that HTTP gives an answer: the modern era has one for
// some errors.
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
