package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/fault"
)

// keys are configured headers by which net/http takes any request for one that may be sent twice.
var keys = map[string]string{"Idempotency-Key": "k", "X-Idempotency-Key": "k"}

const (
	pingLine   = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	pingBack   = `{"jsonrpc":"2.0","id":1,"result":{}}`
	callBack   = `{"jsonrpc":"2.0","id":7,"result":{}}`
	markedCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{"holdline/repeats":true},"name":"t"}}`
)

// expect checks that a call that must not be made twice was made at most once, and that what the client hears is
// true: an answer if it was made, and never "not made" if it was.
func expect(t *testing.T, name string, made int, got []string, err error) {
	t.Helper()
	f, _ := errors.AsType[*fault.Record](err)
	switch {
	case made > 1:
		t.Errorf("%s: made %d times, %v", name, made, err)
	case err == nil && (made != 1 || len(got) != 1):
		t.Errorf("%s: got %q of a call that was made %d times", name, got, made)
	case err != nil && f == nil:
		t.Errorf("%s: %v is no fault", name, err)
	case err != nil && f.Fault.Code != fault.OutcomeUnknown && (made > 0 || f.Fault.Code != fault.TransportFailure):
		t.Errorf("%s: made %d times, and the client hears %s: %v", name, made, f.Fault.Code, err)
	case err != nil && (strings.Contains(err.Error(), "net/http") || strings.Contains(err.Error(), "http2:")):
		t.Errorf("%s: these are no words for people: %v", name, err)
	}
}

// standIn is a server of raw connections. It closes them, and waits for what serves them, at the end of the test.
type standIn struct {
	net.Listener
	made atomic.Int32 // calls
	size int          // bytes of the request of the last one
	work sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// listen starts a server whose connections are served by f, which also gets their number.
func (s *standIn) listen(t *testing.T, f func(conn net.Conn, n int)) {
	t.Helper()
	var err error
	if s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.work.Go(func() {
		for n := 0; ; n++ {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.work.Go(func() {
				defer conn.Close()
				f(conn, n)
			})
		}
	})
}

// end ends the server.
func (s *standIn) end() {
	_ = s.Close()
	s.mu.Lock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// startHTTP1 starts an HTTP/1 server that keeps its connections. The first one ends in its second request: behind
// so many bytes of that, or, if reads is negative, behind so many bytes of the answer.
func startHTTP1(t *testing.T, reads int, answer string) *standIn {
	t.Helper()
	s := &standIn{}
	s.listen(t, func(conn net.Conn, n int) {
		var seen bytes.Buffer
		in := bufio.NewReader(io.TeeReader(conn, &seen))
		for requests := 0; ; requests++ {
			seen.Reset()
			isLast := n == 0 && requests == 1
			if isLast && reads >= 0 {
				_, _ = io.CopyN(io.Discard, in, int64(reads))
				return
			}
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			text := pingBack
			if bytes.Contains(body, []byte(`"id":7`)) {
				s.made.Add(1)
				text, s.size = callBack, seen.Len()
			}
			text = fmt.Sprintf(chunked, len(text), text)
			if isLast {
				text = answer
			}
			if _, err := io.WriteString(conn, text); err != nil || isLast {
				return
			}
		}
	})
	return s
}

const chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
	"%x\r\n%s\r\n0\r\n\r\n"

// TestKeptConnectionClosesAtEachByte_CallIsMadeOnce checks what becomes of a call whose kept connection the server
// closes: behind each byte of the request, and behind each byte of several forms of the answer.
func TestKeptConnectionClosesAtEachByte_CallIsMadeOnce(t *testing.T) {
	ends := func(name string, s *standIn) (size int) {
		c := New(Options{Name: "s", URL: "http://" + s.Addr().String(), Headers: keys})
		defer c.http.CloseIdleConnections()
		if got, err := send(t, c, pingLine); err != nil || len(got) != 1 {
			t.Fatalf("%s: the ping: %q, %v", name, got, err)
		}
		got, err := send(t, c, callLine)
		s.end()
		expect(t, name, int(s.made.Load()), got, err)
		return s.size
	}
	size := ends("nothing", startHTTP1(t, -1, fmt.Sprintf(chunked, len(callBack), callBack)))
	for n := range size {
		ends(fmt.Sprintf("%d bytes of the request", n), startHTTP1(t, n, ""))
	}
	for name, text := range map[string]string{
		"chunks": fmt.Sprintf(chunked, len(callBack), callBack),
		"with a length": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			len(callBack), callBack),
		"to the end":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + callBack,
		"events":        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + callBack + "\n\n",
		"an old server": "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + callBack,
		"early hints":   "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + fmt.Sprintf(chunked, len(callBack), callBack),
	} {
		for n := range len(text) + 1 {
			ends(fmt.Sprintf("%d bytes of the answer, %s", n, name), startHTTP1(t, -1, text[:n]))
		}
	}
}

// brokenConn is a connection that fails once it has taken some more bytes.
type brokenConn struct {
	net.Conn
	takes atomic.Int64 // bytes, or negative for all
}

func (c *brokenConn) Write(p []byte) (int, error) {
	left := c.takes.Load()
	if left < 0 {
		return c.Conn.Write(p)
	}
	n := min(int(left), len(p))
	n, err := c.Conn.Write(p[:n])
	c.takes.Add(int64(-n))
	if err == nil && n < len(p) {
		err = &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	return n, err
}

// TestKeptConnectionTakesNoMore_CallIsMadeOnce checks a kept connection that takes only some bytes of a call. If
// it lacks the end of the call for certain, the call is made on a new connection, and nobody notices.
func TestKeptConnectionTakesNoMore_CallIsMadeOnce(t *testing.T) {
	for _, isTLS := range []bool{false, true} {
		var made atomic.Int32
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			switch {
			case err != nil:
			case bytes.Contains(body, []byte(`"id":7`)):
				made.Add(1)
				answer(w, asJSON, callBack)
			default:
				answer(w, asJSON, pingBack)
			}
		}))
		if srv.Start(); isTLS {
			srv.Close()
			srv = httptest.NewTLSServer(srv.Config.Handler)
		}
		step := 1
		if isTLS {
			step = 7 // a handshake takes its time
		}
		for takes := 0; takes < 700; takes += step {
			made.Store(0)
			c := New(Options{Name: "s", URL: srv.URL, Headers: keys})
			transport := c.http.Transport.(*http.Transport)
			transport.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
			var first *brokenConn
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				broken := &brokenConn{Conn: conn}
				broken.takes.Store(-1)
				if first == nil {
					first = broken
				}
				return &countedConn{Conn: broken}, nil
			}
			if _, err := send(t, c, pingLine); err != nil {
				t.Fatal(err)
			}
			first.takes.Store(int64(takes))
			got, err := send(t, c, callLine)
			name := fmt.Sprintf("%d bytes taken, TLS %v", takes, isTLS)
			expect(t, name, int(made.Load()), got, err)
			if err != nil && !isTLS {
				t.Errorf("%s: %v, want an answer: the call is made on a new connection unless the first has all", name, err)
			}
			c.http.CloseIdleConnections()
		}
		srv.Close()
	}
}

// http2Frame returns a frame of HTTP/2.
func http2Frame(kind, flags byte, stream uint32, body []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))[1:]
	head = binary.BigEndian.AppendUint32(append(head, kind, flags), stream)
	return append(head, body...)
}

// Kinds and flags of frames.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameWindow = 0, 1, 3, 4, 6, 7, 8
	endStream, endHeaders, isAck                                                            = 1, 4, 1
)

func uint32s(all ...uint32) (out []byte) {
	for _, n := range all {
		out = binary.BigEndian.AppendUint32(out, n)
	}
	return out
}

// headersOK are the headers of an answer: literals of the static table's names :status and content-type.
func headersOK(stream uint32) []byte {
	return http2Frame(frameHeaders, endHeaders, stream,
		append([]byte("\x08\x03200\x0f\x10\x10"), "application/json"...))
}

// http2Server is a server of HTTP/2. It answers each message but the call of id 7. That it makes, and calls then.
type http2Server struct {
	standIn
	early func(stream uint32) []byte // what a request is answered with before its body, or nil
	then  func(stream uint32) (out []byte, hangUp bool)
	gets  atomic.Int32
	asked chan struct{} // nil, or closed at the first of them
}

// certificate returns one that clients trust with the pool.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	return srv.TLS.Certificates[0], pool
}

// startHTTP2 starts a server, and returns a client of it.
func startHTTP2(t *testing.T, cert tls.Certificate, pool *x509.CertPool, s *http2Server) *Client {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	s.listen(t, func(conn net.Conn, _ int) { s.serve(tls.Server(conn, config)) })
	c := New(Options{Name: "s", URL: "https://" + s.Addr().String(), Headers: keys})
	c.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
	return c
}

// serve serves a connection.
func (s *http2Server) serve(conn *tls.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := io.CopyN(io.Discard, in, int64(len(http2Preface))); err != nil {
		return
	}
	write := func(all ...[]byte) bool {
		_, err := conn.Write(bytes.Join(all, nil))
		return err == nil
	}
	write(http2Frame(frameSettings, 0, 0, nil))
	bodies := map[uint32][]byte{}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case kind == frameSettings && flags&isAck == 0:
			write(http2Frame(frameSettings, isAck, 0, nil))
		case kind == framePing && flags&isAck == 0:
			write(http2Frame(framePing, isAck, 0, body))
		case kind == frameHeaders && s.early != nil:
			if out := s.early(stream); out != nil {
				write(out)
				continue
			}
			bodies[stream] = []byte{}
		case kind == frameHeaders && flags&endStream != 0: // a GET or DELETE
			if s.gets.Add(1) == 1 && s.asked != nil {
				close(s.asked)
			}
			write(http2Frame(frameReset, 0, stream, uint32s(1)))
		case kind == frameHeaders:
			bodies[stream] = []byte{}
		case kind == frameReset:
			delete(bodies, stream)
		case kind == frameData && bodies[stream] != nil:
			bodies[stream] = append(bodies[stream], body...)
			if len(body) > 0 {
				write(http2Frame(frameWindow, 0, 0, uint32s(uint32(len(body)))))
				write(http2Frame(frameWindow, 0, stream, uint32s(uint32(len(body)))))
			}
			if flags&endStream == 0 {
				continue
			}
			if !bytes.Contains(bodies[stream], []byte(`"id":7`)) {
				write(headersOK(stream), http2Frame(frameData, endStream, stream, []byte(pingBack)))
				continue
			}
			s.made.Add(1)
			out, hangUp := s.then(stream)
			if write(out); hangUp {
				return
			}
		}
	}
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// TestHTTP2EndsCall_CallIsMadeOnce checks what becomes of a call that an HTTP/2 server has made, and then ends with
// each code of RST_STREAM and GOAWAY, or by closing the connection behind each byte of its answer.
func TestHTTP2EndsCall_CallIsMadeOnce(t *testing.T) {
	cert, pool := certificate(t)
	whole := func(stream uint32) []byte {
		return append(headersOK(stream), http2Frame(frameData, endStream, stream, []byte(callBack))...)
	}
	type end func(stream uint32) (out []byte, hangUp bool)
	ends := map[string]end{}
	codes := []uint32{0xff}
	for code := range uint32(14) {
		codes = append(codes, code)
	}
	for _, code := range codes {
		reset := func(stream uint32) []byte { return http2Frame(frameReset, 0, stream, uint32s(code)) }
		for name, before := range map[string]func(stream uint32) []byte{
			"before the headers": func(uint32) []byte { return nil },
			"behind the headers": headersOK,
			"in the answer": func(stream uint32) []byte {
				return append(headersOK(stream), http2Frame(frameData, 0, stream, []byte(callBack[:9]))...)
			},
			"behind the answer": func(stream uint32) []byte {
				return append(headersOK(stream), http2Frame(frameData, 0, stream, []byte(callBack))...)
			},
		} {
			ends[fmt.Sprintf("RST_STREAM %d %s", code, name)] = func(stream uint32) ([]byte, bool) {
				return append(before(stream), reset(stream)...), false
			}
		}
		for _, hangUp := range []bool{false, true} {
			how := fmt.Sprintf("GOAWAY %d, closed %v, with ", code, hangUp)
			ends[how+"a last stream before the call's"] = func(stream uint32) ([]byte, bool) {
				away := http2Frame(frameGoAway, 0, 0, uint32s(stream-2, code))
				if hangUp || code != 0 {
					return away, hangUp
				}
				return append(away, reset(stream)...), false
			}
			ends[how+"the call's stream"] = func(stream uint32) ([]byte, bool) {
				return append(http2Frame(frameGoAway, 0, 0, uint32s(stream, code)), whole(stream)...), hangUp
			}
			ends[how+"a later stream, and a reset"] = func(stream uint32) ([]byte, bool) {
				return append(http2Frame(frameGoAway, 0, 0, uint32s(1<<31-1, code)), reset(stream)...), hangUp
			}
		}
	}
	for n := range len(whole(1)) + 1 {
		ends[fmt.Sprintf("the end of the connection behind %d bytes", n)] = func(stream uint32) ([]byte, bool) {
			return whole(stream)[:n], true
		}
	}
	for name, end := range ends {
		s := &http2Server{then: end}
		c := startHTTP2(t, cert, pool, s)
		if got, err := send(t, c, pingLine); err != nil || len(got) != 1 {
			t.Fatalf("%s: the ping: %q, %v", name, got, err)
		}
		got, err := send(t, c, callLine)
		expect(t, name, int(s.made.Load()), got, err)
		if strings.Contains(name, "behind the answer") && err != nil {
			t.Errorf("%s: %v, want the answer, which is whole", name, err)
		}
		c.http.CloseIdleConnections()
		s.end()
	}
}

// TestHTTP2EndsCall_RepeatableCallIsMadeTwice checks that a call that may be made twice is made once more, and no
// more than that, if the server ends it each time.
func TestHTTP2EndsCall_RepeatableCallIsMadeTwice(t *testing.T) {
	cert, pool := certificate(t)
	for code := range uint32(14) {
		s := &http2Server{then: func(stream uint32) ([]byte, bool) {
			return http2Frame(frameReset, 0, stream, uint32s(code)), false
		}}
		c := startHTTP2(t, cert, pool, s)
		_, err := send(t, c, markedCall)
		f, ok := errors.AsType[*fault.Record](err)
		if made := s.made.Load(); made != 2 || !ok || f.Fault.Code != fault.TransportFailure || !f.Retried {
			t.Errorf("code %d: made %d times, %v", code, made, err)
		}
		c.http.CloseIdleConnections()
		s.end()
	}
}

// TestHTTP2RefusesLargeCallEarly_CallIsMadeOnce checks a call that the server refuses before it can have all of it.
// That it was not made is certain, so it is sent again on a new connection. If that refuses it, too, the fault says
// that it was not made.
func TestHTTP2RefusesLargeCallEarly_CallIsMadeOnce(t *testing.T) {
	cert, pool := certificate(t)
	for _, x := range []struct{ refuses, made int32 }{{1, 1}, {1000, 0}} {
		var requests atomic.Int32
		s := &http2Server{
			early: func(stream uint32) []byte {
				if n := requests.Add(1); n == 1 || n > 1+x.refuses { // the first one is a ping
					return nil
				}
				return http2Frame(frameReset, 0, stream, uint32s(7))
			},
			then: func(stream uint32) ([]byte, bool) {
				return append(headersOK(stream), http2Frame(frameData, endStream, stream, []byte(callBack))...), false
			},
		}
		c := startHTTP2(t, cert, pool, s)
		if _, err := send(t, c, pingLine); err != nil {
			t.Fatal(err)
		}
		large := strings.Replace(callLine, "{}", `{"x":"`+strings.Repeat("x", 3<<20)+`"}`, 1)
		got, err := send(t, c, large)
		expect(t, "a large call", int(s.made.Load()), got, err)
		f, _ := errors.AsType[*fault.Record](err)
		isUnmade := f != nil && f.Fault.Code == fault.TransportFailure
		if s.made.Load() != x.made || isUnmade != (x.made == 0) || requests.Load() != 3 {
			t.Errorf("refused %d times: made %d times by %d requests, %v", x.refuses, s.made.Load(), requests.Load(), err)
		}
		c.http.CloseIdleConnections()
		s.end()
	}
}

// TestHTTP2RefusesToListen_ServerIsNotFlooded checks that a request without a body, which net/http would send again
// and again by itself, is made with pauses.
func TestHTTP2RefusesToListen_ServerIsNotFlooded(t *testing.T) {
	cert, pool := certificate(t)
	s := &http2Server{asked: make(chan struct{})}
	c := startHTTP2(t, cert, pool, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-s.asked: // on a busy machine the first request may be late
			time.AfterFunc(2*time.Second, cancel)
		case <-ctx.Done():
		}
	}()
	if err := c.Listen(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Listen = %v", err)
	}
	if n := s.gets.Load(); n == 0 || n > 4*maxConnections {
		t.Errorf("asked %d times in 2 s", n)
	}
	c.http.CloseIdleConnections()
	s.end()
}

// TestStatusOfGateway_OutcomeIsUnknown checks each status for a call that must not be made twice, for one that may,
// and for one whose body is the server's own answer.
func TestStatusOfGateway_OutcomeIsUnknown(t *testing.T) {
	refusals := map[int]bool{
		301: true, 307: true, 308: true, 400: true, 401: true, 402: true, 403: true, 404: true, 405: true, 406: true,
		407: true, 410: true, 411: true, 412: true, 413: true, 414: true, 415: true, 416: true, 417: true, 421: true,
		422: true, 423: true, 425: true, 426: true, 428: true, 429: true, 431: true, 451: true,
	}
	again := map[int]bool{408: true, 502: true, 504: true, 598: true, 599: true}
	for code := 520; code <= 527; code++ {
		again[code] = true
	}
	const named = `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}`
	bodies := map[string]string{
		"own": named, "nothing": "", "page": "<html>", "of another": strings.Replace(named, "7", "8", 1),
		"of none":                strings.Replace(named, "7", "null", 1),
		"own in a stream":        "id: 1\ndata:\n\nevent: message\ndata: " + named + "\n\n",
		"own in an array":        "[" + named + "]",
		"of another in a stream": "data: " + strings.Replace(named, "7", "8", 1) + "\n\n",
		"of another in an array": "[" + strings.Replace(named, "7", "8", 1) + "]",
		"a stream without end":   "data: " + named,
		"an array without end":   "[" + named,
	}
	var status atomic.Int32
	var text atomic.Value
	var asked atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		w.Header().Set("Retry-After", "1")
		if strings.Contains(text.Load().(string), "data:") {
			w.Header().Set("Content-Type", asEvents)
		}
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, text.Load().(string))
	})
	c := New(Options{Name: "s", URL: url, Headers: keys})
	defer c.http.CloseIdleConnections()
	for code := 300; code <= 599; code++ {
		status.Store(int32(code))
		for kind, body := range maps.All(bodies) {
			if body != "" && code == http.StatusNotModified {
				continue // it has no body
			}
			text.Store(body)
			asked.Store(0)
			got, err := send(t, c, callLine)
			f, _ := errors.AsType[*fault.Record](err)
			speaks := code >= 400 && code != 401 && code != 403 && code != 429
			isTold := speaks && (strings.HasPrefix(kind, "own") || kind == "of none" && refusals[code])
			switch {
			case asked.Load() != 1:
				t.Errorf("%d, body %s: asked %d times", code, kind, asked.Load())
			case isTold && (err != nil || len(got) != 1 || got[0] != named):
				t.Errorf("%d, body %s: got %q, %v, want the server's own error", code, kind, got, err)
			case !isTold && (f == nil || len(got) > 0):
				t.Errorf("%d, body %s: got %q, %v, want a fault", code, kind, got, err)
			case !isTold && (f.Fault.Code == fault.OutcomeUnknown) != !refusals[code]:
				t.Errorf("%d, body %s: %s", code, kind, f.Fault.Code)
			case !isTold && f.Fault.Code == fault.OutcomeUnknown && (f.RetryAfterMS != nil || f.Retryable):
				t.Errorf("%d, body %s: says that the call may be made again", code, kind)
			}
		}
		text.Store("")
		asked.Store(0)
		_, err := send(t, c, markedCall)
		f, _ := errors.AsType[*fault.Record](err)
		want := int32(1)
		if again[code] {
			want = 2
		}
		if f == nil || f.Fault.Code == fault.OutcomeUnknown || asked.Load() != want {
			t.Errorf("%d of a call that may be made twice: asked %d times, %v", code, asked.Load(), err)
		}
	}
}
