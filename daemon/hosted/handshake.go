package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// probes reports whether the handshake begins with the question which era of the
// protocol the server speaks. It does as long as the era is not known.
func (u *upstream) probes() bool {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.inst.srv.era == ""
}

// handshake finds out the server's era, introduces the daemon, and asks what
// the server offers.
func (u *upstream) handshake(ctx context.Context) error {
	era, err := u.introduce(ctx)
	if err != nil {
		u.doubtEra()
		return err
	}
	raw, cut, err := u.listAll(ctx)
	if err != nil {
		return err
	}
	faultpoint.At("hosted.listed")
	u.m.mu.Lock()
	u.inst.srv.era = era
	u.m.mu.Unlock()
	u.take(raw, cut)
	return nil
}

// introduce is the handshake proper. Its result is on disk before anything
// else is said.
func (u *upstream) introduce(ctx context.Context) (string, error) {
	u.m.mu.Lock()
	era := u.inst.srv.era
	u.m.mu.Unlock()
	denied := false // it knows no such question
	if era != dialect.Legacy {
		result, err := u.discover(ctx, era == "")
		switch {
		case err == nil:
			return dialect.Modern, u.introduced(dialect.Modern, result)
		case u.leftAtOnce(), ctx.Err() != nil, u.exited.isSet():
			return "", err
		}
		_, denied = errors.AsType[*rpcError](err)
	}
	params, err := json.Marshal(map[string]any{
		"protocolVersion": mcp.Legacy()[0], "capabilities": u.offered(), "clientInfo": u.m.o.Info,
	})
	if err != nil {
		return "", fmt.Errorf("introduction: %w", err)
	}
	result, err := u.request(ctx, calls.KindInitialize, mcp.Initialize, params)
	if _, refused := errors.AsType[*rpcError](err); refused && !denied {
		// It was not up yet when it was asked, or is not what it was before.
		if result, err := u.discover(ctx, true); err == nil {
			return dialect.Modern, u.introduced(dialect.Modern, result)
		}
	}
	if err != nil {
		if !denied {
			u.leftAtOnce() // it may have read the question only now
		}
		return "", err
	}
	if err := u.introduced(dialect.Legacy, result); err != nil {
		return "", err
	}
	_, err = u.worker().WriteFunc(ctx, calls.Record{Kind: calls.KindInitialized, Name: mcp.Initialized},
		func(int64) ([]byte, error) {
			return append(jsonrpc.AppendRequest(nil, nil, mcp.Initialized, nil), '\n'), nil
		})
	if err != nil {
		return "", u.fallen(ctx, err)
	}
	return dialect.Legacy, nil
}

// leftAtOnce reports whether the server has ended because it was asked for its era.
// Then it is a legacy server, and is not asked again.
func (u *upstream) leftAtOnce() bool {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	left := u.state == exited && u.endedBy == endedByItself
	if left {
		u.inst.srv.era = dialect.Legacy
	}
	return left
}

// doubtEra has the next start ask the server which era it is of, after a
// handshake that went wrong with one that did not leave: another program may
// stand behind its command by now.
func (u *upstream) doubtEra() {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.state != exited {
		u.inst.srv.era = ""
	}
}

// discover asks a server of the modern era what it is.
func (u *upstream) discover(ctx context.Context, probe bool) (json.RawMessage, error) {
	if probe {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, probeTimeout, errSilent)
		defer cancel()
	}
	params := append(append([]byte(`{"_meta":{`), u.meta()...), "}}"...)
	result, err := u.request(ctx, calls.KindDiscover, mcp.Discover, params)
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

// errSilent is the cause of a probe's end.
var errSilent = errors.New("no answer to server/discover")

// introduced writes down what the handshake came to.
func (u *upstream) introduced(era string, result json.RawMessage) error {
	s := process.Server{Version: process.Version, Era: era, Result: result, Offered: u.offered()}
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

// introducedLocked notes what the handshake came to.
func (u *upstream) introducedLocked(era string, result json.RawMessage) {
	u.era, u.result, u.logs = era, result, listing.Has(result, "logging")
	u.standing.Introduce(era == dialect.Modern, result)
}

// offered returns the capabilities that the daemon declares to the server. For a
// process of one session they are those of that session's client. A process of a
// project may ask for the project's root.
func (u *upstream) offered() json.RawMessage {
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

// meta is the members of the _meta of a modern request of the daemon's own.
func (u *upstream) meta() json.RawMessage {
	info, err := json.Marshal(u.m.o.Info)
	if err != nil { // strings encode
		info = []byte(`{"name":"holdline","version":""}`)
	}
	return fmt.Appendf(nil, "%q:%q,%q:%s,%q:%s", mcp.MetaVersion, mcp.Modern, mcp.MetaCapabilities, u.offered(),
		mcp.MetaClient, info)
}

// envelope is how requests to the server are dressed.
func (u *upstream) envelope() dialect.Envelope {
	u.m.mu.Lock()
	e := dialect.Envelope{Era: u.era, Logs: u.logs}
	u.m.mu.Unlock()
	if e.Era == dialect.Modern {
		e.Meta = u.meta()
	}
	return e
}

// listAll asks for all that the server offers, and tells where there is more
// than is listed.
func (u *upstream) listAll(ctx context.Context) (raw listing.Lists, cut []string, err error) {
	u.m.mu.Lock()
	has, before := jsonrpc.Field(u.result, "capabilities"), u.inst.srv.offersOfLocked(u.inst.key).Lists()
	u.m.mu.Unlock()
	silent := false
	for k := range listing.Kinds {
		if jsonrpc.Field(has, k.MCP().Capability) == nil {
			continue
		}
		var more string
		raw[k], more, err = u.listOne(ctx, k)
		if errors.Is(err, errUnheard) {
			silent, err = true, nil
			raw[k], more = before[k], fmt.Sprintf("%s was not answered within %v: what it would list is left out",
				k.MCP().List, listPatience)
			if raw[k] != nil {
				more = fmt.Sprintf("%s was not answered within %v: what was listed before stands", k.MCP().List,
					listPatience)
			}
		}
		if err != nil {
			return raw, nil, err
		}
		var notes []string
		raw[k], notes = listing.Fit(k, raw[k])
		if more != "" {
			cut = append(cut, more)
		}
		cut = append(cut, notes...)
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.unheard = silent
	return raw, cut, nil
}

// errUnheard says that a list was not answered in time: what the server has of
// the kind is not known.
var errUnheard = errors.New("no answer in time")

// listPatience is how long a server may take for a list other than that of its
// tools: without it the server is of use all the same.
const listPatience = 5 * time.Second

// listOne asks for the list of a kind. An error says that the server is of no
// use, or [errUnheard]; one that only lacks the list has none of the kind. A
// list that could not be asked for is never an empty one.
func (u *upstream) listOne(ctx context.Context, k listing.Kind) (all []json.RawMessage, more string, err error) {
	if k == listing.Tools {
		return u.list(ctx, k.MCP())
	}
	patient, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	all, more, err = u.list(patient, k.MCP())
	_, refused := errors.AsType[*rpcError](err)
	switch {
	case err == nil:
		return all, more, nil
	case ctx.Err() != nil, errors.Is(err, errDied):
		return nil, "", err
	case refused: // some say that they have resources, and know no templates
		u.log.DebugContext(ctx, "server lists nothing of a kind", "err", err)
		return nil, "", nil
	case patient.Err() != nil:
		return nil, "", errUnheard
	}
	if _, unasked := errors.AsType[*fault.Record](err); unasked {
		return nil, "", err
	}
	return nil, fmt.Sprintf("the answer to %s makes no sense: what it would list is left out", k.MCP().List), nil
}

// list asks for one list, page by page, and tells if there is more.
func (u *upstream) list(ctx context.Context, how listing.Protocol) (all []json.RawMessage, more string, err error) {
	e := u.envelope()
	all = []json.RawMessage{}
	var cursor json.RawMessage
	size := 0
	for range listing.MaxPages {
		params := json.RawMessage("{}")
		if e.Era == dialect.Modern {
			params = jsonrpc.Prepend(params, `"_meta":{`+string(e.Meta)+`}`)
		}
		if cursor != nil {
			params = jsonrpc.Prepend(params, `"cursor":`+string(cursor))
		}
		result, err := u.request(ctx, calls.KindList, how.List, params)
		if err != nil {
			return nil, "", err
		}
		var page []json.RawMessage
		if listed := jsonrpc.Field(result, how.Member); listed != nil {
			err = json.Unmarshal(listed, &page)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", how.List, err)
		}
		for i, one := range page {
			if size += len(one); size > listing.MaxBytes {
				return append(all, page[:i]...), fmt.Sprintf("%s has more than %d MiB: what follows is left out",
					how.List, listing.MaxBytes>>20), nil
			}
		}
		all = append(all, page...)
		next := jsonrpc.Field(result, "nextCursor")
		switch {
		case len(all) > listing.MaxEntries, len(all) == listing.MaxEntries && len(next) > 0:
			return all[:listing.MaxEntries], fmt.Sprintf("%s has more than %d entries: the others are left out",
				how.List, listing.MaxEntries), nil
		case len(next) == 0, string(next) == "null", string(next) == `""`:
			return all, "", nil
		case string(next) == string(cursor):
			return all, how.List + " gives a cursor twice: what would follow is left out", nil
		}
		cursor = next
	}
	return all, fmt.Sprintf("%s has more than %d pages: the others are left out", how.List, listing.MaxPages), nil
}
