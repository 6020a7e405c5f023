package tool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"slices"

	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Provider has tools that come and go. What it lists, and what it names in its
// errors, is what the session's identity may use. What it finds may be more than
// that.
type Provider interface {
	// Waits reports whether List may block.
	Waits() bool
	// List returns what a session sees of the list that method asks for. It returns false
	// if method lists nothing. It may wait for a while.
	List(ctx context.Context, c Caller, method string) (list List, ok bool)
	// Peek returns the digest of that list as it is now, and waits for nothing. A server that
	// is not up counts with what it has listed last. known is false if it is not known yet
	// which servers the session sees.
	Peek(c Caller, method string) (digest string, known bool)
	// Route returns what answers a request that is no call of a tool, or nil if
	// nothing does. known is false for an unknown method.
	Route(ctx context.Context, c Caller, method string, params json.RawMessage) (to *Remote, known bool)
	// Has returns what a session sees besides tools, or may see.
	Has(c Caller) Has
	// About describes the one server that a session is for. It does not wait for
	// a server that is starting. An error is a fault.
	About(ctx context.Context, c Caller) (About, error)
	// Find returns the tool of that name, or nil. It may wait for a while.
	Find(ctx context.Context, c Caller, name string) *Remote
	// Known returns the tool of that name if it is known now, else nil.
	Known(c Caller, name string) *Remote
	// Inner returns a tool by its server and one of its names. It may wait for a
	// while. If there is none, the error is a fault that names similar ones.
	Inner(ctx context.Context, c Caller, server, name string) (*Remote, error)
}

// Catalog is the set of tools.
type Catalog struct {
	// LeftOut returns why the configuration leaves out a server that it has, and what to do; nil if it
	// does not. It may be nil. Set it before the catalog is used.
	LeftOut func(server string) error

	more   Provider // nil for none
	rules  Rules
	tools  []*Prepared // by name
	byName map[string]*Prepared
}

// NewCatalog returns a catalog of holdline's own tools and those of more, which may be
// nil. Two own tools of one name are an error; an own tool hides another of its
// name.
func NewCatalog(rules Rules, more Provider, tools ...Tool) (*Catalog, error) {
	c := &Catalog{rules: rules, more: more, byName: make(map[string]*Prepared, len(tools))}
	for i := range tools {
		t := &tools[i]
		p, err := Prepare(t)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		if c.byName[t.Name] != nil {
			return nil, fmt.Errorf("tool %s: there are two of that name", t.Name)
		}
		c.byName[t.Name] = p
		c.tools = append(c.tools, p)
	}
	slices.SortFunc(c.tools, func(a, b *Prepared) int { return cmp.Compare(a.Tool.Name, b.Tool.Name) })
	return c, nil
}

// Waits reports whether [Catalog.List] may block.
func (c *Catalog) Waits(who Caller) bool {
	return c.others(who) && !c.Searches(who) && c.more.Waits()
}

// Searches reports whether a session finds the tools of hosted servers by words,
// and is not shown them.
func (c *Catalog) Searches(who Caller) bool {
	return who.Only == "" && c.rules.Searches(who.Who())
}

// List returns what a session sees of the list that method asks for; false if method lists
// nothing. It may wait for a while. Holdline's own tools come before the others; both are
// sorted by name.
func (c *Catalog) List(ctx context.Context, who Caller, method string) (list List, ok bool) {
	if method != mcp.ToolsList {
		if !c.others(who) {
			return List{}, false
		}
		return c.more.List(ctx, who, method)
	}
	var others List
	if c.others(who) && !c.Searches(who) {
		others, _ = c.more.List(ctx, who, method)
	}
	list = List{Member: "tools", Digest: c.digest(who, others.Digest)}
	for p := range c.seen(who) {
		list.Entries = append(list.Entries, Listing{"0" + p.Tool.Name, p.Listing()})
	}
	for _, l := range others.Entries {
		if c.byName[l.Name] == nil || who.Only != "" {
			list.Entries = append(list.Entries, Listing{"1" + l.Name, l.Raw})
		}
	}
	return list, true
}

// Peek returns the digest of a list as [Catalog.List] would return it now, and waits for
// nothing. A server that is not up counts with what it has listed last. known is false if it is
// not known yet what the session sees, or if it sees no such list.
func (c *Catalog) Peek(who Caller, method string) (digest string, known bool) {
	switch others := c.others(who); {
	case method != mcp.ToolsList && !others:
		return "", false
	case method != mcp.ToolsList:
		return c.more.Peek(who, method)
	case others && !c.Searches(who):
		if digest, known = c.more.Peek(who, method); !known {
			return "", false
		}
	}
	return c.digest(who, digest), true
}

// seen returns holdline's own tools that a session sees, by name.
func (c *Catalog) seen(who Caller) iter.Seq[*Prepared] {
	return func(yield func(*Prepared) bool) {
		for _, p := range c.tools {
			if who.SeesOwn() && c.allowed(who.Who(), p) && !yield(p) {
				return
			}
		}
	}
}

// digest returns the digest of a session's list of tools, of which others is that of the hosted
// servers' tools; "" if the list has none of them.
func (c *Catalog) digest(who Caller, others string) string {
	h := sha256.New()
	for p := range c.seen(who) {
		_, _ = h.Write(p.sum[:]) // a hash takes every write
	}
	_, _ = io.WriteString(h, others)
	return Digest(h)
}

// Digest returns the short form of a hash in which [List.Digest] is.
func Digest(h hash.Hash) string { return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12]) }

// Route returns what answers a request that is no call of a tool, or nil if nothing
// does. The second result is false for an unknown method. It may wait for a while. An
// error is the fault denied, or invalid_input.
func (c *Catalog) Route(ctx context.Context, who Caller, method string, params json.RawMessage) (*Remote, bool, error) {
	if !c.others(who) {
		return nil, false, nil
	}
	var completed *completion
	if method == mcp.Complete {
		var err error
		if completed, err = completionOf(params); err != nil {
			return nil, true, err
		}
	}
	to, known := c.more.Route(ctx, who, method, params)
	if to == nil {
		return nil, known, nil
	}
	err := c.rules.Check(who.Who(), to.Server, to.Names...)
	if err == nil && to.Unlisted {
		err = c.rules.CheckURI(who.Who(), to.Server, to.Names[0])
	}
	if err == nil && completed != nil {
		err = completed.check(c.rules, who.Who(), to.Server, completed.value)
	}
	if f, ok := errors.AsType[*fault.Record](err); ok {
		f.Operation = method
	}
	return to, known, err
}

// Has returns what a session sees besides tools, or may see.
func (c *Catalog) Has(who Caller) Has {
	if !c.others(who) {
		return Has{}
	}
	return c.more.Has(who)
}

// Capabilities returns the capabilities that a handshake announces: an object. A
// legacy client may always set a level of log messages.
func (c *Catalog) Capabilities(who Caller, modern bool) json.RawMessage {
	has := c.Has(who)
	caps := `{"tools":{"listChanged":true}`
	if has.Prompts {
		caps += `,"prompts":{"listChanged":true}`
	}
	if has.Resources {
		caps += `,"resources":{`
		if has.Updates {
			caps += `"subscribe":true,`
		}
		caps += `"listChanged":true}`
	}
	if has.Prompts || has.Resources {
		caps += `,"completions":{}`
	}
	if has.Logging || !modern {
		caps += `,"logging":{}`
	}
	if modern {
		caps += `,"extensions":{"` + mcp.Tasks + `":{}}`
	}
	return json.RawMessage(caps + "}")
}

// About describes the one server that a session is for.
func (c *Catalog) About(ctx context.Context, who Caller) (About, error) {
	if !c.others(who) {
		return About{}, fault.New(fault.Denied, fault.Host, "initialize", "%s may not use hosted servers", who.Identity)
	}
	return c.more.About(ctx, who)
}

// others reports whether a session sees more than holdline's own tools.
func (c *Catalog) others(who Caller) bool {
	return c.more != nil && who.Identity != Anonymous && who.Only != Own
}

// Own returns holdline's own tool of that name; nil if it has none that the session
// may see. It never waits.
func (c *Catalog) Own(who *Caller, name string) *Prepared {
	if p := c.byName[name]; p != nil && who.SeesOwn() && c.allowed(who.Who(), p) {
		return p
	}
	return nil
}

// Find returns the hosted tool of that name, or a fault: denied if the configuration
// keeps the session from it, else unknown_tool. With denied it returns the tool, too,
// if it is known: no server is asked for what is certainly denied. It may wait for a
// while.
func (c *Catalog) Find(ctx context.Context, who Caller, name string) (*Remote, error) {
	unknown := func() error { return c.unknown(who, name) }
	if who.SeesOwn() && (name == FindTools || name == CallTool) && !c.Searches(who) {
		return nil, unknown() // they are for identities that search
	}
	if who.Only == "" && c.byName[name] == nil { // a session for one server uses that server's names
		name = c.rules.Original(who.Who(), name)
	}
	if err := c.refused(who, name); err != nil {
		return c.known(who, name), err
	}
	if (c.byName[name] == nil || who.Only != "") && c.others(who) {
		if r := c.more.Find(ctx, who, name); r != nil {
			return r, c.rules.Check(who.Who(), r.Server, r.Names...)
		}
	}
	if server, own, hosted := SplitShown(name); hosted && MayBeAltered(name) {
		if who.Only != "" {
			server, own = who.Only, name
		}
		if err := c.rules.Check(who.Who(), server, own); err != nil { // no server has a tool with that altered name
			return nil, err
		}
	}
	return nil, unknown()
}

// unknown returns the fault for a tool that does not exist. If it may be one of a server that the
// configuration leaves out, it says why.
func (c *Catalog) unknown(who Caller, name string) error {
	f := fault.New(fault.UnknownTool, fault.Host, "tools/call", "unknown tool %q", name)
	server, _, _ := SplitShown(name)
	if who.Only != "" {
		server = who.Only
	}
	if c.LeftOut != nil && c.others(who) {
		if err := c.LeftOut(server); err != nil {
			f.Fault.Detail += ". Server " + server + ": " + err.Error()
		}
	}
	return f
}

// known returns the tool of that name as far as it is known, without any wait; nil
// otherwise.
func (c *Catalog) known(who Caller, name string) *Remote {
	if p := c.byName[name]; p != nil && who.SeesOwn() {
		return p.Remote()
	}
	if !c.others(who) {
		return nil
	}
	return c.more.Known(who, name)
}

// refused returns the fault denied for a name of a tool that the session's identity
// certainly may not use, whether or not the tool exists; else nil.
func (c *Catalog) refused(who Caller, name string) error {
	switch {
	case who.SeesOwn():
		return c.rules.CheckShown(who.Who(), "", name)
	case MayBeAltered(name):
		return nil // the lists are asked by its own name once that is known
	}
	return c.rules.Check(who.Who(), who.Only, name)
}

// Inner returns the tool of a hosted server that a call of another tool is for. If
// there is none, the error is a fault that names similar tools which the session may
// see. It may wait for a while.
func (c *Catalog) Inner(ctx context.Context, who Caller, in Inner) (*Remote, error) {
	if !c.others(who) {
		return nil, fault.New(fault.Denied, fault.Host, "tools/call", "%s may not use hosted servers", who.Identity)
	}
	in.Tool = c.rules.Original(who.Who(), in.Tool)
	if err := c.rules.CheckShown(who.Who(), in.Server, in.Tool); err != nil {
		return nil, err
	}
	r, err := c.more.Inner(ctx, who, in.Server, in.Tool)
	if err != nil {
		return nil, err
	}
	return r, c.rules.Check(who.Who(), r.Server, r.Names...)
}

// Indirect returns the own tool of that name if its calls are calls of hosted tools,
// whether or not it is offered now; else nil. A call that began while the tool was
// offered is finished.
func (c *Catalog) Indirect(who *Caller, name string) *Prepared {
	if p := c.byName[name]; p != nil && p.Tool.Inner != nil && who.SeesOwn() {
		return p
	}
	return nil
}

// allowed reports whether a session may see and call an own tool. An anonymous client
// may call only those that run in the daemon.
func (c *Catalog) allowed(who Who, p *Prepared) bool {
	return (who.Identity != Anonymous || p.Tool.Dispatch == OnHost) && c.rules.May(who, "", p.Tool.Name)
}
