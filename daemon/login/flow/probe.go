package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"holdline/daemon/login"
	"holdline/daemon/networds"
	"holdline/daemon/sendonce"
)

// probeTime bounds the question whether a server wants a login.
const probeTime = 10 * time.Second

// Server is what [Probe] asks.
type Server struct {
	Address string
	Headers map[string]string // of the configuration
	Version string            // of this program
}

// ErrClear means that no token may be sent to the address of a server, so that nobody can log in to it.
var ErrClear = errors.New("a token is not sent over http; its address must begin with https, and have no user name")

// Probe asks a server for a session as an agent would, without a token. It returns what the
// server asks for if it refuses that (401 or 403), and nil if it does not. A session that
// began is ended. It returns [ErrClear], and asks nothing, if nobody could log in anyway.
func Probe(ctx context.Context, c *login.Client, s *Server) (*login.Challenge, error) {
	if c.Check(s.Address) != nil {
		return nil, ErrClear
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"holdline","version":%s}}}`
	version, err := json.Marshal(s.Version)
	if err != nil {
		return nil, err
	}
	address := s.Address
	send := func(method, body, session string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
		if err != nil {
			return nil, errors.New("its address cannot be read")
		}
		for name, value := range s.Headers {
			if strings.EqualFold(name, "Host") {
				req.Host = value
			}
			req.Header.Set(name, value)
		}
		req.Header.Set("Accept", "application/json, text/event-stream")
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := c.HTTP().Do(req)
		if err != nil {
			return nil, fmt.Errorf("cannot be reached: %s", networds.Of(err))
		}
		_ = resp.Body.Close() // it may be a stream that does not end
		return resp, nil
	}
	resp, err := send(http.MethodPost, fmt.Sprintf(hello, version), "")
	for moves := 0; err == nil && moves < sendonce.MaxMoves; moves++ {
		to := sendonce.Moved(resp)
		if to == nil {
			break
		}
		address = to.String()
		resp, err = send(http.MethodPost, fmt.Sprintf(hello, version), "")
	}
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		challenge := login.ParseChallenge(resp.Header)
		return &challenge, nil
	}
	if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
		_, _ = send(http.MethodDelete, "", session) // a server need not know DELETE
	}
	return nil, nil //nolint:nilnil // it asks for nothing
}
