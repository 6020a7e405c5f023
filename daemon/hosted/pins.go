package hosted

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// pin is a tool as it was when it was first seen, or accepted. Pins are kept
// with what the server offers, for as long as the configuration has a server of
// that name, whatever its entry says. A tool that is not listed any more keeps
// its pin, lest it comes back as another.
type pin struct {
	Tool        string             `json:"tool"` // the server's own name
	Hash        string             `json:"hash"` // SHA-256, hexadecimal
	Parts       [len(parts)]string `json:"parts"`
	Description string             `json:"description,omitempty"` // its beginning
	SinceMS     int64              `json:"since_unix_ms"`
	Change      *Change            `json:"change,omitempty"` // nil if it was never seen otherwise
}

// Change is how a tool was seen to differ from what was pinned.
type Change struct {
	Hash        string   `json:"hash"`
	Parts       []string `json:"parts"` // members of the listing that differ
	Description string   `json:"description,omitempty"`
	AtMS        int64    `json:"at_unix_ms"`               // when that was first seen
	UndoneMS    int64    `json:"undone_unix_ms,omitempty"` // when the tool was seen as it was pinned again; 0 if it is not
}

// Pinned is a tool as it was pinned, and how it was seen to differ since.
type Pinned struct {
	Hash        string
	Description string // its beginning
	SinceMS     int64
	Change      *Change // nil if it was never seen otherwise
}

// Changed tells whether the tool differs now.
func (p *Pinned) Changed() bool { return p != nil && p.Change != nil && p.Change.UndoneMS == 0 }

// parts are the members of a tool's listing that are pinned, besides its name:
// what a model is told of the tool, and what clients decide by.
var parts = [...]string{"description", "inputSchema", "outputSchema", "annotations"}

// maxPinned is the most bytes of a description that are kept to be shown.
const maxPinned = 512

// likeness is a tool as it is listed, in short.
type likeness struct {
	tool        string
	hash        string
	parts       [len(parts)]string
	description string
}

// likenesses are those of a list of tools, each name once.
func likenesses(list []json.RawMessage) []likeness {
	var all []likeness
	seen := map[string]bool{}
	for _, listing := range list {
		name, ok := mcp.String(jsonrpc.Field(listing, "name"))
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		p := likeness{tool: name}
		whole := sha256.New()
		whole.Write([]byte(name))
		for i, part := range parts {
			sum := policy.Digest(jsonrpc.Field(listing, part))
			whole.Write(sum[:])
			p.parts[i] = hex.EncodeToString(sum[:8])
		}
		p.hash = hex.EncodeToString(whole.Sum(nil))
		text, _ := mcp.String(jsonrpc.Field(listing, "description"))
		p.description = strings.ToValidUTF8(text[:min(len(text), maxPinned)], "")
		all = append(all, p)
	}
	return all
}

// pinLocked compares a list of tools with what is pinned, and pins what is new
// in it. It tells which tools have changed since they were looked at last, and
// whether anything is to be written down.
func (s *server) pinLocked(list []likeness, now time.Time) (changed []string, dirty bool) {
	if s.pins == nil {
		s.pins = map[string]*pin{}
	}
	for i := range list {
		p := &list[i]
		old := s.pins[p.tool]
		switch {
		case old == nil:
			s.pins[p.tool] = newPin(p, now)
			dirty = true
		case old.Hash == p.hash && old.Change != nil && old.Change.UndoneMS == 0:
			old.Change = old.Change.undone(now.UnixMilli())
			dirty = true
		case old.Hash == p.hash:
		case old.Change == nil || old.Change.Hash != p.hash:
			old.Change = old.differs(p, now)
			changed = append(changed, p.tool)
			dirty = true
		case old.Change.UndoneMS != 0: // it is known, and was told of
			old.Change = old.Change.undone(0)
			dirty = true
		}
	}
	if len(s.pins) > maxTools {
		listed := map[string]bool{}
		for i := range list {
			listed[list[i].tool] = true
		}
		maps.DeleteFunc(s.pins, func(name string, _ *pin) bool { return !listed[name] })
	}
	return changed, dirty
}

func newPin(p *likeness, now time.Time) *pin {
	return &pin{Tool: p.tool, Hash: p.hash, Parts: p.parts, Description: p.description, SinceMS: now.UnixMilli()}
}

// differs is how a tool differs from its pin.
func (p *pin) differs(now *likeness, at time.Time) *Change {
	c := &Change{Hash: now.hash, AtMS: at.UnixMilli(), Description: now.description}
	for i, part := range parts {
		if p.Parts[i] != now.parts[i] {
			c.Parts = append(c.Parts, part)
		}
	}
	return c
}

// undone is the change as one that was undone at a time; 0 is not at all.
func (c *Change) undone(ms int64) *Change {
	other := *c // who has the old one goes on reading it
	other.UndoneMS = ms
	return &other
}

// pinnedLocked is how a tool was pinned; nil if it was not.
func (s *server) pinnedLocked(own string) *Pinned {
	p := s.pins[own]
	if p == nil {
		return nil
	}
	return &Pinned{Hash: p.Hash, Description: p.Description, SinceMS: p.SinceMS, Change: p.Change}
}

// blockedLocked returns the fault of a tool that cannot be used, since it is not
// what was pinned and the configuration wants that; nil for all else.
func (s *server) blockedLocked(o *offer) *fault.Record {
	if !s.now().BlockChanged || o.hash == "" {
		return nil
	}
	p := s.pins[o.name]
	if p == nil || p.Hash == o.hash {
		return nil
	}
	what := "its listing"
	if p.Change != nil && p.Change.Hash == o.hash {
		what = strings.Join(p.Change.Parts, ", ")
	}
	return fault.New(fault.Denied, fault.Host, callOperation(o),
		"tool %s of server %s has changed since it was first seen (%s), and is blocked until the user accepts it: "+
			"holdline servers tools %s --changes shows how, --accept in its place takes it", o.name, s.spec.Name, what, s.spec.Name)
}

// blockedNow is [server.blockedLocked] for a tool as the caller is offered it now:
// its server may have listed it anew since the offer was made.
func (s *server) blockedNow(c *tool.Caller, o *offer) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if o.method != mcp.ToolsCall {
		return nil
	}
	if now := s.offersLocked(c).own(o.name); now != nil {
		o = now
	}
	if f := s.blockedLocked(o); f != nil {
		return f
	}
	return nil
}

// changesLocked counts the tools that were listed last and are not what was
// pinned.
func (s *server) changesLocked() int {
	n := 0
	for _, o := range s.latest.all(tools) {
		if s.pinnedLocked(o.name).Changed() {
			n++
		}
	}
	return n
}

// othersPinsLocked are the pins of tools that some process lists.
func (s *server) othersPinsLocked() map[string]*pin {
	kept := map[string]*pin{}
	for _, inst := range s.m.instances {
		if inst.srv != s {
			continue
		}
		for _, o := range inst.own.all(tools) {
			if p := s.pins[o.name]; p != nil {
				kept[o.name] = p
			}
		}
	}
	return kept
}

// pinsLocked are the pins by name, as they are written down.
func (s *server) pinsLocked() []pin {
	all := make([]pin, 0, len(s.pins))
	for _, name := range slices.Sorted(maps.Keys(s.pins)) {
		all = append(all, *s.pins[name])
	}
	return all
}

// warn tells of tools that have changed.
func (s *server) warn(changed []string) {
	if len(changed) == 0 {
		return
	}
	const most = 20
	s.m.log.Warn("tools are not what they were when they were first seen",
		"server", s.spec.Name, "tools", changed[:min(len(changed), most)], "count", len(changed))
}

// Accept pins the tools of a server as the caller is offered them now, and tells
// which of them were pinned otherwise. A server that was never listed is asked
// first.
func (m *Manager) Accept(ctx context.Context, c tool.Caller, name string) ([]string, error) {
	s, err := m.server(name)
	if err != nil {
		return nil, err
	}
	if out := s.offered(ctx, c); out.Fault != nil {
		return nil, out.Fault
	}
	m.mu.Lock()
	list := likenesses(s.offersLocked(&c).lists()[tools])
	before := s.pins
	s.pins = s.othersPinsLocked()
	accepted := []string{}
	for i := range list {
		p := &list[i]
		old := before[p.tool]
		if old != nil && old.Hash == p.hash {
			s.pins[p.tool] = &pin{Tool: old.Tool, Hash: old.Hash, Parts: old.Parts, Description: old.Description, SinceMS: old.SinceMS}
			continue
		}
		s.pins[p.tool] = newPin(p, time.Now())
		if old != nil {
			accepted = append(accepted, p.tool)
		}
	}
	blocks := s.now().BlockChanged
	m.mu.Unlock()
	slices.Sort(accepted)
	err = s.store()
	if blocks && len(accepted) > 0 {
		m.Changed()
	}
	return accepted, err
}
