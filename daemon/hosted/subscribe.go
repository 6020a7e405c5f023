package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// maxWants bounds the subscriptions of one session.
const maxWants = 256

// subPause is the pause before a modern server is asked again for what it was
// told to end, or has ended of itself: the two must not overlap, some servers
// take them for one.
const subPause = time.Second

// ofLists stands in place of a URI for the changes of a modern server's lists.
const ofLists = ""

// want is what one holder of a session has subscribed to: the session itself,
// "", or one of its requests to be told changes.
type want struct{ holder, uri string }

// wanted is where a subscription belongs.
type wanted struct {
	server string
	names  []string // by which rules know it
	held   bool     // it was in force: what has changed since must be told
}

// subState is where a subscription with a process stands.
type subState int

const (
	asking  subState = iota // the process has not agreed
	on                      // it tells changes
	leaving                 // it was told to stop, or has ended it, a moment ago
	refused
)

// sub is a subscription with a process, for all that want it.
type sub struct {
	state     subState
	write     int64           // with which the process was told
	inherited bool            // by the records of an earlier daemon: no answer was seen
	failure   json.RawMessage // of one that is refused
}

// Subscribe has a session told when the resource of that URI has changed, until
// [Manager.Unsubscribe] or the session's end, over as many processes of its
// server as it takes. It waits until the server has agreed. again says that the
// session had subscribed with an earlier daemon; then it stays subscribed if
// the server is not there now. A failure is the server's refusal, an error of
// JSON-RPC; an error is a fault, or [tool.ErrStopping].
func (m *Manager) Subscribe(ctx context.Context, c tool.Caller, holder, uri string, again bool) (failure json.RawMessage, err error) {
	s, names, err := m.subscribedServer(ctx, &c, uri)
	if err != nil {
		return nil, err
	}
	key := want{holder, uri}
	w, fresh, err := m.want(&c, key, &wanted{server: s.spec.Name, names: names})
	if err != nil {
		return nil, err
	}
	timeout := s.now().Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fault.New(fault.Timeout, fault.Server, mcp.Subscribe,
		"server %s has not answered within %v", s.spec.Name, timeout))
	defer cancel()
	failure, err = m.subscribe(ctx, s, c, uri, again)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil && failure == nil, again && err != nil:
		w.held = true
	case fresh && m.wants[c.Session][key] == w:
		delete(m.wants[c.Session], key)
		m.attendLocked()
	}
	return failure, asFault(err, &listing.Offer{Method: mcp.Subscribe})
}

// subscribedServer returns the server whose resource it is, if that tells changes,
// and the names by which rules know the resource.
func (m *Manager) subscribedServer(ctx context.Context, c *tool.Caller, uri string) (s *server, names []string, err error) {
	if o := m.resource(ctx, *c, uri); o != nil {
		names = o.Remote.Names
		s, err = m.server(o.Remote.Server)
		if err == nil && m.o.Rules != nil {
			err = m.o.Rules.Check(c.Identity, s.spec.Name, names...)
		}
	} else if c.Only != "" { // its server may tell that it does not tell changes
		s, err = m.server(c.Only)
	}
	if err != nil {
		return nil, nil, err
	}
	if s == nil || !m.sees(ctx, s, c) {
		return nil, nil, fault.New(fault.InvalidInput, fault.Host, mcp.Subscribe, "no hosted server offers the resource %s", fault.Quote([]byte(uri)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !listing.Subscribable(s.offersLocked(c).About()) {
		return nil, nil, fault.New(fault.UnknownMethod, fault.Host, mcp.Subscribe, "server %s does not tell changes of its resources", s.spec.Name)
	}
	return s, names, nil
}

// want notes what a session wants, and tells whether it did not before.
func (m *Manager) want(c *tool.Caller, key want, is *wanted) (w *wanted, fresh bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.wants[c.Session]
	if w := all[key]; w != nil {
		return w, false, nil
	}
	if len(all) >= maxWants {
		return nil, false, fault.New(fault.ResourceExhausted, fault.Host, mcp.Subscribe,
			"this session has %d subscriptions to resources, its limit: end one of them", maxWants).
			WithLimit("subscriptions", maxWants, len(all))
	}
	if all == nil {
		all = map[want]*wanted{}
		m.wants[c.Session] = all
	}
	all[key] = is
	return all[key], true, nil
}

// subscribe waits until a process of the server tells changes of the resource.
func (m *Manager) subscribe(ctx context.Context, s *server, c tool.Caller, uri string, again bool) (json.RawMessage, error) {
	for range maxAttempts {
		u, err := s.ready(ctx, c)
		if err != nil {
			return nil, err
		}
		failure, err := u.subscribed(ctx, uri, again)
		if !errors.Is(err, errDied) {
			return failure, err
		}
	}
	return nil, fault.New(fault.TransportFailure, fault.Server, mcp.Subscribe, "server %s ended %d times", s.spec.Name, maxAttempts)
}

// subscribed waits until the process tells changes of a resource.
func (u *upstream) subscribed(ctx context.Context, uri string, again bool) (failure json.RawMessage, err error) {
	for first := true; ; first = false {
		u.m.mu.Lock()
		s := u.wish.subs[uri]
		switch {
		case s == nil, s.state == asking, s.state == leaving:
		case s.state == on && (again || !s.inherited || u.era == modern): // to repeat that would end it
			u.m.mu.Unlock()
			return nil, nil
		case s.state == refused && !first:
			u.m.mu.Unlock()
			return s.failure, nil
		default: // it is asked once more
			u.dropSubLocked(uri)
		}
		u.attendLocked()
		tended := u.wish.tended
		u.m.mu.Unlock()
		select {
		case <-tended:
		case <-u.exited:
			return nil, errDied
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// dropSubLocked forgets a subscription with the process.
func (u *upstream) dropSubLocked(uri string) {
	if s := u.wish.subs[uri]; s != nil && s.write > 0 {
		u.forget = append(u.forget, s.write)
		u.nudge()
	}
	delete(u.wish.subs, uri)
}

// Unsubscribe ends a subscription of a session; all of a holder's if the URI is
// "". It does not wait for the server.
func (m *Manager) Unsubscribe(session, holder, uri string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.wants[session] {
		if key.holder == holder && (uri == "" || key.uri == uri) {
			delete(m.wants[session], key)
		}
	}
	m.attendLocked()
}

// wantedLocked are the URIs whose changes the process is to tell.
func (u *upstream) wantedLocked() map[string]struct{} {
	uris := map[string]struct{}{}
	if listing.Subscribable(u.result) {
		u.eachWantLocked(func(_ tool.Client, key want, _ *wanted) { uris[key.uri] = struct{}{} })
	}
	if u.era == modern && len(listsTold(u.result)) > 0 {
		uris[ofLists] = struct{}{}
	}
	return uris
}

// eachWantLocked calls f for all subscriptions of sessions that the process
// serves.
func (u *upstream) eachWantLocked(f func(c tool.Client, key want, w *wanted)) {
	for session, all := range u.m.wants {
		c := u.m.clients[session]
		if c == nil || len(all) == 0 || !u.inst.usedByLocked(session, c) {
			continue
		}
		identity := c.Caller().Identity
		for key, w := range all {
			if w.server == u.inst.key.server && (u.m.o.Rules == nil || u.m.o.Rules.May(identity, w.server, w.names...)) {
				f(c, key, w)
			}
		}
	}
}

// subDueLocked is the next subscription that a process is to be told of, or
// told to end.
func (u *upstream) subDueLocked() (uri string, end, due bool) {
	if u.state != serving {
		return "", false, false
	}
	uris := u.wantedLocked()
	for uri := range uris {
		if u.wish.subs[uri] == nil {
			return uri, false, true
		}
	}
	if u.unsettledLocked() {
		return "", false, false
	}
	for uri, s := range u.wish.subs {
		if _, ok := uris[uri]; ok {
			continue
		}
		switch {
		case s.state == refused:
			delete(u.wish.subs, uri)
		case s.state == on, s.state == asking && u.era == modern:
			return uri, true, true
		}
	}
	return "", false, false
}

// askFor subscribes to a resource of the process, or to the changes of its
// lists.
func (u *upstream) askFor(uri string) error {
	s := &sub{}
	rec, method := calls.Record{Kind: calls.KindSubscribe, Name: uri}, mcp.Subscribe
	take := func(write int64, msg jsonrpc.Message) { u.subscribedLocked(uri, s, msg) }
	params := mcp.OfResource(uri)
	if u.era == modern {
		rec.Kind, method = calls.KindListen, mcp.Listen
		take = func(_ int64, msg jsonrpc.Message) { u.fellSilentLocked(uri, s, msg) }
		var err error
		if params, err = u.listenParams(uri); err != nil {
			return err
		}
	}
	err := u.inquire(u.m.life, rec, method, params, func(write int64) {
		s.write = write
		u.wish.subs[uri] = s
	}, take)
	if err != nil {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		delete(u.wish.subs, uri)
	}
	return err
}

// subscribedLocked takes a legacy process's answer to a subscription.
func (u *upstream) subscribedLocked(uri string, s *sub, msg jsonrpc.Message) {
	if msg.Error != nil {
		u.refusedLocked(s, msg.Error)
		return
	}
	s.state = on
	u.heardLocked(uri)
	u.attendedLocked()
	u.attendLocked() // nobody may want it any more
}

// refusedLocked notes that a process does not tell changes of a resource.
func (u *upstream) refusedLocked(s *sub, failure json.RawMessage) {
	u.forget = append(u.forget, s.write)
	s.state, s.write, s.failure = refused, 0, failure
	u.log.Debug("server refuses a subscription", "err", fault.Quote(failure))
	u.attendedLocked()
	u.attendLocked()
}

// leave ends the subscription to a resource of the process.
func (u *upstream) leave(uri string) error {
	u.m.mu.Lock()
	s := u.wish.subs[uri]
	if s == nil || u.era == modern {
		u.hangUpLocked(uri, s)
		u.m.mu.Unlock()
		return nil
	}
	u.m.mu.Unlock()
	err := u.inquire(u.m.life, calls.Record{Kind: calls.KindUnsubscribe, Name: uri}, mcp.Unsubscribe, mcp.OfResource(uri), func(int64) {
		s.state = leaving
	}, func(write int64, _ jsonrpc.Message) {
		delete(u.wish.subs, uri)
		u.forget = append(u.forget, s.write, write)
		u.attendedLocked()
		u.attendLocked() // somebody may want it again
	})
	if err != nil {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		s.state = on
	}
	return err
}

// heardLocked notes that the process tells changes of a resource from now on.
// Who had subscribed to it before is told that there may have been one.
func (u *upstream) heardLocked(uri string) {
	params := mcp.OfResource(uri)
	u.eachWantLocked(func(c tool.Client, key want, w *wanted) {
		if key.uri != uri {
			return
		}
		if w.held {
			c.Updated(key.holder, params)
		}
		w.held = true
	})
}

// updated tells those who have subscribed to it that a resource has changed, or
// to one that it is part of.
func (u *upstream) updated(msg jsonrpc.Message) {
	uri, ok := mcp.String(jsonrpc.Field(msg.Params, "uri"))
	if !ok {
		return
	}
	params, err := untagged(msg.Params)
	if err != nil {
		return
	}
	type place struct {
		c      tool.Client
		holder string
	}
	told := map[place]struct{}{}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	u.eachWantLocked(func(c tool.Client, key want, _ *wanted) {
		at := place{c, key.holder}
		if _, ok := told[at]; ok || !holds(key.uri, uri) {
			return
		}
		told[at] = struct{}{}
		c.Updated(key.holder, params)
	})
}

// holds tells whether a resource is that one, or part of it.
func holds(of, uri string) bool {
	rest, ok := strings.CutPrefix(uri, of)
	return ok && (rest == "" || strings.HasSuffix(of, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// untagged is a notification's params without the id of the subscription of
// ours that it was told for.
func untagged(params json.RawMessage) (json.RawMessage, error) {
	var bad error
	out, err := jsonrpc.Rewrite(params, func(key string, value []byte) []byte {
		if key != "_meta" {
			return value
		}
		meta, err := jsonrpc.Rewrite(value, func(key string, value []byte) []byte {
			if key == mcp.MetaSubscription {
				return nil
			}
			return value
		})
		bad = err
		return meta
	})
	return out, errors.Join(err, bad)
}

// listsTold are the members of a request to be told changes, for the lists whose
// changes a server tells.
func listsTold(about json.RawMessage) []string {
	var members []string
	capabilities := jsonrpc.Field(about, "capabilities")
	for _, of := range []string{"tools", "prompts", "resources"} {
		if string(jsonrpc.Field(jsonrpc.Field(capabilities, of), "listChanged")) == "true" {
			members = append(members, fmt.Sprintf("%q:true", of+"ListChanged"))
		}
	}
	return members
}

// listenParams asks a modern process to tell changes of a resource, or of its
// lists.
func (u *upstream) listenParams(uri string) (json.RawMessage, error) {
	u.m.mu.Lock()
	members := strings.Join(listsTold(u.result), ",")
	u.m.mu.Unlock()
	if uri != ofLists {
		list, err := json.Marshal([]string{uri})
		if err != nil { // strings encode
			return nil, err
		}
		members = `"resourceSubscriptions":` + string(list)
	}
	return fmt.Appendf(nil, `{"_meta":{%s},"notifications":{%s}}`, u.meta(), members), nil
}

// acknowledged notes that a modern process tells changes from now on.
func (u *upstream) acknowledged(msg jsonrpc.Message) {
	write := number(jsonrpc.Field(jsonrpc.Field(msg.Params, "_meta"), mcp.MetaSubscription))
	var granted []string
	_ = json.Unmarshal(jsonrpc.Field(jsonrpc.Field(msg.Params, "notifications"), "resourceSubscriptions"), &granted) // none, if it is no list
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	for uri, s := range u.wish.subs {
		if s.write != write || s.state != asking {
			continue
		}
		if uri != ofLists && !slices.Contains(granted, uri) {
			u.tellEndLocked(write)
			u.refusedLocked(s, json.RawMessage(`{"code":-32602,"message":"the server does not tell changes of this resource"}`))
			return
		}
		s.state = on
		u.heardLocked(uri)
		u.attendedLocked()
		u.attendLocked()
		return
	}
}

// hangUpLocked tells a modern process to stop telling changes of a resource.
func (u *upstream) hangUpLocked(uri string, s *sub) {
	if s == nil {
		return
	}
	u.tellEndLocked(s.write)
	u.forget = append(u.forget, s.write)
	u.restLocked(uri, s)
}

// tellEndLocked cancels a request to tell changes.
func (u *upstream) tellEndLocked(write int64) {
	delete(u.internal, write)
	id := jsonrpc.IntID(write)
	line := jsonrpc.AppendRequest(nil, nil, mcp.CancelledNote, fmt.Appendf(nil, `{"requestId":%s}`, id))
	u.errandLocked(errand{
		rec:     calls.Record{Kind: calls.KindCancel, Name: mcp.Listen, ID: json.RawMessage(id)},
		compose: func(int64) []byte { return line },
	})
}

// fellSilentLocked takes the end of a request to be told changes: a modern
// process refuses it, or has ended it.
func (u *upstream) fellSilentLocked(uri string, s *sub, msg jsonrpc.Message) {
	switch {
	case msg.Error != nil:
		u.refusedLocked(s, msg.Error)
	case s.state == asking:
		u.refusedLocked(s, json.RawMessage(`{"code":-32603,"message":"the server has ended the subscription"}`))
	default:
		u.forget = append(u.forget, s.write)
		u.restLocked(uri, s)
	}
}

// restLocked forgets a subscription after a pause.
func (u *upstream) restLocked(uri string, s *sub) {
	s.state, s.write = leaving, 0
	if u.m.closed {
		return
	}
	u.m.wg.Go(func() {
		_ = pause(u.m.life, subPause, u.exited) // the daemon stops, if it fails
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		u.m.containLocked(u, "ended a subscription", func() {
			if u.wish.subs[uri] == s {
				delete(u.wish.subs, uri)
			}
			u.attendedLocked()
			u.attendLocked()
		})
	})
}
