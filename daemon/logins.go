package daemon

import "holdline/daemon/hosted/asklogin"

// newAsker returns what asks people to log in to servers, for their agents.
func (d *daemon) newAsker() *asklogin.Asker {
	return asklogin.New(asklogin.Options{
		Log: d.Log.With("component", "logins"), Command: d.launcher.LoginCommand,
		Changed: func() { d.servers.LoginsChanged() },
	})
}
