package daemon

import (
	"context"
	"reflect"

	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/configfile"
)

// apply puts another configuration into force in every part; see
// [configfile.Options.Apply].
func (d *daemon) apply(ctx context.Context, before, after *config.Config) {
	d.rollout.Forget() // a newer program may have been rejected for what the file said
	if before.Equal(*after) {
		return
	}
	d.Level.Set(after.Log.Level)
	d.programs.Use(ctx, after)
	d.consults.Configure(after)
	d.servers.Configure(d.launcher.Specs(ctx, after))
	d.servers.ForgetLogs(after)
	if !reflect.DeepEqual(before.Identities, after.Identities) || !reflect.DeepEqual(before.Views, after.Views) ||
		!reflect.DeepEqual(before.Sockets, after.Sockets) {
		d.servers.Changed()
	}
	d.guests.Changed()
	d.telemetry.ShowPaths(after.Telemetry.Paths)
	d.telemetry.Bound(int64(after.Telemetry.MaxBytes), after.Telemetry.Keep)
	d.audit.Bound(int64(after.Telemetry.MaxBytes), after.Telemetry.Keep)
	d.sessions.Limit(after.Limits.InFlight)
	d.listener.Limit(after.Limits.Connections)
}

// environChanged is called when the user's shell has said what its environment is.
// Programs of consults follow by themselves before each consult.
func (d *daemon) environChanged(ctx context.Context) {
	d.servers.Remask()
	value := expand.Lookup(d.env.List())
	path, err := d.FindConfig(func(name string) string { v, _ := value(name); return v })
	if err != nil || path == d.file.Path() {
		return
	}
	// The profile names another file than a plain environment does.
	d.Log.InfoContext(ctx, "the login shell names another configuration", "path", path)
	d.file.SetPath(path)
	d.reload(ctx)
}

// reload reads the configuration, and logs why if it is refused.
func (d *daemon) reload(ctx context.Context) {
	if _, err := d.file.Reload(ctx); err != nil {
		configfile.LogRefusal(ctx, d.Log, err)
	}
}
