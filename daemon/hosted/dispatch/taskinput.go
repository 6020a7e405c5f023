package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"holdline/daemon/hosted/upstream"
	"holdline/protocol/jsonrpc"
)

// A server may ask the client of a detached call something. The task requires input then, and
// the client answers by tasks/update. The store has the answers on disk before the client
// knows that they were taken, so they are asked for once, in any number of daemons.

// satisfyByTask asks the client of a task for the input that the result of a modern server
// requires, and returns the request of the next round. A key is used once in a task: the
// number of the round stands before it.
func (r *request) satisfyByTask(ctx context.Context, round int, result json.RawMessage) (
	next *request, lines []int64, refusal json.RawMessage, err error,
) {
	requests := map[string]json.RawMessage{}
	prefix := fmt.Sprint(round, "/")
	required := jsonrpc.Field(result, "inputRequests")
	err = jsonrpc.Fields(required, func(key string, request []byte) error {
		requests[prefix+key] = slices.Clone(request)
		return nil
	})
	if err != nil && len(required) > 0 { // without any it only wants to be asked again
		return nil, nil, nil, AsFault(err, r.o)
	}
	given, err := r.Tasks.Ask(ctx, r.task.id, requests)
	if err != nil {
		return nil, nil, nil, r.unanswered(ctx, r.call0(round), err)
	}
	var answers []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name := string(jsonrpc.AppendString(nil, key[len(prefix):]))
		answers = append(answers, name+":"+string(given[key]))
	}
	next, err = r.again(result, answers)
	return next, nil, nil, err
}

// call0 returns the call of a round of the request, or nil.
func (r *request) call0(round int) *upstream.Call {
	r.hub.Mu.Lock()
	defer r.hub.Mu.Unlock()
	return r.callLocked(round)
}

// unanswered returns the error of a call whose client has not answered what the server asks.
func (r *request) unanswered(ctx context.Context, c *upstream.Call, err error) error {
	if isOverdue(ctx) {
		return r.timedOut(c, "server %s has asked the client something, which has not answered within %v",
			r.s.Entry().Name, r.s.Entry().MaxTimeout)
	}
	return AsFault(err, r.o)
}

// askByTask asks the client of a task what a legacy server asks during the call, if it asks
// anything, and passes the answers on. It reports whether that may have changed how the call
// stands.
func (r *request) askByTask(ctx context.Context, c *upstream.Call) (asked bool, err error) {
	requests, left, known := r.hub.TakeAsks(c)
	if requests == nil {
		if known {
			r.Tasks.Unask(r.task.id)
		}
		return false, nil
	}
	asking, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() { // ends with this function
		defer close(watched)
		select {
		case <-left:
			stop(errNoMore)
		case <-c.Asked:
			stop(errNoMore)
		case <-asking.Done():
		}
	}()
	answers, err := r.Tasks.Ask(asking, r.task.id, requests)
	stop(nil)
	<-watched
	r.hub.Answered(c, answers)
	if err != nil && !errors.Is(err, errNoMore) {
		return true, r.unanswered(ctx, c, err)
	}
	return true, nil
}

// errNoMore says that the server asks something else by now, or has ended the call.
var errNoMore = errors.New("the server asks something else")
