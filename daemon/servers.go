package daemon

import (
	"context"

	"holdline/daemon/config"
	"holdline/daemon/hosted"
	"holdline/daemon/hosted/asklogin"
	"holdline/daemon/launch"
	"holdline/daemon/leaf"
	"holdline/daemon/place"
	"holdline/protocol/mcp"
)

// buildServers makes the part that hosts other MCP servers, and reads what earlier
// daemons have recorded of it.
func (d *daemon) buildServers(ctx context.Context, cfg *config.Config) error {
	d.launcher = &launch.Launcher{
		Log: d.Log, File: d.file, Env: d.env, Home: d.Home, Image: d.Image, LoginDir: d.dirs.Logins,
		Guarded: []string{d.dirs.Root, d.place.Dir(), d.Exe},
		Grants:  launch.NewGrants(d.place.File(place.WorkersDir)),
		Leaves:  leaf.Open(d.dirs.Launches),
	}
	d.asker = d.newAsker()
	d.servers = hosted.New(hosted.Options{
		Log: d.Log, Workers: d.workers, Watch: d.telemetry,
		WorkersDir: d.place.File(place.WorkersDir), CatalogDir: d.dirs.Catalog, StateDir: d.dirs.Servers,
		TasksDir: d.dirs.Tasks,
		Info:     mcp.Implementation{Name: "holdline", Title: "Holdline", Version: d.Version},
		Servers:  d.launcher.Specs(ctx, cfg), Gone: d.launcher.GoneSpec(), Touch: d.crashes.Touch,
		Careful:  d.crashes.Crashed(),
		Prepared: d.env.Known,
		Budget:   func(identity string) int { return d.file.Current().Identities[identity].Budget.Calls },
		Rules:    d.rules(),
		Lose:     d.place.Lose,
		Logins:   d.asker,
	})
	d.servers.ForgetLogs(cfg)
	return d.servers.Load()
}

// newAsker returns what asks people to log in to servers, for their agents.
func (d *daemon) newAsker() *asklogin.Asker {
	return asklogin.New(asklogin.Options{
		Log: d.Log.With("component", "logins"), Command: d.launcher.LoginCommand,
		Changed: func() { d.servers.LoginsChanged() },
	})
}
