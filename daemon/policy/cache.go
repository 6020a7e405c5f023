package policy

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Limits of what the cache keeps.
const (
	maxEntries = 64              // of one tool
	maxTools   = 1024            // of which something is kept or known
	maxTTL     = 24 * time.Hour  // whatever a server says
	overhead   = 512             // bytes of memory that an entry takes besides its answer
	public     = "public"        // the cacheScope of answers for all identities
	maxCached  = int64(64 << 20) // bytes of all entries
)

// Cache keeps answers of hosted tools for as long as their servers allow. Use it only
// for calls of convergent tools: a call that the cache answers is not made, so its
// effects must not matter. It is safe for concurrent use.
//
// The cache keeps an answer if its result has a ttlMs above 0, is no error and asks for
// no input. It keeps the answer for the identity that asked. If the result's cacheScope
// is "public", it keeps the answer for all identities that share the server's process.
// Arguments are equal if their values are, but numbers and strings must be spelled
// alike.
//
// If there are too many answers, those go first that were used least recently: of a tool
// with too many answers its own, else those of the tool that was used least recently.
type Cache struct {
	limit int64 // bytes

	mu      sync.Mutex            // guards the fields that follow
	entries map[key]*list.Element // each in the list of its tool
	tools   map[toolKey]*toolState
	recent  *list.List      // of *toolState, the last used in front
	flights map[key]*flight // that equal calls can wait for
	forgets map[string]int  // how often the answers of each server were forgotten
	bytes   int64           // of all entries
	hits    int64
	misses  int64
}

// toolKey identifies a tool.
type toolKey struct{ server, tool string }

// key identifies an answer. The identity is "" both for public answers and for clients
// without a name; private is the difference.
type key struct {
	toolKey

	process   string
	private   bool
	identity  string
	arguments [sha256.Size]byte
}

// entry is an answer that the cache keeps.
type entry struct {
	key     key
	result  json.RawMessage
	expires time.Time
}

// toolState is what the cache knows of a tool.
type toolState struct {
	key    toolKey
	recent *list.Element // in the list of all tools
	used   list.List     // of *entry, the last used in front
	never  bool          // its last good answer could not be kept, so equal calls do not wait for each other
}

// flight is a call that is under way, and for which equal calls may wait. The caller that
// makes it is its leader.
type flight struct {
	done    chan struct{} // closed when the leader's call is over
	forgets int           // of the server, when the call began

	// The outcome, set before done is closed.
	result json.RawMessage
	err    error
	what   ending
}

// ending is what the end of the leader's call means for the callers that wait for it.
type ending int

const (
	gone    ending = iota // the leader was cancelled: one of the callers becomes the leader
	failed                // they get its error
	kept                  // they get its result
	notKept               // each makes its own call
)

// NewCache returns an empty cache of at most 64 MiB, with at most 64 entries for each
// tool.
func NewCache() *Cache {
	return &Cache{
		limit: maxCached, entries: map[key]*list.Element{}, tools: map[toolKey]*toolState{}, recent: list.New(),
		flights: map[key]*flight{}, forgets: map[string]int{},
	}
}

// Fetch makes a call and returns its result.
type Fetch = func(context.Context) (json.RawMessage, error)

// Query describes a call of a convergent tool.
type Query struct {
	Identity     string
	Server, Tool string
	Process      string          // of the server, since others may answer differently; "" if there is one
	Arguments    json.RawMessage // nil if absent
}

// Source says where an answer came from. Telemetry counts it.
type Source string

// The sources.
const (
	Hit  Source = "hit"  // kept, or shared with an equal call that was under way
	Miss Source = "miss" // the server was asked
)

// Do returns a result that is kept, or the result of an equal call of the same identity
// that is under way. Otherwise it calls fetch, in the caller's goroutine and with the
// caller's ctx. Callers share the result and must not change it. The error is that of
// fetch, or the cause of ctx.
//
// A caller that waits for another call gets its error, or its result if that may be
// kept. If the other call is cancelled, one of the waiting callers makes the call.
//
// Results that may not be kept are not shared either: between two equal calls another
// call may have changed what they read. If the last result of a tool was one of these,
// equal calls of that tool do not wait for each other at all.
func (c *Cache) Do(ctx context.Context, q Query, fetch Fetch) (json.RawMessage, Source, error) {
	sum, err := digest(q.Arguments)
	if err != nil {
		return c.fetchAlone(ctx, fetch)
	}
	k := key{
		toolKey: toolKey{q.Server, q.Tool}, process: q.Process, private: true, identity: q.Identity,
		arguments: sum,
	}
	for {
		result, f, leads := c.find(k)
		switch {
		case result != nil:
			return result, Hit, nil
		case leads:
			return c.lead(ctx, k, f, fetch)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, Miss, context.Cause(ctx)
		}
		switch f.what {
		case kept:
			c.count(&c.hits)
			return f.result, Hit, nil
		case failed:
			c.count(&c.misses)
			return nil, Miss, f.err
		case notKept:
			return c.fetchAlone(ctx, fetch)
		case gone:
		}
	}
}

// fetchAlone makes a call for which no other caller waits.
func (c *Cache) fetchAlone(ctx context.Context, fetch Fetch) (json.RawMessage, Source, error) {
	c.count(&c.misses)
	result, err := fetch(ctx)
	return result, Miss, err
}

// count adds one to a counter of c.
func (c *Cache) count(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// find returns a kept answer, or the flight to wait for, or a new flight that the
// caller must lead. It drops an answer that has expired.
func (c *Cache) find(k key) (result json.RawMessage, f *flight, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := k
	shared.private, shared.identity = false, ""
	for _, k := range []key{shared, k} {
		element := c.entries[k]
		if element == nil {
			continue
		}
		if e := element.Value.(*entry); time.Now().Before(e.expires) {
			c.hits++
			c.tool(k.toolKey).used.MoveToFront(element)
			return e.result, nil, false
		}
		c.dropAnswer(element)
	}
	if f := c.flights[k]; f != nil {
		return nil, f, false
	}
	f = &flight{done: make(chan struct{}), forgets: c.forgets[k.server]}
	if t := c.tools[k.toolKey]; t == nil || !t.never {
		c.flights[k] = f
	}
	return nil, f, true
}

// lead makes the call of a flight, and then wakes the callers that wait for it. It
// wakes them even if fetch panics.
func (c *Cache) lead(ctx context.Context, k key, f *flight, fetch Fetch) (json.RawMessage, Source, error) {
	c.count(&c.misses)
	f.what = gone // in case fetch panics
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.flights[k] == f {
			delete(c.flights, k)
		}
		close(f.done)
	}()
	f.result, f.err = fetch(ctx)
	switch {
	case f.err == nil:
		f.what = c.store(k, f)
	case ctx.Err() == nil && !isExhausted(f.err):
		f.what = failed
	}
	return f.result, Miss, f.err
}

// isExhausted reports whether a limit has refused the call. Callers do not share that
// error: it may be a limit of the leader's session alone.
func isExhausted(err error) bool {
	r, ok := errors.AsType[*fault.Record](err)
	return ok && r.Fault.Code == fault.ResourceExhausted
}

// store keeps the result of a flight if that is allowed, and then drops the least
// recently used entries beyond the bounds. It returns what the result means for the
// callers that wait. A result that is too large, or that was forgotten during the call,
// is shared with those callers but not kept.
func (c *Cache) store(k key, f *flight) ending {
	ttl, scope, whole := hint(f.result)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !whole {
		return notKept
	}
	t := c.tool(k.toolKey)
	t.never = ttl == 0
	if t.never {
		return notKept
	}
	size := int64(len(f.result)) + overhead
	if f.forgets != c.forgets[k.server] || size > c.limit {
		return kept // for those that wait only
	}
	if scope == public {
		k.private, k.identity = false, ""
	}
	if old := c.entries[k]; old != nil {
		c.dropAnswer(old)
	}
	// A copy, since the result may be a small part of what was read.
	c.entries[k] = t.used.PushFront(&entry{key: k, result: bytes.Clone(f.result), expires: time.Now().Add(ttl)})
	c.bytes += size
	if t.used.Len() > maxEntries {
		c.dropAnswer(t.used.Back())
	}
	for c.bytes > c.limit {
		if oldest := c.recent.Back().Value.(*toolState); oldest.used.Len() > 1 {
			c.dropAnswer(oldest.used.Back())
		} else {
			c.forgetTool(oldest)
		}
	}
	return kept
}

// tool returns the state of a tool, which counts as used now. If there are too many
// tools, it forgets the one that was used least recently. The caller must hold mu.
func (c *Cache) tool(k toolKey) *toolState {
	if t := c.tools[k]; t != nil {
		c.recent.MoveToFront(t.recent)
		return t
	}
	if len(c.tools) >= maxTools {
		c.forgetTool(c.recent.Back().Value.(*toolState))
	}
	t := &toolState{key: k}
	t.recent = c.recent.PushFront(t)
	c.tools[k] = t
	return t
}

// forgetTool drops a tool and its entries. The caller must hold mu.
func (c *Cache) forgetTool(t *toolState) {
	for t.used.Len() > 0 {
		c.dropAnswer(t.used.Back())
	}
	c.recent.Remove(t.recent)
	delete(c.tools, t.key)
}

// dropAnswer removes an answer. The caller must hold mu.
func (c *Cache) dropAnswer(element *list.Element) {
	e := element.Value.(*entry)
	c.tools[e.key.toolKey].used.Remove(element)
	delete(c.entries, e.key)
	c.bytes -= int64(len(e.result)) + overhead
}

// Forget drops all answers of a server. Call it after a reload of the server, or when
// its list of tools has changed. Answers of calls that are under way are not kept
// either, and later callers do not wait for those calls.
func (c *Cache) Forget(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, t := range c.tools {
		if k.server == server {
			c.forgetTool(t)
		}
	}
	c.forgets[server]++
	maps.DeleteFunc(c.flights, func(k key, _ *flight) bool { return k.server == server })
}

// Stats returns the figures of the whole cache.
func (c *Cache) Stats() control.Cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	return control.Cache{Hits: c.hits, Misses: c.misses, Entries: len(c.entries), Bytes: c.bytes}
}

// Entries returns how many answers of a server are kept. Expired answers that no call
// has asked for since count, too.
func (c *Cache) Entries(server string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for k, t := range c.tools {
		if k.server == server {
			n += t.used.Len()
		}
	}
	return n
}

// hint returns how long a result may be kept, which is 0 if not at all, and its
// cacheScope. whole is false for errors, for results that ask for more input, for what is no JSON,
// and for what other programs may read in another way.
func hint(result json.RawMessage) (ttl time.Duration, scope string, whole bool) {
	whole = json.Valid(result)
	if !whole {
		return 0, "", false
	}
	err := mcp.KeptObject.Fields(result, func(key string, value []byte) error {
		switch key {
		case "ttlMs":
			ms, err := strconv.ParseFloat(string(value), 64)
			if err == nil && ms > 0 {
				ttl = time.Duration(min(ms, float64(maxTTL.Milliseconds())) * float64(time.Millisecond))
			}
		case "cacheScope":
			_ = json.Unmarshal(value, &scope) // another type is no scope
		case "isError":
			whole = whole && string(value) == "false"
		case "resultType":
			whole = whole && string(value) == `"complete"`
		}
		return nil
	})
	return ttl, scope, whole && err == nil
}
