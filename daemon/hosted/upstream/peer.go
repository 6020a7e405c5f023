package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/listing"
	"holdline/daemon/statedir"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// Initialized writes notifications/initialized to a legacy process. Its error is that of the write
// or, if that ends within [fallTimeout], [ErrExited]. hub.Mu must not be held.
func (u *Process) Initialized(ctx context.Context) error {
	line := append(jsonrpc.AppendRequest(nil, nil, mcp.Initialized, nil), '\n')
	_, err := u.Worker().Write(ctx, calls.Record{Kind: calls.KindInitialized, Name: mcp.Initialized}, line)
	if err != nil {
		return u.fallen(ctx, err)
	}
	return nil
}

// Introduced writes the result of the handshake to the worker's directory, for the next daemon, and
// then records it here, but not after an error. The caller must not hold hub.Mu.
func (u *Process) Introduced(era string, result json.RawMessage) error {
	s := process.Server{Version: process.Version, ID: u.ID, Era: era, Result: result, Offered: u.Capabilities()}
	if u.Owner.Session != "" {
		s.Relay = &u.Owner.Session
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = statedir.WriteFile(filepath.Join(u.Dir, process.FileServer), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing down the handshake: %w", err)
	}
	faultpoint.At("hosted.introduced")
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	u.introducedLocked(era, result)
	return nil
}

// introducedLocked records the era and the result of the handshake, which the
// reconcile loop needs. The caller must hold hub.Mu.
func (u *Process) introducedLocked(era string, result json.RawMessage) {
	u.era, u.Result, u.logs = era, result, listing.Has(result, "logging")
	u.standing.modern, u.standing.about = era == dialect.Modern, result
	u.standing.logs = era != dialect.Modern && u.logs
	u.takesLevels.Store(u.standing.logs)
}

// Capabilities returns the capabilities that the daemon declares to the server: those of the client
// of the process's one session, if it has declared some, else the daemon's own. A process of a
// project may ask for the project's root. It takes hub.Mu.
func (u *Process) Capabilities() json.RawMessage {
	if u.Owner.Session != "" {
		u.hub.Mu.Lock()
		c := u.hub.Clients[u.Owner.Session]
		u.hub.Mu.Unlock()
		if c != nil {
			if caps := c.Capabilities(); caps != nil {
				return caps
			}
		}
	}
	return dialect.OwnCapabilities(u.Owner.Scope == projectScope)
}

// Meta returns the members of _meta in a modern request of the daemon's own. It takes hub.Mu.
func (u *Process) Meta() json.RawMessage { return dialect.Meta(u.hub.o.Info, u.Capabilities()) }

// Envelope returns how to write requests for the era of this server: legacy or modern, the two
// generations of MCP. Its Meta is nil unless it is modern. The caller must not hold hub.Mu.
func (u *Process) Envelope() dialect.Envelope {
	u.hub.Mu.Lock()
	e := dialect.Envelope{Era: u.era, Logs: u.logs}
	u.hub.Mu.Unlock()
	if e.Era == dialect.Modern {
		e.Meta = u.Meta()
	}
	return e
}

// Ended reports whether the process has exited, and whether by itself. It takes hub.Mu.
func (u *Process) Ended() (gone, byItself bool) {
	state, by := u.Status()
	return state == stage.Exited, state == stage.Exited && by == EndedByItself
}

// projectScope is the scope of a process whose sessions are those of one project.
const projectScope = "project"
