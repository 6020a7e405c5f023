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
	// returns the result. The server's refusal is a [*dialect.RefusalError]. It is safe for
	// concurrent use.
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

const (
	// probeTimeout is how long a server has to answer server/discover.
	probeTimeout = time.Second
	// lateTimeout is how long it has once it has answered initialize: a server may handle both at
	// the same time.
	lateTimeout = 100 * time.Millisecond
	// refusedTimeout is how long it has once it has refused initialize: it speaks the modern
	// era, however slow it is, or none.
	refusedTimeout = 5 * time.Second
)

// errSilent says that server/discover has no answer yet.
var errSilent = errors.New("no answer to server/discover")

// Introduce performs the handshake with a process, and returns the era of its server.
// era is what is known of that, or "": such a server is first asked server/discover, and
// sent initialize if that fails, or has no answer after a second. A server that starts slowly
// reads both: if it then answers server/discover, it is spoken to as a modern one. Some servers
// that have answered that say little to a client of the legacy era.
//
// With an error, the era is what to try the next time. Some legacy servers end at
// server/discover: they are not asked again. A server that has failed while it lived is
// of unknown era: another program may be installed behind its command by now.
func Introduce(ctx context.Context, p Peer, info mcp.Implementation, era string) (string, error) {
	return IntroduceIn(ctx, p, info, era, mcp.Legacy())
}

// IntroduceIn is [Introduce] for one that speaks only these versions of the legacy era, and begins with the
// first of them.
func IntroduceIn(
	ctx context.Context, p Peer, info mcp.Implementation, era string, versions []string,
) (string, error) {
	now, asked, err := introduce(ctx, p, info, era, versions)
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

// introduce is IntroduceIn, whose era it returns only without an error. With one, asked
// says that server/discover may be what the process has ended at: it may read the
// question only when it is sent initialize.
func introduce(
	ctx context.Context, p Peer, info mcp.Implementation, era string, versions []string,
) (now string, asked bool, err error) {
	denied := false // it knows no such question
	var question *discovery
	if era != dialect.Legacy {
		question = discover(ctx, p, info)
		defer question.end()
		limit := probeTimeout
		if era != "" {
			limit = 0
		}
		result, err := question.wait(limit)
		switch exited, _ := p.Ended(); {
		case err == nil:
			return dialect.Modern, false, p.Introduced(dialect.Modern, result)
		case ctx.Err() != nil, exited:
			return "", true, err
		}
		_, denied = errors.AsType[*dialect.RefusalError](err)
	}
	result, err := initialize(ctx, p, info, versions)
	if question != nil {
		if late, err := question.wait(lateTimeout); err == nil {
			return dialect.Modern, false, p.Introduced(dialect.Modern, late)
		}
	}
	if _, refused := errors.AsType[*dialect.RefusalError](err); refused && !denied {
		// It was not up yet when it was asked, or is not what it was before.
		again := discover(ctx, p, info)
		defer again.end()
		if result, err := again.wait(refusedTimeout); err == nil {
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

// initialize asks a process to begin in the legacy era: in the first of the versions or, if it refuses that,
// in others that it names, in their order.
func initialize(ctx context.Context, p Peer, info mcp.Implementation, left []string) (json.RawMessage, error) {
	var first error
	for len(left) > 0 {
		params, err := json.Marshal(map[string]any{
			"protocolVersion": left[0], "capabilities": p.Capabilities(), "clientInfo": info,
		})
		if err != nil {
			return nil, fmt.Errorf("introduction: %w", err)
		}
		result, err := p.Request(ctx, calls.KindInitialize, mcp.Initialize, params)
		refusal, refused := errors.AsType[*dialect.RefusalError](err)
		exited, _ := p.Ended()
		if first == nil {
			first = err
		}
		switch {
		case err == nil:
			return result, nil
		case !refused || exited:
			return nil, first // what it has refused says more than how it has ended since
		}
		left = refusal.OtherVersions(left, left[0])
	}
	return nil, first
}

// A discovery is the question server/discover to a process, in a goroutine.
type discovery struct {
	cancel   context.CancelFunc
	done     chan struct{} // closed when the following are known
	result   json.RawMessage
	err      error
	panicked any // for the goroutine that waits, which contains it
}

// discover begins to ask a server for its description in the modern era. The caller must call end.
func discover(ctx context.Context, p Peer, info mcp.Implementation) *discovery {
	ctx, cancel := context.WithCancel(ctx)
	d := &discovery{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		defer func() { d.panicked = recover() }()
		d.result, d.err = ask(ctx, p, info)
	}()
	return d
}

// wait waits for the answer, for at most that long unless it is 0: a legacy server may never answer.
// Then the error is errSilent, and the question stays open.
func (d *discovery) wait(most time.Duration) (json.RawMessage, error) {
	var limit <-chan time.Time
	if most > 0 {
		t := time.NewTimer(most)
		defer t.Stop()
		limit = t.C
	}
	select {
	case <-d.done:
		d.end()
		return d.result, d.err
	case <-limit:
		return nil, errSilent
	}
}

// end gives the question up.
func (d *discovery) end() {
	d.cancel()
	<-d.done
	if d.panicked != nil {
		panic(d.panicked)
	}
}

// ask asks server/discover and waits for the answer.
func ask(ctx context.Context, p Peer, info mcp.Implementation) (json.RawMessage, error) {
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
