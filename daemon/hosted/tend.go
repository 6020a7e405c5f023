package hosted

import (
	"context"
	"encoding/json"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// levelWait is how long a call waits for its server to confirm a more verbose
// level that somebody has asked for.
const levelWait = time.Second

// tendPause is the pause after a write that failed.
const tendPause = time.Second

// quietest is the level of a server whose messages nobody wants any more.
const quietest = "emergency"

// wishes are what a process was told that counts until it is told otherwise.
// They are guarded by the manager's mutex. The records of such writes stay: the
// next daemon reads there how the process stands.
type wishes struct {
	level      string // that the process was told last; "" is none
	levelWrite int64  // with which it was told
	leveling   bool   // it has not answered that yet

	subs map[string]*sub // by URI

	kick   chan struct{} // holds a token while something may be to be told
	tended chan struct{} // closed and replaced when something was told, or answered
}

func newWishes() wishes {
	return wishes{subs: map[string]*sub{}, kick: make(chan struct{}, 1), tended: make(chan struct{})}
}

// inquiry is a request of the daemon's own that waits for its answer.
type inquiry struct {
	take  func(jsonrpc.Message) // called once, with the manager's mutex held
	stays bool                  // its record is needed although it was answered
}

// tend tells the process what its sessions want of it, whenever that has
// changed. It never waits for an answer.
func (u *upstream) tend() {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-u.wish.kick:
		case <-retry.C:
		case <-u.exited:
			return
		case <-u.m.life.Done():
			return
		}
		for {
			more, err := u.tell()
			if err != nil {
				u.log.Debug("server cannot be told what is wanted of it", "err", err)
				retry.Reset(tendPause)
			}
			if err != nil || !more {
				break
			}
		}
	}
}

// attendLocked has it looked at what the process is to be told.
func (u *upstream) attendLocked() {
	select {
	case u.wish.kick <- struct{}{}:
	default:
	}
}

// attendLocked has it looked at what all processes are to be told.
func (m *Manager) attendLocked() {
	for u := range m.processes {
		u.attendLocked()
	}
}

// attendedLocked wakes those who wait for something that the process is told.
func (u *upstream) attendedLocked() {
	close(u.wish.tended)
	u.wish.tended = make(chan struct{})
}

// tell makes the next write that is due, and tells whether there may be
// another one.
func (u *upstream) tell() (more bool, err error) {
	u.m.mu.Lock()
	level, tune := u.levelDueLocked()
	uri, end, subscribe := u.subDueLocked()
	u.m.mu.Unlock()
	switch {
	case tune:
		err = u.setLevel(level)
	case subscribe && end:
		err = u.leave(uri)
	case subscribe:
		err = u.askFor(uri)
	default:
		return false, nil
	}
	return true, err
}

// inquire makes a request. made is told the number of the write before that is
// made, take the answer; both are called with the manager's mutex held. If
// there is an error the process may have been told nevertheless, and take is
// not called.
func (u *upstream) inquire(ctx context.Context, rec calls.Record, method string, params json.RawMessage,
	made func(write int64), take func(write int64, msg jsonrpc.Message),
) error {
	var write int64
	_, err := u.worker().WriteFunc(ctx, rec, func(id int64) ([]byte, error) {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		write = id
		u.internal[id] = inquiry{take: func(msg jsonrpc.Message) { take(id, msg) }, stays: true}
		made(id)
		return append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n'), nil
	})
	if err == nil {
		return nil
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.internal, write)
	return err
}

// unsettledLocked tells whether sessions of an earlier daemon may still come
// back, and want what the process was told.
func (u *upstream) unsettledLocked() bool { return u.restored && !u.m.expected }

// wantedLevelLocked is the most verbose level that a session which shares the
// process has asked for; "" if none has.
func (u *upstream) wantedLevelLocked() string {
	level := ""
	for session, c := range u.m.clients {
		if u.inst.usedByLocked(session, c) {
			level = mcp.Verbose(level, c.Level())
		}
	}
	return level
}

// levelDueLocked is the level that the process is to be told, if it is another
// one than it was told last.
func (u *upstream) levelDueLocked() (level string, due bool) {
	if u.state != serving || u.era != legacy || !u.logs {
		return "", false
	}
	level = u.wantedLevelLocked()
	switch {
	case level == u.wish.level:
		return "", false
	case u.raisesLocked(level):
		return level, true
	case u.unsettledLocked():
		return "", false
	case level == "":
		level = quietest
	}
	return level, level != u.wish.level
}

// raisesLocked tells whether a level is more verbose than what the process was
// told.
func (u *upstream) raisesLocked(level string) bool {
	return level != "" && level != u.wish.level && mcp.Verbose(u.wish.level, level) == level
}

// setLevel tells the process a level.
func (u *upstream) setLevel(level string) error {
	params, err := json.Marshal(map[string]string{"level": level})
	if err != nil { // strings encode
		return err
	}
	rec := calls.Record{Kind: calls.KindSetLevel, Name: level}
	before, was := u.wish.levelWrite, u.wish.level
	err = u.inquire(u.m.life, rec, mcp.SetLevel, params, func(write int64) {
		u.wish.level, u.wish.levelWrite, u.wish.leveling = level, write, true
	}, func(write int64, msg jsonrpc.Message) {
		if msg.Error != nil {
			u.log.Debug("server refuses a level", "level", level, "err", fault.Quote(msg.Error))
		}
		if u.wish.levelWrite == write {
			u.wish.leveling = false
		}
		u.attendedLocked()
	})
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if err != nil {
		u.wish.level, u.wish.levelWrite, u.wish.leveling = was, before, false
		return err
	}
	if before > 0 {
		u.forget = append(u.forget, before)
		u.nudge()
	}
	return nil
}

// tuned waits, for a limited time, until the process has confirmed a level that
// is as verbose as any session wants: what a call says is not to be missed by
// who has just asked for it.
func (u *upstream) tuned(ctx context.Context) {
	if wait, _, _ := u.untuned(); !wait { // as it is for most calls
		return
	}
	limit := time.NewTimer(levelWait)
	defer limit.Stop()
	for {
		wait, due, tended := u.untuned()
		if !wait {
			return
		}
		select {
		case <-tended:
		case <-limit.C:
			u.m.mu.Lock()
			if !due { // it says nothing to its level: nobody else waits for that
				u.wish.leveling = false
			}
			u.m.mu.Unlock()
			return
		case <-u.exited:
			return
		case <-ctx.Done():
			return
		}
	}
}

// untuned tells whether the process has yet to confirm such a level, or to be
// told it, which is due then and attended to. tended is closed when that may
// have changed.
func (u *upstream) untuned() (wait, due bool, tended <-chan struct{}) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	level, due := u.levelDueLocked()
	if due {
		u.attendLocked()
	}
	return due && u.raisesLocked(level) || u.wish.leveling && !due, due, u.wish.tended
}

// logged takes a message of the server to the sessions that share the process
// and want such messages: all from the level on that the session has set, or,
// while a request of it is under way that asked for messages, from that
// request's level on.
func (u *upstream) logged(msg jsonrpc.Message) {
	level, _ := mcp.String(jsonrpc.Field(msg.Params, "level"))
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	asked := map[string]bool{}
	for _, c := range u.calls {
		if c.Phase() == calls.Open && c.Claim().Wanted() {
			asked[c.Key.Session] = asked[c.Key.Session] || mcp.Covers(c.level, level)
		}
	}
	for session, c := range u.m.clients {
		in, begun := asked[session]
		switch {
		case u.era == modern && !begun: // it speaks of requests only
		case u.inst.usedByLocked(session, c):
			c.Log(level, msg.Params, in)
		}
	}
}

// Tuned is told that a session wants messages of another level than before.
func (m *Manager) Tuned(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[session]
	for u := range m.processes {
		if c != nil && u.inst.usedByLocked(session, c) {
			u.attendLocked()
		}
	}
}
