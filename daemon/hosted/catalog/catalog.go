// Package catalog has what sessions see of the hosted servers: it lists their offers, and
// finds one by its name. A server that has never listed is started and asked first.
//
// It keeps no state but the lists that it has made last: which servers there are, and what they
// offer, its [Servers] know.
package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/clienttable"
	"holdline/daemon/hosted/dispatch"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/listing"
	"holdline/daemon/spelling"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Servers are the configured servers. The functions are safe for concurrent use.
type Servers struct {
	// Find returns the server that has a name now, or a fault.
	Find func(name string) (Server, error)
	// View returns what a caller sees of all servers. It may wait a moment, at most
	// until ctx ends, until it is known which of them the caller sees.
	View func(ctx context.Context, c *tool.Caller) *listing.View
	// Named is View of the servers whose tool or prompt may have the name shown. It need not
	// leave out others.
	Named func(ctx context.Context, c *tool.Caller, shown string) *listing.View
	// Expected is View without a wait, and with what servers that are not up have listed last.
	// known is false if it is not known yet which of them the caller sees.
	Expected func(c *tool.Caller) (view *listing.View, known bool)
	// FirstList is how long a call or a search waits for servers that have never listed
	// their tools; 0 is [FirstList].
	FirstList time.Duration
}

// A Server is a configured server.
type Server interface {
	dispatch.Server
	// Start returns how the start of the caller's process stands.
	Start(c *tool.Caller) Start
	// Rests returns why the server is not asked for its tools, or nil if it is to be
	// asked, or if they are known. With start a lazy server is asked, too.
	Rests(c *tool.Caller, start bool) *fault.Record
	// Trouble returns why a call would fail at once, or nil if no reason is known.
	Trouble(c *tool.Caller) *fault.Record
}

// A Catalog answers sessions. It is safe for concurrent use.
type Catalog struct {
	s     Servers
	calls *dispatch.Dispatcher
	rules tool.Rules // nil allows everything
	log   *slog.Logger
	memo  listing.Memo
}

// New returns a catalog of servers, whose offers calls takes to them.
func New(s Servers, calls *dispatch.Dispatcher, rules tool.Rules, log *slog.Logger) *Catalog {
	s.FirstList = cmp.Or(s.FirstList, FirstList)
	return &Catalog{s: s, calls: calls, rules: rules, log: log}
}

// handle makes a call of an offer. The server that has the offer's name now gets it.
func (d *Catalog) handle(ctx context.Context, o *listing.Offer, rc *tool.RemoteCall) (tool.RemoteResult, error) {
	s, err := d.s.Find(o.Remote.Server)
	if err != nil {
		return tool.RemoteResult{}, err
	}
	return d.calls.Handle(ctx, s, o, rc)
}

// visible returns the servers that a caller sees, by name.
func (d *Catalog) visible(ctx context.Context, c *tool.Caller) []Server {
	var seen []Server
	for _, name := range d.s.View(ctx, c).Servers() {
		if s, err := d.s.Find(name); err == nil { // else it was removed meanwhile
			seen = append(seen, s)
		}
	}
	return seen
}

// FirstList is how long a call or a search waits for servers that have never listed their
// tools. It is less than the 10 s after which clients give up a server that is slow to start.
// It is a variable for tests.
var FirstList = 8 * time.Second

// listWait is how long a list of tools waits for such servers; the tools of slower ones
// appear by a change of the list. It is less than the 5 s after which `claude mcp list`
// gives up a list (Claude Code 2.1.329).
const listWait = 4 * time.Second

// nextList is how long a list waits for a server whose last start failed. Most such
// servers fail again.
const nextList = time.Second

// unreadyList is how long a list waits for a server whose environment is not known
// yet. Some clients go on without a server that has not listed its tools within a
// second: for them, Holdline with all its servers is one.
const unreadyList = 500 * time.Millisecond

// A Start says how the start of a process stands.
type Start struct {
	Begun      time.Time // zero if no start is under way
	Failed     bool      // the last one has failed
	Unprepared bool      // what it needs is not known yet
	Printed    []string  // by the process to stdout, though it is no MCP
}

// patience returns how long a list waits for a server that has never listed. All lists, and the
// handshake before them, together wait only as long as the first one.
func patience(s Start, now time.Time) time.Duration {
	wait := listWait
	switch {
	case s.Unprepared:
		wait = unreadyList
	case s.Failed:
		wait = nextList
	}
	if !s.Begun.IsZero() {
		wait -= now.Sub(s.Begun)
	}
	return max(wait, 0)
}

// withFirstList returns a context that ends after [Servers.FirstList], with a fault of that
// operation as its cause.
func (d *Catalog) withFirstList(ctx context.Context, operation string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.s.FirstList, fault.New(fault.Timeout, fault.Server, operation,
		"its server has not said within %v what it offers: it may still be starting, try again", d.s.FirstList))
}

// List returns what a session sees of the kind that a method lists, by name. It returns
// false if no server knows the method. The lists are those of the session's own processes, or else those that any process of the server
// has listed last. It starts servers that have never listed, and waits for them for a
// limited time.
func (d *Catalog) List(ctx context.Context, c tool.Caller, method string) (list tool.List, ok bool) {
	k, ok := kindOf(method)
	if !ok {
		return tool.List{}, false
	}
	kind, _, _ := strings.Cut(method, "/")
	d.askAll(ctx, c, clienttable.Ignores(c.Client, clienttable.List(kind)))
	return d.memo.List(d.s.View(ctx, &c), k), true
}

// Peek returns the digest of what [Catalog.List] would return, and waits for nothing. A server
// that is not up counts with what it has listed last. known is false if it is not known yet which
// servers the session sees.
func (d *Catalog) Peek(c tool.Caller, method string) (digest string, known bool) {
	k, _ := kindOf(method)
	view, known := d.s.Expected(&c)
	if !known {
		return "", false
	}
	return d.memo.List(view, k).Digest, true
}

// kindOf returns the kind that a method lists; false if it lists none.
func kindOf(method string) (listing.Kind, bool) {
	for k := range listing.Kinds {
		if k.MCP().List == method {
			return k, true
		}
	}
	return 0, false
}

// freshList is how long a list waits for a server that is starting and whose earlier list is known, if the client
// would not list again: see [clienttable.Ignores].
const freshList = 8 * time.Second

// askAll starts the servers that a caller sees and that have never listed, and waits
// for their lists for a limited time. It returns the errors of those that have not
// listed, by name. With fresh it also waits for servers that are starting and have listed before.
func (d *Catalog) askAll(ctx context.Context, c tool.Caller, fresh bool) map[string]error {
	var mu sync.Mutex // guards failed
	failed := map[string]error{}
	var asking sync.WaitGroup
	for _, s := range d.visible(ctx, &c) {
		listed := s.View(&c).Offering != nil
		if listed && !fresh {
			continue
		}
		start, name := s.Start(&c), s.Entry().Name
		wait := patience(start, time.Now())
		if listed {
			if start.Begun.IsZero() || start.Failed || start.Unprepared {
				continue
			}
			wait = max(freshList-time.Since(start.Begun), 0)
		}
		asking.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, wait,
				fault.New(fault.Timeout, fault.Server, startup.Operation(name),
					"server %s has not said in time what it offers: it may still be starting, try again", name))
			defer cancel()
			_, err := s.Ready(ctx, nil, c)
			if err == nil {
				return
			}
			if ctx.Err() == nil && !listed {
				d.log.WarnContext(ctx, "server is not listed", "server", name, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			failed[name] = err
		})
	}
	asking.Wait()
	return failed
}

// Find returns the tool of that exposed name, or nil if no server offers it. It first
// asks the servers that have never listed and whose tool the name can be. If one of them
// does not start, calls of the tool fail with the reason.
func (d *Catalog) Find(ctx context.Context, c tool.Caller, name string) *tool.Remote {
	if o := d.find(ctx, c, listing.Tools, name); o != nil {
		return &o.Remote
	}
	return nil
}

// Known returns the tool of that name if it is listed now, else nil.
func (d *Catalog) Known(c tool.Caller, name string) *tool.Remote {
	if o, _ := d.s.Named(context.Background(), &c, name).Find(listing.Tools, name); o != nil {
		return &o.Remote
	}
	return nil
}

// find returns the offer of that exposed name, or nil; see [Catalog.Find].
func (d *Catalog) find(ctx context.Context, c tool.Caller, k listing.Kind, name string) *listing.Offer {
	found, unlisted := d.s.Named(ctx, &c, name).Find(k, name)
	if found != nil || len(unlisted) == 0 {
		return found
	}
	ctx, cancel := d.withFirstList(ctx, mcp.ToolsCall+":"+name)
	defer cancel()
	var failed *listing.Offer
	for _, server := range unlisted {
		pick := func(of *listing.Offering) *listing.Offer { return of.Find(k, name, c.Only != "") }
		o, err := d.start(ctx, c, server, name, pick)
		if err != nil {
			failed = d.unlisted(server, k, name, pick, err)
		} else if o != nil {
			return o
		}
	}
	return failed
}

// start asks a server that has never listed, for a call of that name, and returns the offer
// that pick takes from its lists, or nil.
func (d *Catalog) start(
	ctx context.Context, c tool.Caller, server, name string, pick func(*listing.Offering) *listing.Offer,
) (*listing.Offer, error) {
	s, err := d.s.Find(server)
	if err == nil {
		err = dispatch.Try(ctx, s, c, name)
	}
	if err != nil {
		if s != nil {
			err = startup.Unlisted(server, s.Start(&c).Printed, err)
		}
		return nil, err
	}
	view := s.View(&c)
	return pick(view.Offering), nil
}

// unlisted returns the offer of a name for which a server was asked that does not start,
// because of err. If a login helps, and the client's person has made it, the call goes to
// what the server offers then.
func (d *Catalog) unlisted(
	server string, k listing.Kind, name string, pick func(*listing.Offering) *listing.Offer, err error,
) *listing.Offer {
	failed := listing.Unknown(server, k, name, err)
	operation := failed.Operation()
	failed.Remote.Handle = func(ctx context.Context, rc tool.RemoteCall) (tool.RemoteResult, error) {
		return d.calls.Ask(ctx, server, &rc, func(rc *tool.RemoteCall, waited bool) (tool.RemoteResult, error) {
			if !waited {
				return tool.RemoteResult{}, err
			}
			starting, cancel := d.withFirstList(ctx, operation)
			defer cancel()
			o, err := d.start(starting, rc.Caller, server, name, pick)
			switch {
			case err != nil:
				return tool.RemoteResult{}, dispatch.AsFault(err, failed)
			case o == nil:
				return tool.RemoteResult{}, fault.New(fault.UnknownTool, fault.Server, operation,
					"server %s does not offer %s", server, name)
			case d.rules != nil: // its own name is known only now
				if err := d.rules.Check(rc.Caller.Who(), server, o.Remote.Names...); err != nil {
					return tool.RemoteResult{}, err
				}
			}
			return o.Remote.Handle(ctx, *rc)
		})
	}
	return failed
}

// Resource returns the offer of a resource, or nil if no server is concerned; see
// [listing.View.Resource]. A resource that is listed waits for no other server.
func (d *Catalog) Resource(ctx context.Context, c tool.Caller, uri string) *listing.Offer {
	if o := d.s.View(ctx, &c).Listed(uri); o != nil {
		return o
	}
	unasked := d.askAll(ctx, c, false)
	if o := d.s.View(ctx, &c).Resource(uri, d.handle); o != nil || len(unasked) == 0 {
		return o
	}
	first := slices.Min(slices.Collect(maps.Keys(unasked)))
	err := dispatch.AsFault(unasked[first], &listing.Offer{Method: mcp.ResourcesRead})
	return listing.Unknown(first, listing.Resources, uri, err)
}

// aboutWait is how long a handshake waits for a server that never served: some
// clients wait for the handshake no longer than a second.
const aboutWait = 50 * time.Millisecond

// errStarting is the cause of a context that ends with [aboutWait].
var errStarting = errors.New("the server is still starting")

// About returns the description of the only server of a session. It starts a server
// that has never served. A server that is still starting is described as offering
// everything. The error says why it does not start, or did not the last time.
func (d *Catalog) About(ctx context.Context, c tool.Caller) (tool.About, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, aboutWait, errStarting)
	defer cancel()
	if d.rules != nil && !d.rules.Reaches(c.Who(), c.Only) { // a guest is not to learn whether there is one
		return tool.About{}, fault.New(fault.Denied, fault.Host, mcp.Initialize,
			"%s may use no tool of server %s", c.Who(), c.Only)
	}
	s, err := d.s.Find(c.Only)
	switch {
	case err != nil:
		return tool.About{}, d.meant(ctx, err, c)
	case len(d.visible(ctx, &c)) == 0:
		return tool.About{}, fault.New(fault.Denied, fault.Host, mcp.Initialize, "server %s is not for this project",
			c.Only)
	}
	view := s.View(&c)
	about := view.Offering.About()
	if about == nil {
		starting, cancel := context.WithTimeoutCause(ctx, patience(s.Start(&c), time.Now()), errStarting)
		defer cancel() // after a list that has waited in vain it waits no more
		_, err := s.Ready(starting, nil, c)
		view = s.View(&c)
		about = view.Offering.About()
		if errors.Is(err, errStarting) {
			f := s.Trouble(&c)
			if f == nil {
				return listing.DescribeStarting(c.Only), nil
			}
			err = f
		}
		if err != nil {
			return tool.About{}, err
		}
	}
	return listing.Describe(c.Only, about), nil
}

// meant returns err, which says that there is no server of the name for whose sake a session was opened. It names the
// one that is probably meant, if the caller may use that.
func (d *Catalog) meant(ctx context.Context, err error, c tool.Caller) error {
	name := c.Only
	c.Only = ""
	near := spelling.Nearest(name, d.s.View(ctx, &c).Servers())
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || near == "" {
		return err
	}
	its := *f
	its.Fault.Detail, _, _ = strings.Cut(f.Fault.Detail, "; ")
	its.Fault.Detail += "; did you mean " + near + "?"
	return &its
}

// Route returns the server's handler of a request other than a tool call. A prompt is
// found by its name, a resource by its URI or a matching template, a completion by
// what it completes. It returns nil if no server has it, and false if no server can
// know the method.
func (d *Catalog) Route(
	ctx context.Context, c tool.Caller, method string, params json.RawMessage,
) (to *tool.Remote, ok bool) {
	var o *listing.Offer
	switch method {
	case mcp.PromptsGet:
		name, _ := mcp.String(jsonrpc.Field(params, "name"))
		o = d.find(ctx, c, listing.Prompts, name)
	case mcp.ResourcesRead:
		uri, _ := mcp.String(jsonrpc.Field(params, "uri"))
		o = d.Resource(ctx, c, uri)
	case mcp.Complete:
		ref := jsonrpc.Field(params, "ref")
		if name, ok := mcp.String(jsonrpc.Field(ref, "name")); ok {
			o = d.find(ctx, c, listing.Prompts, name)
		} else if uri, ok := mcp.String(jsonrpc.Field(ref, "uri")); ok {
			o = d.Resource(ctx, c, uri)
		}
		if o != nil {
			o = o.Completion(d.handle)
		}
	default:
		return nil, false
	}
	if o == nil {
		return nil, true
	}
	return &o.Remote, true
}

// Has returns what the servers that a session sees offer besides tools. A server
// that has never listed may offer everything.
func (d *Catalog) Has(c tool.Caller) tool.Has { return d.s.View(context.Background(), &c).Has() }
