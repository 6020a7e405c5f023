package hosted

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/listing"
	"holdline/daemon/statedir"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// An upstream is the [handshake.Peer] of its handshake.
var _ handshake.Peer = (*upstream)(nil)

// Initialized tells a legacy process that the handshake is over.
func (u *upstream) Initialized(ctx context.Context) error {
	_, err := u.worker().WriteFunc(ctx, calls.Record{Kind: calls.KindInitialized, Name: mcp.Initialized},
		func(int64) ([]byte, error) {
			return append(jsonrpc.AppendRequest(nil, nil, mcp.Initialized, nil), '\n'), nil
		})
	if err != nil {
		return u.fallen(ctx, err)
	}
	return nil
}

// Introduced writes the result of the handshake to the worker's directory, then
// records it.
func (u *upstream) Introduced(era string, result json.RawMessage) error {
	s := process.Server{Version: process.Version, Era: era, Result: result, Offered: u.Capabilities()}
	if u.owner.Session != "" {
		s.Relay = &u.owner.Session
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = statedir.WriteFile(filepath.Join(u.dir, process.FileServer), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing down the handshake: %w", err)
	}
	faultpoint.At("hosted.introduced")
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.introducedLocked(era, result)
	return nil
}

// introducedLocked records the result of the handshake.
func (u *upstream) introducedLocked(era string, result json.RawMessage) {
	u.era, u.result, u.logs = era, result, listing.Has(result, "logging")
	u.standing.Introduce(era == dialect.Modern, result)
}

// Capabilities returns the capabilities that the daemon declares to the server. For a
// process of one session they are those of that session's client. A process of a
// project may ask for the project's root.
func (u *upstream) Capabilities() json.RawMessage {
	switch u.inst.key.scope {
	case Session:
		u.m.mu.Lock()
		c := u.m.clients[u.inst.key.of]
		u.m.mu.Unlock()
		if c != nil {
			if caps := c.Capabilities(); caps != nil {
				return caps
			}
		}
	case Project:
		return json.RawMessage(`{"roots":{"listChanged":false}}`)
	case Shared:
	}
	return json.RawMessage(`{}`)
}

// Meta returns the members of _meta in a modern request of the daemon's own.
func (u *upstream) Meta() json.RawMessage { return dialect.Meta(u.m.o.Info, u.Capabilities()) }

// Envelope returns how to write requests for the era of this server.
func (u *upstream) Envelope() dialect.Envelope {
	u.m.mu.Lock()
	e := dialect.Envelope{Era: u.era, Logs: u.logs}
	u.m.mu.Unlock()
	if e.Era == dialect.Modern {
		e.Meta = u.Meta()
	}
	return e
}

// Ended reports whether the process has exited, and whether it did that by itself.
func (u *upstream) Ended() (gone, byItself bool) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.state == exited, u.state == exited && u.endedBy == endedByItself
}
