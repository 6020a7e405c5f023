package hosted

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"holdline/daemon/config/resolve"
	"holdline/daemon/filewatch"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/tool"
	"holdline/protocol/process"
)

// seenLogin is a login whose files say that.
type seenLogin struct{ entry.LoginState }

// Stamp differs for two persons.
func (l *seenLogin) Stamp(string) entry.LoginStamp {
	return entry.LoginStamp{Server: filewatch.Stamp{Size: int64(len(l.Who))}}
}

// State returns what the files say.
func (l *seenLogin) State() entry.LoginState { return l.LoginState }

// TestLoginOfAnother checks that a process whose login is another person's by now gets no more
// calls: at the next call, although nobody has told this daemon. Processes of an earlier daemon
// count, too. One of the same login, and one that was started without a login, go on.
func TestLoginOfAnother(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		of   string // with which login the process was started
		told bool   // a command says that logins have changed
		next bool   // a process of another scope starts before the call
		goes bool
	}{
		"same":                   {of: "id bob"},
		"same, told":             {of: "id bob", told: true},
		"made its login itself":  {told: true},
		"another":                {of: "id ada", goes: true},
		"another, after a start": {of: "id ada", next: true, goes: true},
		"another, told":          {of: "id ada", told: true, goes: true},
	} {
		dir := t.TempDir()
		m := New(Options{Log: slog.New(slog.DiscardHandler), Watch: noWatch{}, StateDir: dir, Servers: []entry.Server{{
			Name: "s", Scope: entry.Shared, Key: "k", MaxConcurrent: 1, Lazy: true,
			Login: &seenLogin{entry.LoginState{Login: "id", Who: "id bob"}},
			Process: func(context.Context, *process.Owner) (resolve.Process, error) {
				return resolve.Process{}, errors.New("no other starts")
			},
		}}})
		m.hub.Mu.Lock()
		s := m.servers["s"]
		inst := s.instanceLocked(&tool.Caller{})
		u := m.hub.NewProcess(inst, t.TempDir(), "s", process.Owner{Login: tc.of})
		inst.up, u.State = u, stage.Serving
		m.hub.Mu.Unlock()
		if tc.next {
			s.lookBeforeStart()
		}
		if tc.told {
			m.LoginsChanged()
		} else {
			if got, _ := s.Ready(t.Context(), nil, tool.Caller{}); (got == u) == tc.goes {
				t.Errorf("%s: a call gets %v", name, got)
			}
		}
		if gone := inst.up != u; gone != tc.goes || gone != (u.State == stage.Draining) {
			t.Errorf("%s: the process has gone: %v, in state %v", name, gone, u.State)
		}
		m.hub.End()
		m.hub.WG.Wait() // it may still write into the directories
	}
}
