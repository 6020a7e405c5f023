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

// handshake introduces the daemon to the server, in the server's era, and reads the
// server's lists. It returns when the lists are stored. Calls may follow after
// [Manager.serve].
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

// introduce performs the handshake proper and returns the server's era. A server of
// unknown era is first asked server/discover, then, if that fails, sent initialize.
// The result is on disk before any other write: the next daemon ends a process
// without it.
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

// leftAtOnce reports whether the server ended by itself when it was asked
// server/discover. Some legacy servers do. Then it marks the server as legacy, so
// that the next start does not ask.
func (u *upstream) leftAtOnce() bool {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	left := u.state == exited && u.endedBy == endedByItself
	if left {
		u.inst.srv.era = dialect.Legacy
	}
	return left
}

// doubtEra forgets the server's era after a handshake that failed while the process
// lived: another program may be installed behind its command by now. The next start
// asks again.
func (u *upstream) doubtEra() {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.state != exited {
		u.inst.srv.era = ""
	}
}

// discover asks a server of the modern era for its description. With probe it waits
// only for [probeTimeout], since a legacy server may never answer.
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

// errSilent is the cause of a context whose probe had no answer.
var errSilent = errors.New("no answer to server/discover")

// introduced writes the result of the handshake to the worker's directory, then
// records it.
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

// introducedLocked records the result of the handshake.
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

// meta returns the members of _meta for the daemon's own requests to a modern server.
func (u *upstream) meta() json.RawMessage {
	info, err := json.Marshal(u.m.o.Info)
	if err != nil { // strings encode
		info = []byte(`{"name":"holdline","version":""}`)
	}
	return fmt.Appendf(nil, "%q:%q,%q:%s,%q:%s", mcp.MetaVersion, mcp.Modern, mcp.MetaCapabilities, u.offered(),
		mcp.MetaClient, info)
}

// envelope returns how to write requests for the era of this server.
func (u *upstream) envelope() dialect.Envelope {
	u.m.mu.Lock()
	e := dialect.Envelope{Era: u.era, Logs: u.logs}
	u.m.mu.Unlock()
	if e.Era == dialect.Modern {
		e.Meta = u.meta()
	}
	return e
}

// listAll reads all lists that the server declares. cut has a note for each list that
// is incomplete, for the user. A list that was not answered in time keeps its earlier
// content, and u.unheard is set so that it is asked for again.
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

// errUnheard says that a list was not answered in time. The list is then unknown,
// which is not the same as empty.
var errUnheard = errors.New("no answer in time")

// listPatience bounds the wait for a list other than the tools. A server without that
// list is still useful.
const listPatience = 5 * time.Second

// listOne reads the list of one kind. It returns [errUnheard] if the server is
// silent, and any other error if the server is useless without the answer. A refusal
// means that the server has nothing of the kind. more is a note for the user if
// something was left out.
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

// list reads one list, page by page, up to the limits of package listing. more says
// what was left out, or is "".
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
