package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"

	"holdline/protocol"
	"holdline/protocol/control"
)

// ping tells the service manager, if it wants to know, that the daemon is well.
func (l *life) ping(ctx context.Context) error {
	within, err := l.Notifier.Watchdog()
	if err != nil {
		l.Log.WarnContext(ctx, "the service manager's watchdog is not heeded", "err", err)
	}
	if within <= 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return l.Notifier.Prove(ctx, l.Log, within, l.askItself)
}

// askItself is the daemon's status as a command line gets it: by way of the
// socket, the listener and every part that a status is asked of. If one of them
// hangs there is none. The answer is a line for people.
func (l *life) askItself(ctx context.Context) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", l.place.path)
	if err != nil {
		return "", err
	}
	c, err := control.NewClient(ctx, conn, l.Version, l.PID)
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return "serving at " + l.place.path + ": " + refusal.Message, nil // it has no room for this one, and is well
	}
	if err != nil {
		return "", err
	}
	defer c.Close()
	var s control.StatusAnswer
	if err := c.Call(ctx, control.Status, nil, &s, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("serving at %s: sessions %d, workers %d, consults %d", l.place.path, len(s.Sessions), len(s.Workers), s.Consults.Running), nil
}
