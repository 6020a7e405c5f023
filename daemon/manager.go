package daemon

import (
	"context"
	"time"

	"holdline/daemon/service"
)

// ping tells the service manager in regular intervals that the daemon works, if the manager
// has a watchdog.
func (d *daemon) ping(ctx context.Context) error {
	within, err := d.Notifier.Watchdog()
	if err != nil {
		d.Log.WarnContext(ctx, "the service manager's watchdog is not heeded", "err", err)
	}
	if within <= 0 {
		return untilDone(ctx)
	}
	return d.Notifier.Prove(ctx, d.Log, within, func(ctx context.Context) (string, error) {
		return d.place.AskSelf(ctx, d.Version)
	})
}

// servedWell is how long a daemon has to serve before systemd is asked not to count its
// start. systemd gives up a daemon that ends sooner eight times.
const servedWell = 3 * time.Second

// forgetTries is how often systemd is asked for that, if it does not answer.
const forgetTries = 3

// forgetStarts makes systemd forget the starts before this one, once this daemon
// has served for a while.
func (d *daemon) forgetStarts(ctx context.Context) error {
	if d.Notifier.Managed() == service.Systemd {
		for range forgetTries {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(servedWell):
			}
			err := d.Units.ForgetStarts(ctx)
			if err == nil {
				d.Log.InfoContext(ctx, "systemd has forgotten the starts before this one")
				break
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			d.Log.WarnContext(ctx, "systemd still counts the starts of this daemon", "err", err)
		}
	}
	return untilDone(ctx)
}
