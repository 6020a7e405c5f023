package daemon

import (
	"context"
	"time"

	"holdline/daemon/service"
)

// ping proves to the service manager, if it waits for that, that the daemon is well.
func (l *life) ping(ctx context.Context) error {
	within, err := l.Notifier.Watchdog()
	if err != nil {
		l.Log.WarnContext(ctx, "the service manager's watchdog is not heeded", "err", err)
	}
	if within <= 0 {
		return untilDone(ctx)
	}
	return l.Notifier.Prove(ctx, l.Log, within, func(ctx context.Context) (string, error) {
		return l.place.AskSelf(ctx, l.Version)
	})
}

// servedWell is how long a daemon has to serve for systemd not to count its
// start. One that ends sooner each time is given up after eight starts.
const servedWell = 3 * time.Second

// forgetStarts makes systemd forget the starts before this one, once this daemon
// has served for a while.
func (l *life) forgetStarts(ctx context.Context) error {
	if l.Notifier.Managed() == service.Systemd {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(servedWell):
		}
		if err := l.Units.ForgetStarts(ctx); err != nil {
			l.Log.DebugContext(ctx, "systemd counts the starts of this daemon on", "err", err)
		}
	}
	return untilDone(ctx)
}
