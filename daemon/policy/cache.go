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

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Limits of what the cache keeps.
const (
	maxEntries = 64              // of one tool
	maxTools   = 1024            // of which something is kept or known
	maxTTL     = 24 * time.Hour  // whatever a server says
	overhead   = 512             // bytes of memory that an entry takes besides its answer
	public     = "public"        // the cacheScope that everybody may share
	maxCached  = int64(64 << 20) // bytes of all entries
)

// Cache keeps answers of hosted tools for as long as their servers said. Only
// calls of convergent tools may be brought here: what a call does must not be
// lost when it is not made. It is safe for concurrent use.
//
// An answer is kept if its result carries a ttlMs above 0, is no error and
// asks for no input; for the identity that asked, or for everybody who shares
// the server's process if its cacheScope is "public". Arguments are compared by value, but numbers and
// strings by spelling.
type Cache struct {
	limit int64

	mu      sync.Mutex
	entries map[key]*entry
	tools   map[toolKey]*toolState
	flights map[key]*flight    // that equal calls can wait for
	open    map[*flight]string // all of them, with their servers
	used    *list.List         // of *entry, the last used in front
	bytes   int64
	hits    int64
	misses  int64
}

type toolKey struct{ server, tool string }

// key is the place of an answer. Identity is "" for public ones and for those
// of clients without a name alike, so that it goes with private.
type key struct {
	toolKey

	process   string
	private   bool
	identity  string
	arguments [sha256.Size]byte
}

type entry struct {
	key     key
	result  json.RawMessage
	expires time.Time
	all, of *list.Element // in used, and in the tool's own list
}

// toolState is what the cache knows of a tool.
type toolState struct {
	used  *list.List // of *entry, the last used in front
	never bool       // its last good answer was not to be kept: nobody waits for another's
}

// flight is a call that is under way and that equal ones wait for.
type flight struct {
	done  chan struct{} // closed when the leader is back
	stale bool          // the server's cache was emptied meanwhile; guarded by the cache's mu

	// What the leader found; set before done is closed.
	result json.RawMessage
	err    error
	what   ending
}

// ending is what followers make of a leader's return.
type ending int

const (
	gone    ending = iota // the leader left without an outcome: somebody else leads
	failed                // the call failed: for them, too
	kept                  // the result is for them, too
	notKept               // they have to call for themselves
)

// NewCache is an empty cache of 64 MiB in all and 64 entries a tool.
func NewCache() *Cache {
	return &Cache{
		limit: maxCached, used: list.New(),
		entries: map[key]*entry{}, tools: map[toolKey]*toolState{},
		flights: map[key]*flight{}, open: map[*flight]string{},
	}
}

// Query is a call of a convergent tool.
type Query struct {
	Identity     string
	Server, Tool string
	Process      string          // which of the server's is asked: others may say otherwise; "" if it has one
	Arguments    json.RawMessage // nil if absent
}

// Source tells where an answer came from. It is the word in telemetry.
type Source string

// The sources.
const (
	Hit  Source = "hit"  // kept, or shared with an equal call that was under way
	Miss Source = "miss" // the server was asked
)

// Do answers q with a result that is kept, with that of an equal call of the
// same identity which is under way, or else by fetch, which is run in the
// caller's goroutine with its ctx. A result is raw bytes, shared with others:
// it must not be changed.
//
// A call that waits for another one gets its result if that may be kept, and
// its error if it has one. Is the other's ctx done, one of those that wait
// makes the call in its stead. Results that may not be kept are not shared,
// and calls of a tool that gave one last do not wait for each other: between
// two equal calls of a tool that only sets a value, somebody may have set
// another. The error is fetch's own, or the cause of ctx.
func (c *Cache) Do(ctx context.Context, q Query, fetch func(context.Context) (json.RawMessage, error)) (json.RawMessage, Source, error) {
	sum, err := digest(q.Arguments)
	if err != nil {
		return c.ask(ctx, fetch)
	}
	k := key{toolKey: toolKey{q.Server, q.Tool}, process: q.Process, private: true, identity: q.Identity, arguments: sum}
	for {
		result, f, leads := c.look(k)
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
			return c.ask(ctx, fetch)
		case gone:
		}
	}
}

// ask makes the call, and nobody knows of it.
func (c *Cache) ask(ctx context.Context, fetch func(context.Context) (json.RawMessage, error)) (json.RawMessage, Source, error) {
	c.count(&c.misses)
	result, err := fetch(ctx)
	return result, Miss, err
}

func (c *Cache) count(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// look finds an answer, or the flight to wait for, or makes one for the caller
// to lead.
func (c *Cache) look(k key) (result json.RawMessage, f *flight, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := k
	shared.private, shared.identity = false, ""
	for _, k := range []key{shared, k} {
		if e := c.entries[k]; e != nil && time.Now().Before(e.expires) {
			c.hits++
			c.used.MoveToFront(e.all)
			c.tools[k.toolKey].used.MoveToFront(e.of)
			return e.result, nil, false
		} else if e != nil {
			c.drop(e)
		}
	}
	if f := c.flights[k]; f != nil {
		return nil, f, false
	}
	f = &flight{done: make(chan struct{})}
	c.open[f] = k.server
	if t := c.tools[k.toolKey]; t == nil || !t.never {
		c.flights[k] = f
	}
	return nil, f, true
}

// lead makes the call that others may wait for.
func (c *Cache) lead(ctx context.Context, k key, f *flight, fetch func(context.Context) (json.RawMessage, error)) (json.RawMessage, Source, error) {
	c.count(&c.misses)
	f.what = gone // for those who wait, should fetch panic
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, f)
		if c.flights[k] == f {
			delete(c.flights, k)
		}
		close(f.done)
	}()
	f.result, f.err = fetch(ctx)
	switch {
	case f.err == nil:
		f.what = c.store(k, f)
	case ctx.Err() == nil && !crowded(f.err):
		f.what = failed
	}
	return f.result, Miss, f.err
}

// crowded tells whether a limit stood in the way that may be of the leader's
// session alone.
func crowded(err error) bool {
	r, ok := errors.AsType[*fault.Record](err)
	return ok && r.Fault.Code == fault.ResourceExhausted
}

// store keeps the result of a flight, if it may be kept.
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
	if f.stale || size > c.limit {
		return kept // for those who wait, if for no one else
	}
	if scope == public {
		k.private, k.identity = false, ""
	}
	if old := c.entries[k]; old != nil {
		c.drop(old)
	}
	// A copy, since the result may be a small part of what was read.
	e := &entry{key: k, result: bytes.Clone(f.result), expires: time.Now().Add(ttl)}
	e.all, e.of = c.used.PushFront(e), t.used.PushFront(e)
	c.entries[k] = e
	c.bytes += size
	for t.used.Len() > maxEntries {
		c.drop(t.used.Back().Value.(*entry))
	}
	for c.bytes > c.limit {
		c.drop(c.used.Back().Value.(*entry))
	}
	return kept
}

// tool is the state of a tool. If there are too many, those that hold nothing
// are forgotten, and if all do, the one whose entry was used longest ago.
func (c *Cache) tool(k toolKey) *toolState {
	if t := c.tools[k]; t != nil {
		return t
	}
	if len(c.tools) >= maxTools {
		for k, t := range c.tools {
			if t.used.Len() == 0 {
				delete(c.tools, k)
			}
		}
	}
	if len(c.tools) >= maxTools {
		oldest := c.used.Back().Value.(*entry).key.toolKey
		c.empty(oldest)
	}
	t := &toolState{used: list.New()}
	c.tools[k] = t
	return t
}

// empty forgets a tool.
func (c *Cache) empty(k toolKey) {
	t := c.tools[k]
	for t.used.Len() > 0 {
		c.drop(t.used.Back().Value.(*entry))
	}
	delete(c.tools, k)
}

func (c *Cache) drop(e *entry) {
	delete(c.entries, e.key)
	c.used.Remove(e.all)
	c.tools[e.key.toolKey].used.Remove(e.of)
	c.bytes -= int64(len(e.result)) + overhead
}

// Forget empties the cache of what a server said: after a reload, or when its
// list of tools has changed. Answers to calls that are under way are not kept.
func (c *Cache) Forget(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.tools {
		if k.server == server {
			c.empty(k)
		}
	}
	for f, of := range c.open {
		f.stale = f.stale || of == server
	}
	maps.DeleteFunc(c.flights, func(k key, _ *flight) bool { return k.server == server })
}

// CacheStats is what the cache holds and did.
type CacheStats struct {
	Hits, Misses int64
	Entries      int
	Bytes        int64 // of memory, roughly
}

// Stats are the whole cache's.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CacheStats{c.hits, c.misses, len(c.entries), c.bytes}
}

// Entries is how many answers of a server are kept, expired ones included.
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

// hint is how long a result may be kept, 0 if not at all, and by whom. Whole
// is false for errors, and for results that ask for more input.
func hint(result json.RawMessage) (ttl time.Duration, scope string, whole bool) {
	whole = json.Valid(result)
	if !whole {
		return 0, "", false
	}
	err := jsonrpc.Fields(result, func(key string, value []byte) error {
		switch key {
		case "ttlMs":
			ms, err := strconv.ParseFloat(string(value), 64)
			if err == nil && ms > 0 {
				ttl = time.Duration(min(ms, float64(maxTTL.Milliseconds())) * float64(time.Millisecond))
			}
		case "cacheScope":
			_ = json.Unmarshal(value, &scope) // what is no string is no scope
		case "isError":
			whole = whole && string(value) == "false"
		case "resultType":
			whole = whole && string(value) == `"complete"`
		}
		return nil
	})
	return ttl, scope, whole && err == nil
}
