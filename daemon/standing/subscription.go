package standing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/calls"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// ofLists stands in place of a URI for the changes of a modern server's lists.
const ofLists = ""

// subscriptionState says where a subscription with the process stands:
//
//	asking  → agreed   it agrees, or acknowledges the listen request
//	        → refused  it answers with an error, or ends the listen request
//	agreed  → ending   no session wants it any more, or the process has ended it
//	asking  → ending   so, of the modern era
//	ending  → agreed   the request to end it could not be written
//
// A subscription that is ending is forgotten once that is confirmed (legacy) or
// after [restPause] (modern). One that is refused is forgotten when no session
// wants it, or when a session subscribes once more.
type subscriptionState int8

// The states; see [subscriptionState].
const (
	asking subscriptionState = iota
	agreed
	ending
	refused
)

// subscription is a subscription with the process, for all sessions that want it.
type subscription struct {
	state     subscriptionState
	write     int64           // of the request; 0 once its record is not needed
	inherited bool            // an earlier daemon made the request: this one has seen no answer
	failure   json.RawMessage // of one that is refused: the error of JSON-RPC
	restUntil time.Time       // of one that is ending: when it is forgotten; zero if an answer decides that
}

// dropSubscription forgets a subscription, if there is one. It returns the write whose
// record is not needed any more, or 0. The caller must hold r.mu.
func (r *Requests) dropSubscription(uri string) (write int64) {
	if s := r.subs[uri]; s != nil {
		write = s.write
	}
	delete(r.subs, uri)
	return write
}

// subscriptionDue returns the next subscription to begin or to end. The caller
// must hold r.mu.
func (r *Requests) subscriptionDue(wanted map[string]struct{}, provisional bool) (uri string, end, due bool) {
	for uri, s := range r.subs {
		if s.state == ending && !s.restUntil.IsZero() && !time.Now().Before(s.restUntil) {
			delete(r.subs, uri)
			r.notify()
		}
	}
	for uri := range wanted {
		if r.subs[uri] == nil {
			return uri, false, true
		}
	}
	if provisional {
		return "", false, false
	}
	for uri, s := range r.subs {
		if _, ok := wanted[uri]; ok {
			continue
		}
		switch {
		case s.state == refused:
			delete(r.subs, uri)
		case s.state == agreed, s.state == asking && r.modern:
			return uri, true, true
		}
	}
	return "", false, false
}

// untilRested returns how long it takes until the next subscription that is ending is
// forgotten, or [never].
func (r *Requests) untilRested() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := never
	for _, s := range r.subs {
		if s.state == ending && !s.restUntil.IsZero() {
			next = min(next, max(time.Until(s.restUntil), 0))
		}
	}
	return next
}

// subscribe asks the process to notify of changes to a resource, or to its lists. It returns
// once the request is written; the answer decides the state of the subscription.
func (r *Requests) subscribe(ctx context.Context, uri string) error {
	s := &subscription{}
	rec, method, params := calls.Record{Kind: calls.KindSubscribe, Name: uri}, mcp.Subscribe, mcp.OfResource(uri)
	take := func(msg jsonrpc.Message) { r.subscribed(uri, s, msg) }
	r.mu.Lock()
	modern := r.modern
	r.mu.Unlock()
	if modern {
		rec.Kind, method = calls.KindListen, mcp.Listen
		take = func(msg jsonrpc.Message) { r.listenEnded(s, msg) }
		var err error
		if params, err = r.listenParams(uri); err != nil {
			return err
		}
	}
	err := r.p.Inquire(ctx, rec, method, params, func(write int64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.write = write
		r.subs[uri] = s
	}, take)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subs, uri)
	}
	return err
}

// subscribed takes the answer of a legacy process to resources/subscribe.
func (r *Requests) subscribed(uri string, s *subscription, msg jsonrpc.Message) {
	r.mu.Lock()
	if msg.Error != nil {
		write := r.refuse(s, msg.Error)
		r.mu.Unlock()
		r.forget(write)
		return
	}
	s.state = agreed
	r.notify()
	r.mu.Unlock()
	r.p.Agreed(uri)
	r.Wake() // it may be unwanted by now
}

// refuse records that the process does not notify of a resource. It returns the
// write whose record is not needed any more. The caller must hold r.mu.
func (r *Requests) refuse(s *subscription, failure json.RawMessage) (write int64) {
	write, s.state, s.write, s.failure = s.write, refused, 0, failure
	r.log.Debug("server refuses a subscription", "err", fault.Quote(failure))
	r.notify()
	r.Wake()
	return write
}

// unsubscribe ends a subscription with the process: by a request to a legacy process, by a
// cancellation to a modern one.
func (r *Requests) unsubscribe(ctx context.Context, uri string) error {
	r.mu.Lock()
	s, modern := r.subs[uri], r.modern
	if s == nil {
		r.mu.Unlock()
		return nil
	}
	if modern {
		write := r.rest(s)
		r.mu.Unlock()
		r.p.CancelListen(write)
		r.forget(write)
		return nil
	}
	r.mu.Unlock()
	var unsubscribe int64
	err := r.p.Inquire(ctx, calls.Record{Kind: calls.KindUnsubscribe, Name: uri}, mcp.Unsubscribe, mcp.OfResource(uri),
		func(write int64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			unsubscribe, s.state = write, ending
		}, func(jsonrpc.Message) {
			r.mu.Lock()
			if r.subs[uri] == s { // else another one was made meanwhile
				delete(r.subs, uri)
			}
			subscribe := s.write
			r.notify()
			r.mu.Unlock()
			r.forget(subscribe, unsubscribe)
			r.Wake() // it may be wanted again
		})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.state = agreed
	}
	return err
}

// rest ends a modern subscription, and keeps its place for [restPause]. It returns
// the write whose record is not needed any more. The caller must hold r.mu.
func (r *Requests) rest(s *subscription) (write int64) {
	write, s.state, s.write, s.restUntil = s.write, ending, 0, time.Now().Add(restPause)
	r.Wake()
	return write
}

// Acknowledged takes the notification by which a modern process says that it
// notifies of changes from now on.
func (r *Requests) Acknowledged(params json.RawMessage, write int64) {
	var granted []string
	// A value that is no list grants nothing.
	_ = json.Unmarshal(jsonrpc.Field(jsonrpc.Field(params, "notifications"), "resourceSubscriptions"), &granted)
	r.mu.Lock()
	for uri, s := range r.subs {
		if s.write != write || s.state != asking {
			continue
		}
		if uri != ofLists && !slices.Contains(granted, uri) {
			r.refuse(s, json.RawMessage(
				`{"code":-32602,"message":"the server does not notify of changes to this resource"}`))
			r.mu.Unlock()
			r.p.CancelListen(write)
			r.forget(write)
			return
		}
		s.state = agreed
		r.notify()
		r.mu.Unlock()
		r.p.Agreed(uri)
		r.Wake()
		return
	}
	r.mu.Unlock()
}

// listenEnded takes the answer to a listen request: a modern process refuses it,
// or has ended it.
func (r *Requests) listenEnded(s *subscription, msg jsonrpc.Message) {
	r.mu.Lock()
	var write int64
	switch {
	case msg.Error != nil:
		write = r.refuse(s, msg.Error)
	case s.state == asking:
		write = r.refuse(s, json.RawMessage(`{"code":-32603,"message":"the server has ended the subscription"}`))
	default:
		write = r.rest(s)
	}
	r.mu.Unlock()
	r.forget(write)
}

// Await waits until the process notifies of changes to a resource that sessions
// want. A failure is the process's refusal, an error of JSON-RPC. again says that
// the session had subscribed with an earlier daemon, so that an agreement that
// this daemon has not seen is enough; otherwise the process is asked once more.
func (r *Requests) Await(ctx context.Context, uri string, again bool) (failure json.RawMessage, err error) {
	for first := true; ; first = false {
		r.mu.Lock()
		s, needless := r.subs[uri], int64(0)
		switch {
		case s == nil, s.state == asking, s.state == ending:
		case s.state == agreed && (again || !s.inherited || r.modern): // to repeat that would end it
			r.mu.Unlock()
			return nil, nil
		case s.state == refused && !first:
			r.mu.Unlock()
			return s.failure, nil
		default:
			needless = r.dropSubscription(uri)
		}
		changed := r.changed
		r.mu.Unlock()
		r.forget(needless)
		r.Wake()
		select {
		case <-changed:
		case <-r.p.Done():
			return nil, ErrExited
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// NotifiedLists returns the members of a listen request for those lists of whose changes a
// server notifies, by the result of its handshake.
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

// listenParams returns the params of a listen request for changes to a resource, or to the
// lists.
func (r *Requests) listenParams(uri string) (json.RawMessage, error) {
	r.mu.Lock()
	members := strings.Join(NotifiedLists(r.about), ",")
	r.mu.Unlock()
	if uri != ofLists {
		list, err := json.Marshal([]string{uri})
		if err != nil { // strings encode
			return nil, err
		}
		members = `"resourceSubscriptions":` + string(list)
	}
	return fmt.Appendf(nil, `{"_meta":{%s},"notifications":{%s}}`, r.p.Meta(), members), nil
}
