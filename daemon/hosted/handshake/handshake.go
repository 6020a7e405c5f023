// Package handshake introduces the daemon to a process of an MCP server, in the
// server's era, and reads what the process lists. It keeps no state: what it learns goes
// to the caller. The process is a [Peer], so tests need none.
package handshake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A Peer is a process that is asked.
type Peer interface {
	// Request sends a request of the daemon's own, whose record has that kind, and
	// returns the result. The server's refusal is a [*dialect.RefusalError].
	Request(ctx context.Context, kind, method string, params json.RawMessage) (json.RawMessage, error)
	// Initialized tells a legacy process that the handshake is over.
	Initialized(ctx context.Context) error
	// Capabilities returns the capabilities that the daemon declares to the process.
	Capabilities() json.RawMessage
	// Envelope returns how to write requests for the era of the process, once
	// Introduced was called.
	Envelope() dialect.Envelope
	// Introduced stores the result of the handshake. It is on disk before any other
	// write: the next daemon ends a process without it.
	Introduced(era string, result json.RawMessage) error
	// Ended reports whether the process has exited, and whether it did that by itself.
	Ended() (exited, byItself bool)
}

// probeTimeout is how long a server has to answer server/discover.
const probeTimeout = time.Second

// errSilent is the cause of a context whose probe had no answer.
var errSilent = errors.New("no answer to server/discover")

// Introduce performs the handshake with a process, and returns the era of its server.
// era is what is known of that, or "": such a server is first asked server/discover, and
// sent initialize if that fails.
//
// With an error, the era is what to try the next time. Some legacy servers end at
// server/discover: they are not asked again. A server that has failed while it lived is
// of unknown era: another program may be installed behind its command by now.
func Introduce(ctx context.Context, p Peer, info mcp.Implementation, era string) (string, error) {
	now, asked, err := introduce(ctx, p, info, era)
	if err == nil {
		return now, nil
	}
	switch exited, byItself := p.Ended(); {
	case !exited:
		return "", err
	case byItself && asked:
		return dialect.Legacy, err
	}
	return era, err
}

// introduce is Introduce, whose era it returns only without an error. With one, asked
// says that server/discover may be what the process has ended at: it may read the
// question only when it is sent initialize.
func introduce(ctx context.Context, p Peer, info mcp.Implementation, era string) (now string, asked bool, err error) {
	denied := false // it knows no such question
	if era != dialect.Legacy {
		result, err := discover(ctx, p, info, era == "")
		switch exited, _ := p.Ended(); {
		case err == nil:
			return dialect.Modern, false, p.Introduced(dialect.Modern, result)
		case ctx.Err() != nil, exited:
			return "", true, err
		}
		_, denied = errors.AsType[*dialect.RefusalError](err)
	}
	params, err := json.Marshal(map[string]any{
		"protocolVersion": mcp.Legacy()[0], "capabilities": p.Capabilities(), "clientInfo": info,
	})
	if err != nil {
		return "", false, fmt.Errorf("introduction: %w", err)
	}
	result, err := p.Request(ctx, calls.KindInitialize, mcp.Initialize, params)
	if _, refused := errors.AsType[*dialect.RefusalError](err); refused && !denied {
		// It was not up yet when it was asked, or is not what it was before.
		if result, err := discover(ctx, p, info, true); err == nil {
			return dialect.Modern, false, p.Introduced(dialect.Modern, result)
		}
	}
	if err != nil {
		return "", !denied, err
	}
	if err := p.Introduced(dialect.Legacy, result); err != nil {
		return "", false, err
	}
	return dialect.Legacy, false, p.Initialized(ctx)
}

// discover asks a server of the modern era for its description. With probe it waits
// only for [probeTimeout], since a legacy server may never answer.
func discover(ctx context.Context, p Peer, info mcp.Implementation, probe bool) (json.RawMessage, error) {
	if probe {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, probeTimeout, errSilent)
		defer cancel()
	}
	e := dialect.Envelope{Era: dialect.Modern, Meta: dialect.Meta(info, p.Capabilities())}
	result, err := p.Request(ctx, calls.KindDiscover, mcp.Discover, e.OwnParams())
	if err != nil {
		return nil, err
	}
	var versions []string
	if json.Unmarshal(jsonrpc.Field(result, "supportedVersions"), &versions) != nil ||
		!slices.Contains(versions, mcp.Modern) {
		return nil, fmt.Errorf("it does not speak %s", mcp.Modern)
	}
	return result, nil
}
