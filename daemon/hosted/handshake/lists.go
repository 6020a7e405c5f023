package handshake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/listing"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Lists is what a process lists.
type Lists struct {
	Raw listing.Lists
	Cut []string // a note for the user for each list that is incomplete
	// Unheard says that a list was not answered in time, and keeps its earlier content.
	// It is worth to ask for it again.
	Unheard bool
}

// ReadLists reads all lists that a process declares in about, the result of its
// handshake, and its tools even if it declares none: some servers declare nothing. A list that is
// refused is left out, as long as the process has another one; it is an error if it has nothing else and
// does not say that it knows no such list. before has what it listed before, or another process of
// its server.
func ReadLists(
	ctx context.Context, p Peer, log *slog.Logger, about json.RawMessage, before listing.Lists,
) (Lists, error) {
	var all Lists
	var refused error // to list tools
	listed := 0       // entries of all lists
	for k := range listing.Kinds {
		declared := listing.Has(about, k.MCP().Capability)
		if !declared && k != listing.Tools {
			continue
		}
		raw, note, err := listOne(ctx, p, log, k, declared)
		if refusal, ok := errors.AsType[*dialect.RefusalError](err); ok { // of tools
			if refused = err; before[k] != nil {
				raw = before[k]
			}
			note, err = refusal.Error()+": what it would list is left out", nil
		}
		if errors.Is(err, errUnheard) && !declared {
			continue
		}
		if errors.Is(err, errUnheard) {
			all.Unheard = true
			stands := "what it would list is left out"
			if raw = before[k]; raw != nil {
				stands = "what was listed before stands"
			}
			note, err = fmt.Sprintf("%s was not answered within %v: %s", k.MCP().List, listPatience, stands), nil
		}
		if err != nil {
			return Lists{}, err
		}
		var notes []string
		all.Raw[k], notes = listing.Fit(k, raw)
		listed += len(all.Raw[k])
		if note != "" {
			all.Cut = append(all.Cut, note)
		}
		all.Cut = append(all.Cut, notes...)
	}
	if refused != nil && listed == 0 && !all.Unheard {
		return Lists{}, refused
	}
	return all, nil
}

// errUnheard says that a list was not answered in time. The list is then unknown,
// which is not the same as empty.
var errUnheard = errors.New("no answer in time")

// listPatience bounds the wait for a list other than declared tools. A server without that
// list is still useful.
const listPatience = 5 * time.Second

// listOne reads the list of one kind; declared says that the server has said that it has that. It
// returns [errUnheard] if the server is silent, a [*dialect.RefusalError] if it refuses to list
// the tools that it has declared, and any other error if the server is useless without the answer. Any
// other refusal, and one by which it knows no such list, means that the server has nothing of the kind.
// more is a note for the user if something was left out.
func listOne(
	ctx context.Context, p Peer, log *slog.Logger, k listing.Kind, declared bool,
) (all []json.RawMessage, more string, err error) {
	if k == listing.Tools && declared {
		all, more, err = list(ctx, p, k.MCP())
		if refusal, ok := errors.AsType[*dialect.RefusalError](err); ok && refusal.IsUnknownMethod() {
			return nil, "", nil
		}
		return all, more, err
	}
	patient, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	all, more, err = list(patient, p, k.MCP())
	_, refused := errors.AsType[*dialect.RefusalError](err)
	switch exited, _ := p.Ended(); {
	case err == nil:
		return all, more, nil
	case ctx.Err() != nil, exited:
		return nil, "", err
	case refused: // some say that they have resources, and know no templates
		log.DebugContext(ctx, "server lists nothing of a kind", "err", err)
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
// what was left out, or is "". If a page behind the first is refused, or makes no sense, those
// before it stand.
func list(ctx context.Context, p Peer, how listing.Protocol) (all []json.RawMessage, more string, err error) {
	e := p.Envelope()
	all = []json.RawMessage{}
	var cursor json.RawMessage
	size := 0
	for range listing.MaxPages {
		params := e.OwnParams()
		if cursor != nil {
			params = jsonrpc.Prepend(params, `"cursor":`+string(cursor))
		}
		result, err := p.Request(ctx, calls.KindList, how.List, params)
		_, refused := errors.AsType[*dialect.RefusalError](err)
		if err != nil && (cursor == nil || !refused) {
			return nil, "", err
		}
		var page []json.RawMessage
		if listed := jsonrpc.Field(result, how.Member); listed != nil {
			err = json.Unmarshal(listed, &page)
		}
		switch {
		case err != nil && cursor != nil:
			return all, fmt.Sprintf("what follows the first %d entries of %s is left out: %v", len(all), how.List, err), nil
		case err != nil:
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
		// Of the modern era an empty cursor is one as others are; older servers end their lists with that.
		last := len(next) == 0 || string(next) == "null" || string(next) == `""` && e.Era != dialect.Modern
		switch {
		case len(all) > listing.MaxEntries, len(all) == listing.MaxEntries && !last:
			return all[:listing.MaxEntries], fmt.Sprintf("%s has more than %d entries: the others are left out",
				how.List, listing.MaxEntries), nil
		case last:
			return all, "", nil
		case string(next) == string(cursor):
			return all, how.List + " gives a cursor twice: what would follow is left out", nil
		}
		cursor = next
	}
	return all, fmt.Sprintf("%s has more than %d pages: the others are left out", how.List, listing.MaxPages), nil
}
