package place

import (
	"context"
	"errors"
	"fmt"

	"holdline/protocol"
	"holdline/protocol/control"
)

// AskSelf asks the daemon at this place for its status as a command line would: by
// way of the socket, the listener and every part of the daemon that a status needs.
// It returns an error if one of them hangs, and else a line for people.
func (p *Place) AskSelf(ctx context.Context, version string) (string, error) {
	c, err := connect(ctx, p.socket, version, p.stateDir)
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		// The daemon is well, but all its connections are in use.
		return "serving at " + p.socket + ": " + refusal.Message, nil
	}
	if err != nil {
		return "", err
	}
	defer c.Close()
	var s control.StatusAnswer
	if err := c.Call(ctx, control.Status, nil, &s, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("serving at %s: sessions %d, workers %d, consults %d",
		p.socket, len(s.Sessions), len(s.Workers), s.Consults.Running), nil
}
