package daemon

import (
	"context"
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
	return l.Notifier.Prove(ctx, l.Log, within, func(ctx context.Context) (string, error) {
		return l.place.AskSelf(ctx, l.Version, l.PID)
	})
}
