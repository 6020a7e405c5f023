package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"holdline/daemon/rollout"
)

// Times of the watch for an edited configuration.
const (
	configPoll   = time.Second // the file is looked at so often
	configSettle = time.Second // an edited file must stay as it is for so long
)

// errConfigGone is why a file that is not there any more is not taken for an empty
// one: an editor, a sync or an unmounted home may be the reason.
var errConfigGone = errors.New("the file is not there any more; if it is to be so: holdline reload")

// configRead is the state of the configuration file that was looked at last.
type configRead struct {
	stamp   rollout.Stamp // zero if there is no file
	refused error         // nil if the file is in force
}

// configStamp tells states of the configuration file apart. A file that cannot be
// looked at has the zero stamp, as one that is not there.
func configStamp(path string) rollout.Stamp {
	stamp, err := rollout.Stat(path)
	if err != nil {
		return rollout.Stamp{}
	}
	return stamp
}

// settling decides when an edited file may be read. Editors write a file in
// several steps, or put another in its place: only one that stays as it is for a
// while is whole.
type settling struct {
	changed bool
	next    rollout.Stamp
	since   time.Time
}

// ready reports whether a file that is in state now and was last read in state
// read may be read.
func (s *settling) ready(now, read rollout.Stamp, at time.Time) bool {
	switch {
	case now == read:
		s.changed = false
	case !s.changed || now != s.next:
		s.changed, s.next, s.since = true, now, at
	case at.Sub(s.since) >= configSettle:
		s.changed = false
		return true
	}
	return false
}

// watchConfig reads the configuration when it was edited. A file that was refused
// is not read again before it is edited again.
func (l *life) watchConfig(ctx context.Context) error {
	tick := time.NewTicker(configPoll)
	defer tick.Stop()
	var edit settling
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		path := *l.file.Load()
		now := configStamp(path)
		if !edit.ready(now, l.configRead.Load().stamp, time.Now()) {
			continue
		}
		if now == (rollout.Stamp{}) {
			l.configRead.Store(&configRead{now, errConfigGone})
			l.Log.ErrorContext(ctx, "configuration gone, the old one stays in force", "path", path)
			continue
		}
		l.Log.InfoContext(ctx, "the configuration was edited", "path", path)
		if _, err := l.reload(ctx); err != nil {
			l.Log.ErrorContext(ctx, "configuration refused, the old one stays in force", "err", err)
		}
	}
}

// configRefusal says for people, in one line, why the configuration file is not in
// force; "" if it is.
func (l *life) configRefusal() string {
	err := l.configRead.Load().refused
	if err == nil {
		return ""
	}
	return strings.Join(strings.Split(err.Error(), "\n"), "; ")
}
