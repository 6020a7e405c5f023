package daemon

import "holdline/daemon/config"

// environ is the environment that children inherit from: the daemon's own, with
// the PATH that `holdline install` has captured in front. It is read anew each
// time, so that a refreshed PATH holds for the next start of a server.
func (l *life) environ() []string {
	environ, err := config.WithCaptured(l.Environ, config.PathFile(l.dirs.Root))
	if err != nil {
		l.Log.Warn("the captured PATH is not used", "err", err)
	}
	return environ
}
