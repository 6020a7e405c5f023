package dispatch

import (
	"encoding/json"
	"errors"

	"holdline/daemon/hosted/upstream"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// Proxied returns the fault that our own process for a remote server has answered in
// the server's place; nil if the answer is the server's.
func Proxied(s Server, failure json.RawMessage) *fault.Record {
	if failure == nil || !s.Entry().Remote {
		return nil
	}
	return upstream.FaultIn(failure)
}

// AsFault returns err as the fault that ends a call; a stopping daemon is no fault.
func AsFault(err error, o *listing.Offer) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, tool.ErrStopping) {
		return tool.ErrStopping
	}
	if f, ok := errors.AsType[*fault.Record](err); ok {
		return f
	}
	return fault.New(fault.Cancelled, fault.Host, o.Operation(), "%v", err)
}

// strangeState answers a request whose requestState looks like ours but is not valid.
// Such a request continues a call, so it must not begin a new one.
const strangeState = `{"code":-32602,"message":"params.requestState is not as it was given"}`
