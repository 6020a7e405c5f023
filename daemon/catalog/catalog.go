// Package catalog holds the tools that a session can see and call, whoever
// provides them. It is filled once and then only read, by any number of
// goroutines.
package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// Anonymous is the identity of a client that sent no greeting. It sees the
// tools that run in the daemon and no others.
const Anonymous = "anonymous"

// Catalog is the set of tools.
type Catalog struct {
	may    func(identity, name string) bool
	tools  []*tool.Prepared // by name
	byName map[string]*tool.Prepared
}

// New makes a catalog of tools. Two tools of one name are an error. may says
// what the configuration allows an identity; nil allows all.
func New(may func(identity, name string) bool, tools ...tool.Tool) (*Catalog, error) {
	if may == nil {
		may = func(string, string) bool { return true }
	}
	c := &Catalog{may: may, byName: make(map[string]*tool.Prepared, len(tools))}
	for i := range tools {
		t := &tools[i]
		p, err := tool.Prepare(t)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		if c.byName[t.Name] != nil {
			return nil, fmt.Errorf("tool %s: there are two of that name", t.Name)
		}
		c.byName[t.Name] = p
		c.tools = append(c.tools, p)
	}
	slices.SortFunc(c.tools, func(a, b *tool.Prepared) int { return cmp.Compare(a.Tool.Name, b.Tool.Name) })
	return c, nil
}

// List is what a session of identity sees, in an order that never changes.
func (c *Catalog) List(identity string) []json.RawMessage {
	list := make([]json.RawMessage, 0, len(c.tools))
	for _, p := range c.tools {
		if c.allowed(identity, p) {
			list = append(list, p.Listing())
		}
	}
	return list
}

// Find is the tool of that name, or a fault unknown_tool: a tool that a
// session may not see does not exist for it.
func (c *Catalog) Find(identity, name string) (*tool.Prepared, error) {
	p := c.byName[name]
	if p == nil || !c.allowed(identity, p) {
		return nil, fault.New(fault.UnknownTool, fault.Host, "tools/call", "unknown tool %q", name)
	}
	return p, nil
}

func (c *Catalog) allowed(identity string, p *tool.Prepared) bool {
	return (identity != Anonymous || p.Tool.Dispatch == tool.OnHost) && c.may(identity, p.Tool.Name)
}
