package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"holdline/daemon/authorities"
	"holdline/daemon/redact"
	"holdline/daemon/sendonce"
)

// Limits of one request.
const (
	// maxConnections is how many connections net/http may take up for one request. It needs another one
	// if the first takes no more streams. A request without a body it would repeat without end.
	maxConnections = 3
	// maxUnsent is how often a message is sent anew that certainly was not sent.
	maxUnsent = 2
	// resumeTimeout is for the head of the answer to a resume. Asking again does no harm.
	resumeTimeout = 30 * time.Second
)

// errRefusedAgain is the error of a request for which the transport has taken up too many connections.
var errRefusedAgain = errors.New("it ends each attempt before an answer")

// errNoHead is the error of a request whose answer does not begin in time.
var errNoHead = errors.New("no answer in time")

// newTransport returns the transport of a client. HTTP/2 stays on: many calls share one connection then, and some
// servers speak nothing else. That a message goes out once is the matter of its body, see [sendonce].
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: conn}, nil
		},
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities.Pool()},
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 8,
	}
}

// countedConn counts the bytes that were written to a connection.
type countedConn struct {
	net.Conn
	wrote atomic.Int64
}

// Write writes, and counts.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote.Add(int64(n))
	return n, err
}

// countedBelow returns the connection of ours that carries an HTTP/1 connection, or nil. HTTP/2 has many requests
// on one connection, so a count says nothing of one of them.
func countedBelow(conn net.Conn) *countedConn {
	for {
		switch c := conn.(type) {
		case *countedConn:
			return c
		case *tls.Conn:
			if c.ConnectionState().NegotiatedProtocol == "h2" {
				return nil
			}
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// do makes a request with the body text, or without a body if text is nil, and with the token of the login if
// there is one. The head of the answer has to come within headTime, or at any time if that is 0. A message that the
// server refuses for its token was not handled: it is sent once more with another token. A message that certainly
// was not sent, since a kept connection had ended, is sent anew. isSent reports whether the server may have the
// whole message.
func (c *Client) do(
	req *http.Request, text []byte, headTime time.Duration,
) (resp *http.Response, isSent bool, err error) {
	var token redact.Secret
	if c.o.Login != nil {
		if token, err = c.o.Login.Token(req.Context(), req.Method != http.MethodDelete); err != nil {
			return nil, false, err
		}
	}
	for again := false; ; again = true {
		isKept := true
		for unsent := 0; isKept; unsent++ {
			resp, isSent, isKept, err = c.attempt(req, text, token, headTime)
			if err == nil || isSent || text == nil || unsent == maxUnsent || req.Context().Err() != nil {
				break
			}
			c.http.CloseIdleConnections() // the others were kept as long
		}
		if err != nil || c.o.Login == nil {
			return resp, isSent, err
		}
		other, err := c.otherToken(req, token, resp, again)
		if err == nil && other == "" {
			return resp, isSent, nil
		}
		_ = resp.Body.Close()
		if err != nil {
			return nil, false, err
		}
		token = other
	}
}

// attempt makes a request once. isSent reports whether the server may have the whole text; a message of which it
// lacks the last byte means nothing to it. isKept reports whether the request went to a connection that had been
// used before.
func (c *Client) attempt(
	req *http.Request, text []byte, token redact.Secret, headTime time.Duration,
) (resp *http.Response, isSent, isKept bool, err error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	var conn *countedConn
	var head atomic.Int64 // bytes on the connection before those of the text
	taken := 0
	req = req.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if taken++; taken > maxConnections {
			cancel(errRefusedAgain)
		}
		isKept, conn = got.Reused, countedBelow(got.Conn)
	}}))
	var body *sendonce.Body
	if text != nil {
		body = sendonce.New(text, func() error {
			if conn != nil {
				head.Store(conn.wrote.Load())
			}
			return nil
		})
		req.Body, req.ContentLength = body, int64(len(text))
	}
	if headTime > 0 {
		defer time.AfterFunc(headTime, func() { cancel(errNoHead) }).Stop()
	}
	if c.unsaid.sent(token); token != "" {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	resp, err = c.http.Do(req)
	isSent = true
	if body != nil && (err != nil || resp.StatusCode >= http.StatusMultipleChoices) {
		isSent = body.End()
	}
	if err != nil {
		// A request of HTTP/1 that has failed is not written any further.
		isSent = isSent && (conn == nil || conn.wrote.Load()-head.Load() >= int64(len(text)))
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, isSent, isKept, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // nobody has asked for that, and its body need not end
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	resp.Body = &endingBody{resp.Body, cancel}
	return resp, isSent, isKept, nil
}

// endingBody is the body of an answer. Its Close ends the context of the request.
type endingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close closes the body.
func (b *endingBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
