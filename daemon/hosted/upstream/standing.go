package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/background"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/listing"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// What sessions want of a process for longer than a call: a level of its log messages, and to be
// notified of changes. A goroutine compares that with what the process was asked for, and asks for
// the difference ([Process.reconcile]). The records of these requests stay, so that the next daemon
// knows what it has asked for.

// ErrExited says that a process ended before it answered.
var ErrExited = errors.New("it ended")

const (
	retryPause = time.Second // after a request that could not be written
	restPause  = time.Second // for which a modern subscription that has ended is not made again
	never      = time.Hour
	levelWait  = time.Second // for which a call waits until its level is set
	quietest   = "emergency" // the level that stands for none: MCP knows no way to take a level back
)

// ofLists is the URI that stands for the changes of lists.
const ofLists = ""

// standing is what a process was asked for. It is guarded by the hub's mutex.
type standing struct {
	modern  bool
	about   json.RawMessage // result of the handshake
	logs    bool            // it takes a level for its log messages
	level   string          // that it was asked for last; "" if none
	write   int64           // of that request
	pending bool            // it has not answered that yet
	subs    map[string]*watch
	untold  bool          // a client, or the journal, may lack a change of a resource
	changed chan struct{} // closed and replaced after each request and each answer
}

// watch is a subscription at a process, by its URI:
//
//	asking -> agreed, refused; agreed -> ending; ending, refused: it is forgotten
type watch struct {
	state     watchState
	write     int64           // of the request; 0 once its record is not needed
	inherited bool            // an earlier daemon made the request: this one has seen no answer
	failure   json.RawMessage // of one that is refused: the error of JSON-RPC
	restUntil time.Time       // of one that is ending: when it is forgotten; zero if an answer decides that
	changed   int64           // place in the output at which the resource has changed last
	recorded  bool            // the journal says that
	settled   bool            // the journal was asked to, since it was made
}

type watchState int8

const (
	asking watchState = iota
	agreed
	ending
	refused
)

// Wake has the process asked for what sessions want now. It never blocks, and needs no lock.
func (u *Process) Wake() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// reconcile asks the process for what sessions want, whenever it is woken, until it has exited or the
// daemon stops. The caller must not hold hub.Mu.
func (u *Process) reconcile() {
	ctx, timer := u.hub.Life, time.NewTimer(never)
	defer timer.Stop()
	for {
		select {
		case <-u.wake:
		case <-timer.C:
		case <-u.Exited:
			return
		case <-ctx.Done():
			return
		}
		wait := time.Duration(0)
		for wait == 0 {
			ask, next := u.nextWish()
			if wait = next; ask == nil {
				break
			}
			if err := ask(ctx); err != nil {
				u.Log.DebugContext(ctx, "log level or subscription cannot be requested", "err", err)
				wait = retryPause
			}
		}
		timer.Reset(wait)
	}
}

// nextWish returns what makes the next request that is due; nil and when to look again if none is.
func (u *Process) nextWish() (ask func(context.Context) error, next time.Duration) {
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if u.State != stage.Serving {
		return nil, never
	}
	if level, due := u.levelDueLocked(); due {
		return func(ctx context.Context) error { return u.setLevel(ctx, level) }, 0
	}
	uri, end, due := u.watchDueLocked()
	switch {
	case due && end:
		return func(ctx context.Context) error { return u.unwatch(ctx, uri) }, 0
	case due:
		return func(ctx context.Context) error { return u.watch(ctx, uri) }, 0
	}
	next = never
	for _, s := range u.standing.subs {
		if s.state == ending && !s.restUntil.IsZero() {
			next = min(next, max(time.Until(s.restUntil), time.Millisecond))
		}
	}
	return nil, next
}

// provisionalLocked reports whether sessions of an earlier daemon may come back: until then nothing
// is taken from the process.
func (u *Process) provisionalLocked() bool { return u.Restored && !u.hub.Expected }

// notifyLocked wakes those that wait for an answer. The caller must hold hub.Mu.
func (u *Process) notifyLocked() {
	close(u.standing.changed)
	u.standing.changed = make(chan struct{})
}

// forgetLocked has the reader drop the records of these writes later; 0 is none. hub.Mu must be held.
func (u *Process) forgetLocked(writes ...int64) {
	for _, write := range writes {
		if write > 0 {
			u.records.Forget(write)
			u.nudge()
		}
	}
}

// restoreStandingLocked learns from the records of an earlier daemon what the process was asked for,
// up to the write last. Output below until was written before this daemon attached. It returns the
// records that are not needed any more. hub.Mu must be held.
func (u *Process) restoreStandingLocked(records []calls.Record, last, until int64) (forget []int64) {
	st := u.standing
	drop := func(uri string) {
		if s := st.subs[uri]; s != nil {
			forget = append(forget, s.write)
			delete(u.internal, s.write)
		}
		delete(st.subs, uri)
	}
	for _, rec := range records {
		if rec.Write > last {
			continue
		}
		switch rec.Kind {
		case calls.KindSetLevel:
			forget = append(forget, st.write)
			st.level, st.write = rec.Name, rec.Write
		case calls.KindSubscribe, calls.KindListen:
			drop(rec.Name)
			st.subs[rec.Name] = u.inheritLocked(&rec, until)
		case calls.KindUnsubscribe:
			drop(rec.Name)
			forget = append(forget, rec.Write)
		case calls.KindCancel:
			for uri, s := range st.subs {
				if rec.Name == mcp.Listen && string(jsonrpc.IntID(s.write)) == string(rec.ID) {
					drop(uri)
				}
			}
		}
	}
	return forget
}

// inheritLocked returns the subscription of a record of an earlier daemon. The answer to it may be still to
// come: to a modern one it says that the server has ended it. If the journal does not say where the
// resource has changed, all who have subscribed are to be notified. hub.Mu must be held.
func (u *Process) inheritLocked(rec *calls.Record, until int64) *watch {
	s := &watch{
		state: agreed, write: rec.Write, inherited: true,
		changed: rec.Changed, recorded: rec.Changed > 0, settled: true,
	}
	if !s.recorded {
		s.changed, u.standing.untold = endOf(until-1), true
	}
	if uri := rec.Name; rec.Kind == calls.KindListen || !s.recorded {
		u.internal[rec.Write] = &inquiry{stays: true, take: func(msg jsonrpc.Message) {
			u.hub.Mu.Lock()
			defer u.hub.Mu.Unlock()
			if u.standing.subs[uri] == s {
				u.watchAnsweredLocked(uri, s, msg)
			}
		}}
	}
	return s
}

// raisesLocked reports whether a level is more verbose than what the process was asked for.
func (u *Process) raisesLocked(wanted string) bool {
	asked := u.standing.level
	return wanted != "" && wanted != asked && mcp.Verbose(asked, wanted) == wanted
}

// levelDueLocked returns the level to ask for, if another one is wanted than before. A lower one waits
// for sessions that may come back. The caller must hold hub.Mu.
func (u *Process) levelDueLocked() (wanted string, due bool) {
	if u.State != stage.Serving || !u.standing.logs {
		return "", false
	}
	wanted = u.levelLocked()
	switch asked := u.standing.level; {
	case wanted == asked:
		return "", false
	case u.raisesLocked(wanted):
		return wanted, true
	case u.provisionalLocked():
		return "", false
	case wanted == "":
		wanted = quietest
	}
	return wanted, wanted != u.standing.level
}

// setLevel asks the process for a level. It takes hub.Mu.
func (u *Process) setLevel(ctx context.Context, wanted string) error {
	params, _ := json.Marshal(map[string]string{"level": wanted}) // strings encode
	st := u.standing
	u.hub.Mu.Lock()
	level, before := st.level, st.write
	u.hub.Mu.Unlock()
	var write int64
	_, err := u.ask(ctx, calls.Record{Kind: calls.KindSetLevel, Name: wanted}, mcp.SetLevel, params,
		inquiry{stays: true, take: func(msg jsonrpc.Message) {
			if msg.Error != nil {
				u.Log.DebugContext(ctx, "server refuses a level", "wanted", wanted, "err", fault.Quote(msg.Error))
			}
			u.hub.Mu.Lock()
			defer u.hub.Mu.Unlock()
			st.pending = st.pending && st.write != write
			u.notifyLocked()
		}}, func(id int64) {
			write = id
			st.level, st.write, st.pending = wanted, id, true
		})
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	if err != nil {
		st.level, st.write, st.pending = level, before, false
		return err
	}
	u.forgetLocked(before)
	return nil
}

// AwaitLevel waits, for up to [levelWait], until the process has the level that sessions want, if that
// is a more verbose one. It takes hub.Mu.
func (u *Process) AwaitLevel(ctx context.Context) {
	if !u.takesLevels.Load() { // as most processes
		return
	}
	var limit <-chan time.Time
	for {
		u.hub.Mu.Lock()
		wanted, due := u.levelDueLocked()
		waits := due && u.raisesLocked(wanted) || u.standing.pending && !due
		changed := u.standing.changed
		u.hub.Mu.Unlock()
		if due {
			u.Wake()
		}
		if !waits {
			return
		}
		if limit == nil {
			limit = time.After(levelWait)
		}
		select {
		case <-changed:
		case <-limit:
			u.hub.Mu.Lock()
			u.standing.pending = u.standing.pending && due // it does not answer: later calls do not wait
			u.hub.Mu.Unlock()
			return
		case <-u.Exited:
			return
		case <-ctx.Done():
			return
		}
	}
}

// watchDueLocked returns the URI of a subscription to make, or to end. It forgets those that have
// rested, or were refused and are not wanted any more. The caller must hold hub.Mu.
func (u *Process) watchDueLocked() (uri string, end, due bool) {
	st, wanted := u.standing, map[string]struct{}{}
	if listing.Subscribable(st.about) {
		wanted = u.urisLocked()
	}
	if st.modern && len(NotifiedLists(st.about)) > 0 {
		wanted[ofLists] = struct{}{}
	}
	for uri, s := range st.subs {
		if s.state == ending && !s.restUntil.IsZero() && !time.Now().Before(s.restUntil) {
			delete(st.subs, uri)
			u.notifyLocked()
		}
	}
	for uri := range wanted {
		if st.subs[uri] == nil {
			return uri, false, true
		}
	}
	if u.provisionalLocked() {
		return "", false, false
	}
	for uri, s := range st.subs {
		if _, ok := wanted[uri]; ok {
			continue
		}
		switch {
		case s.state == refused:
			delete(st.subs, uri)
		case s.state == agreed, s.state == asking && st.modern:
			return uri, true, true
		}
	}
	return "", false, false
}

// watch subscribes to a resource at the process, or to the changes of its lists. It takes hub.Mu.
func (u *Process) watch(ctx context.Context, uri string) error {
	s, st := &watch{}, u.standing
	rec, method, params := calls.Record{Kind: calls.KindSubscribe, Name: uri}, mcp.Subscribe, mcp.OfResource(uri)
	u.hub.Mu.Lock()
	modern, members := st.modern, strings.Join(NotifiedLists(st.about), ",")
	u.hub.Mu.Unlock()
	if modern {
		rec.Kind, method = calls.KindListen, mcp.Listen
		if uri != ofLists {
			list, _ := json.Marshal([]string{uri}) // strings encode
			members = `"resourceSubscriptions":` + string(list)
		}
		params = fmt.Appendf(nil, `{"_meta":{%s},"notifications":{%s}}`, u.Meta(), members)
	}
	_, err := u.ask(ctx, rec, method, params, inquiry{stays: true, take: func(msg jsonrpc.Message) {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		u.watchAnsweredLocked(uri, s, msg)
	}}, func(write int64) {
		s.write = write
		st.subs[uri] = s
	})
	if err != nil {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		delete(st.subs, uri)
	}
	return err
}

// watchAnsweredLocked handles the answer to a subscription, which ends a modern one. hub.Mu must be
// held.
func (u *Process) watchAnsweredLocked(uri string, s *watch, msg jsonrpc.Message) {
	switch {
	case msg.Error != nil && s.state == asking:
		u.refuseWatchLocked(s, msg.Error)
	case msg.Error == nil && !u.standing.modern:
		u.agreedLocked(uri, s)
	case s.state == asking:
		u.refuseWatchLocked(s, json.RawMessage(`{"code":-32603,"message":"the server has ended the subscription"}`))
	default:
		u.restLocked(s)
	}
}

// unwatch ends a subscription at the process. It takes hub.Mu.
func (u *Process) unwatch(ctx context.Context, uri string) error {
	st := u.standing
	u.hub.Mu.Lock()
	s := st.subs[uri]
	if s != nil && st.modern {
		u.cancelListenLocked(s.write)
		u.restLocked(s)
	}
	done := s == nil || st.modern
	u.hub.Mu.Unlock()
	if done {
		return nil
	}
	var unsubscribe int64
	_, err := u.ask(ctx, calls.Record{Kind: calls.KindUnsubscribe, Name: uri}, mcp.Unsubscribe, mcp.OfResource(uri),
		inquiry{stays: true, take: func(jsonrpc.Message) {
			u.hub.Mu.Lock()
			defer u.hub.Mu.Unlock()
			if st.subs[uri] == s { // else another one was made meanwhile
				delete(st.subs, uri)
			}
			u.notifyLocked()
			u.forgetLocked(s.write, unsubscribe)
			u.Wake() // it may be wanted again
		}}, func(write int64) { unsubscribe, s.state = write, ending })
	if err != nil {
		u.hub.Mu.Lock()
		defer u.hub.Mu.Unlock()
		s.state = agreed
	}
	return err
}

// endWatchLocked puts a subscription into a state in which its record is not needed.
func (u *Process) endWatchLocked(s *watch, to watchState) {
	u.forgetLocked(s.write)
	s.state, s.write = to, 0
	u.Wake()
}

// refuseWatchLocked records that the process has refused a subscription. hub.Mu must be held.
func (u *Process) refuseWatchLocked(s *watch, failure json.RawMessage) {
	u.Log.Debug("server refuses a subscription", "err", fault.Quote(failure))
	s.failure = failure
	u.endWatchLocked(s, refused)
	u.notifyLocked()
}

// restLocked ends a modern subscription, which is not made again for a moment. hub.Mu must be held.
func (u *Process) restLocked(s *watch) {
	s.restUntil = time.Now().Add(restPause)
	u.endWatchLocked(s, ending)
}

// acknowledged handles the acknowledgement of the modern subscription with that write: the process
// says which resources it notifies of. It takes hub.Mu.
func (u *Process) acknowledged(params json.RawMessage, write int64) {
	var granted []string
	_ = json.Unmarshal(jsonrpc.Field(jsonrpc.Field(params, "notifications"), "resourceSubscriptions"), &granted)
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	for uri, s := range u.standing.subs {
		if s.write != write || s.state != asking {
			continue
		}
		if uri != ofLists && !slices.Contains(granted, uri) {
			u.refuseWatchLocked(s, json.RawMessage(
				`{"code":-32602,"message":"the server does not notify of changes to this resource"}`))
			u.cancelListenLocked(write)
			return
		}
		u.agreedLocked(uri, s)
		return
	}
}

// cancelListenLocked queues a cancellation of the subscriptions/listen request that has that write,
// which a full queue drops, and has its answers ignored. The caller must hold hub.Mu.
func (u *Process) cancelListenLocked(write int64) {
	delete(u.internal, write)
	id := jsonrpc.IntID(write)
	u.writes.Push(background.Write{
		Rec:  calls.Record{Kind: calls.KindCancel, Name: mcp.Listen, ID: json.RawMessage(id)},
		Line: jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%s}`, id)),
	})
}

// AwaitWatch blocks until the process has agreed to notify of a resource, or has refused: failure is
// its error then. again is true if an earlier daemon had the same wish. It takes hub.Mu.
func (u *Process) AwaitWatch(ctx context.Context, uri string, again bool) (failure json.RawMessage, err error) {
	st := u.standing
	for first := true; ; first = false {
		u.hub.Mu.Lock()
		s := st.subs[uri]
		switch {
		case s == nil, s.state == asking, s.state == ending, s.state == agreed && !s.settled:
		case s.state == agreed && (again || !s.inherited || st.modern): // to repeat that would end it
			u.hub.Mu.Unlock()
			return nil, nil
		case s.state == refused && !first:
			u.hub.Mu.Unlock()
			return s.failure, nil
		default:
			u.forgetLocked(s.write)
			delete(st.subs, uri)
		}
		changed := st.changed
		u.hub.Mu.Unlock()
		u.Wake()
		select {
		case <-changed:
		case <-u.Exited:
			return nil, ErrExited
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// NotifiedLists returns the members of subscriptions/listen for the lists of whose changes a server
// notifies; about is the result of its handshake.
func NotifiedLists(about json.RawMessage) []string {
	var members []string
	capabilities := jsonrpc.Field(about, "capabilities")
	for _, of := range []string{"tools", "prompts", "resources"} {
		if string(jsonrpc.Field(jsonrpc.Field(capabilities, of), "listChanged")) == "true" {
			members = append(members, fmt.Sprintf("%q:true", of+"ListChanged"))
		}
	}
	return members
}

// logged passes a log message to the sessions that want its level: the one they have set, or that
// of a request under way; a modern server only knows the latter. It takes hub.Mu.
func (u *Process) logged(msg jsonrpc.Message) {
	level, _ := mcp.String(jsonrpc.Field(msg.Params, "level"))
	u.hub.Mu.Lock()
	defer u.hub.Mu.Unlock()
	asked := map[string]bool{} // has the sessions with a request under way, and whether one wants the message
	for _, c := range u.Calls {
		if c.Phase() == calls.Open && c.Claim().Wanted() {
			asked[c.Key.Session] = asked[c.Key.Session] || mcp.Covers(c.Level, level)
		}
	}
	for session, c := range u.usersLocked() {
		if wanted, begun := asked[session]; begun || u.era != dialect.Modern { // a modern one speaks of requests only
			c.Log(level, msg.Params, wanted)
		}
	}
}
