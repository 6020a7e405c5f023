package listing

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/policy"
	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Pin is a tool as it was when it was first seen, or accepted by the user.
type Pin struct {
	control.ServerPin

	Tool  string             `json:"tool"` // the server's own name
	Parts [len(parts)]string `json:"parts"`
}

// Changed reports whether the tool differs from its pin now. The pin may be nil.
func (p *Pin) Changed() bool { return p != nil && p.Change != nil && p.Change.UndoneMS == 0 }

// parts are the members of a tool's listing that are pinned, besides its name:
// what a model reads of the tool, and what clients decide by.
var parts = [...]string{"description", "inputSchema", "outputSchema", "annotations"}

// maxPinned is the most bytes of a description that are kept to be shown.
const maxPinned = 512

// A Likeness is a listing of a tool, reduced to hashes. Two listings that mean the
// same have the same hash, whatever their spelling.
type Likeness struct {
	tool        string
	hash        string
	parts       [len(parts)]string
	description string
}

// Likenesses returns a likeness for each tool of a list. Of entries with equal names
// it takes the first, as clients see only that one.
func Likenesses(list []json.RawMessage) []Likeness {
	var all []Likeness
	seen := map[string]bool{}
	for _, listing := range list {
		name, ok := mcp.String(jsonrpc.Field(listing, "name"))
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		l := Likeness{tool: name}
		whole := sha256.New()
		whole.Write([]byte(name))
		for i, part := range parts {
			sum := policy.Digest(jsonrpc.Field(listing, part))
			whole.Write(sum[:])
			l.parts[i] = hex.EncodeToString(sum[:8])
		}
		l.hash = hex.EncodeToString(whole.Sum(nil))
		text, _ := mcp.String(jsonrpc.Field(listing, "description"))
		l.description = strings.ToValidUTF8(text[:min(len(text), maxPinned)], "")
		all = append(all, l)
	}
	return all
}

// Pins are the pinned tools of one server. They are kept as long as the
// configuration has a server of that name, whatever its entry says: an edit of
// the entry is how most servers change. A tool that is not listed any more keeps
// its pin, so that it cannot come back as another tool unnoticed. The zero value
// has none.
//
// Neither the map nor a Pin in it changes once it is stored: [Pins.Compare] and
// [Pins.Accept] put others in their place. So a copy of a Pins keeps what it was
// copied of.
type Pins struct {
	byTool map[string]*Pin
	lost   string // path of the file that had them and is damaged; "" once the user has accepted the tools
}

// NewPins returns pins that were stored.
func NewPins(stored []Pin) Pins {
	p := Pins{byTool: map[string]*Pin{}}
	for i := range stored {
		p.byTool[stored[i].Tool] = &stored[i]
	}
	return p
}

// Stored returns the pins sorted by name.
func (ps *Pins) Stored() []Pin {
	all := make([]Pin, 0, len(ps.byTool))
	for _, name := range slices.Sorted(maps.Keys(ps.byTool)) {
		all = append(all, *ps.byTool[name])
	}
	return all
}

// Find returns the pin of a tool by the server's own name; nil if it has none.
func (ps *Pins) Find(own string) *Pin { return ps.byTool[own] }

// Compare compares a list of tools with the pins, and pins tools that have none.
// changed names the tools that differ in a way not seen before; dirty reports whether
// the pins have to be stored.
//
// If there are more than [MaxEntries] pins, those of tools that are not listed are
// dropped. So their number is bounded even if a server lists other names each time.
func (ps *Pins) Compare(list []Likeness, now time.Time) (changed []string, dirty bool) {
	if ps.lost != "" { // to pin the tools as they are now would be to accept them
		return nil, false
	}
	next := map[string]*Pin{}
	maps.Copy(next, ps.byTool)
	listed := map[string]bool{}
	for i := range list {
		is := &list[i]
		listed[is.tool] = true
		was := next[is.tool]
		if was == nil {
			next[is.tool], dirty = newPin(is, now), true
			continue
		}
		change := was.observe(is, now)
		if change == was.Change {
			continue
		}
		if change.UndoneMS == 0 && (was.Change == nil || was.Change.Hash != is.hash) {
			changed = append(changed, is.tool)
		}
		differs := *was
		differs.Change = change
		next[is.tool], dirty = &differs, true
	}
	if len(next) > MaxEntries {
		maps.DeleteFunc(next, func(name string, _ *Pin) bool { return !listed[name] })
	}
	ps.byTool = next
	return changed, dirty
}

// newPin pins a tool as it is now.
func newPin(l *Likeness, now time.Time) *Pin {
	return &Pin{Tool: l.tool, Parts: l.parts, ServerPin: control.ServerPin{
		Hash: l.hash, Description: l.description, SinceMS: now.UnixMilli(),
	}}
}

// observe returns the Change of a pin now that the tool looks like that. It
// returns p.Change itself if nothing is new.
func (p *Pin) observe(is *Likeness, now time.Time) *control.ServerToolChange {
	was := p.Change
	switch {
	case was != nil && p.Hash == is.hash && was.UndoneMS == 0:
		return undone(was, now.UnixMilli())
	case p.Hash == is.hash:
		return was
	case was == nil || was.Hash != is.hash:
		return p.compare(is, now)
	case was.UndoneMS != 0: // the known change is back
		return undone(was, 0)
	}
	return was
}

// compare returns how a tool differs from its pin.
func (p *Pin) compare(is *Likeness, now time.Time) *control.ServerToolChange {
	c := &control.ServerToolChange{Hash: is.hash, AtMS: now.UnixMilli(), Description: is.description}
	for i, part := range parts {
		if p.Parts[i] != is.parts[i] {
			c.Parts = append(c.Parts, part)
		}
	}
	return c
}

// undone returns a change as undone at ms, or as in force again if ms is 0.
func undone(change *control.ServerToolChange, ms int64) *control.ServerToolChange {
	next := *change
	next.UndoneMS = ms
	return &next
}

// Blocked reports whether an offered tool differs from its pin, and names the
// parts of its listing that do.
func (ps *Pins) Blocked(o *Offer) (what string, blocked bool) {
	p := ps.byTool[o.Own]
	if ps.lost != "" && o.Hash != "" {
		return "how it was is lost, since the file " + ps.lost + " is damaged", true
	}
	if o.Hash == "" || p == nil || p.Hash == o.Hash {
		return "", false
	}
	if p.Change != nil && p.Change.Hash == o.Hash {
		return strings.Join(p.Change.Parts, ", "), true
	}
	return "its listing", true
}

// CountChanged returns how many tools of an offering differ from their pins.
func (ps *Pins) CountChanged(of *Offering) int {
	n := 0
	for _, o := range of.All(Tools) {
		if ps.Find(o.Own).Changed() {
			n++
		}
	}
	return n
}

// Accept pins the tools of a list as they are now. Of the other pins it keeps
// those for which keep is true. It returns the names of tools that were pinned
// otherwise, sorted.
func (ps *Pins) Accept(list []Likeness, keep map[string]bool, now time.Time) []string {
	before, lost := ps.byTool, ps.lost != ""
	ps.byTool, ps.lost = map[string]*Pin{}, ""
	for name, p := range before {
		if keep[name] {
			ps.byTool[name] = p
		}
	}
	accepted := []string{}
	for i := range list {
		is := &list[i]
		was := before[is.tool]
		next := newPin(is, now)
		switch {
		case was != nil && was.Hash == is.hash:
			next.Parts, next.Description, next.SinceMS = was.Parts, was.Description, was.SinceMS
		case was != nil || lost:
			accepted = append(accepted, is.tool)
		}
		ps.byTool[is.tool] = next
	}
	slices.Sort(accepted)
	return accepted
}
