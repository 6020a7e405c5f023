package daemon

import (
	"context"
	"time"

	"holdline/daemon/service"
)

// servedWell is how long a daemon has to serve for systemd not to count its
// start. One that ends sooner each time is given up after eight starts.
const servedWell = 3 * time.Second

// forgetStarts has systemd forget the starts before this one, once this daemon
// has served for a while.
func (l *life) forgetStarts(ctx context.Context) error {
	if l.Notifier.Managed() == service.Systemd {
		t := time.NewTimer(servedWell)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
		if err := l.Units.ForgetStarts(ctx); err != nil {
			l.Log.DebugContext(ctx, "systemd counts the starts of this daemon on", "err", err)
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
