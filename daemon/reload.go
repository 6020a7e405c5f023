package daemon

import (
	"context"
	"reflect"

	"holdline/daemon/config"
)

// apply puts another configuration into force in every part; see
// [configfile.Options.Apply].
func (l *life) apply(ctx context.Context, before, after *config.Config) {
	l.rollout.Forget() // a newer program may have been rejected for what the file said
	if before.Equal(*after) {
		return
	}
	l.Level.Set(after.Log.Level)
	l.programs.Use(ctx, after)
	l.consults.Configure(settings(after))
	l.servers.Configure(l.launcher.Specs(ctx, after))
	if !reflect.DeepEqual(before.Identities, after.Identities) {
		l.servers.Changed()
	}
	l.telemetry.ShowPaths(after.Telemetry.Paths)
	l.telemetry.Bound(int64(after.Telemetry.MaxBytes), after.Telemetry.Keep)
	l.audit.Bound(int64(after.Telemetry.MaxBytes), after.Telemetry.Keep)
	l.sessions.Limit(after.Limits.InFlight)
	l.listener.Limit(after.Limits.Connections)
}

// environChanged is called when the user's shell has said what its environment is.
// Programs of consults follow by themselves before each consult.
func (l *life) environChanged(ctx context.Context) {
	l.servers.Remask()
	value := config.Lookup(l.env.List())
	path, err := l.FindConfig(func(name string) string { v, _ := value(name); return v })
	if err != nil || path == l.file.Path() {
		return
	}
	// The profile names another file than a plain environment does.
	l.Log.InfoContext(ctx, "the login shell names another configuration", "path", path)
	l.file.SetPath(path)
	l.reload(ctx)
}

// reload reads the configuration, and logs why if it is refused.
func (l *life) reload(ctx context.Context) {
	if _, err := l.file.Reload(ctx); err != nil {
		l.Log.ErrorContext(ctx, "configuration refused, the old one stays in force", "err", err)
	}
}
