package listing

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Offers are what a server offers now. Its processes may list different things: the
// sessions of a scope are offered what the process that they share has listed, and those
// whose process has never listed what any process has listed last.
//
// Offers have no lock of their own. The zero value is that of a server that has never
// listed anything.
type Offers struct {
	latest *Offering            // of the process that listed last, whoever used it; nil until one has
	own    map[string]*Offering // by scope: what its processes have listed last
	before *Offering            // what was listed before the entry was edited, until a process lists anew or does not start
	pins   Pins                 // tools as they were first seen, with any process
}

// Latest returns what any process has listed last, or nil.
func (o *Offers) Latest() *Offering { return o.latest }

// Own returns what the processes of a scope have listed last, or nil.
func (o *Offers) Own(scope string) *Offering { return o.own[scope] }

// Of returns what the sessions of a scope are offered, or nil if nothing is known.
func (o *Offers) Of(scope string) *Offering { return cmp.Or(o.own[scope], o.latest) }

// Expected returns what the sessions of a scope are probably offered once a process is up. It
// differs from [Offers.Of] after the server's entry was edited, until that is known.
func (o *Offers) Expected(scope string) *Offering { return cmp.Or(o.Of(scope), o.before) }

// GiveUp records that no process comes up that would list. It reports whether that changes what
// [Offers.Expected] returns for some scope.
func (o *Offers) GiveUp() bool {
	changes := o.before != nil && o.latest == nil
	o.before = nil
	return changes
}

// View returns what the sessions of a scope are offered by the server of that name.
func (o *Offers) View(server, scope string, blocksChanged bool) ServerView {
	return ServerView{Server: server, Offering: o.Of(scope), Pins: o.pins, BlocksChanged: blocksChanged}
}

// Inherit takes over from the server that had the name before: its pins, and what it has listed as
// what is expected. s makes offers.
func (o *Offers) Inherit(from *Offers, s *Source) {
	o.pins = from.pins
	if from.latest != nil {
		o.before = from.latest.Remake(s)
	}
}

// Load takes over what the server's file has. s makes offers. Unless the lists are of the present
// configuration, only the pins hold, and the lists are expected.
func (o *Offers) Load(mem *Memory, s *Source, present bool) {
	o.pins = NewPins(mem.Pins)
	if o.pins.lost = mem.Lost; mem.Lost != "" || mem.Torn != "" {
		return
	}
	listed := s.Offering(mem.Lists, mem.About, mem.Cut)
	if !present {
		o.before = listed
		return
	}
	// an older daemon has listed them, and pinned nothing
	o.pins.Compare(Likenesses(mem.Lists[Tools]), time.Now())
	o.latest = listed
}

// Lost returns the path of the file that had the server's pins and is damaged, or "". Nothing is pinned, and
// the file stays as it is, until the user accepts the tools.
func (o *Offers) Lost() string { return o.pins.lost }

// Memory returns what the server's file is to have, or nil if it is to stay as it is.
func (o *Offers) Memory(key, era string) *Memory {
	if o.pins.lost != "" {
		return nil
	}
	return &Memory{
		Key: key, Era: era, Lists: o.latest.Lists(), About: o.latest.About(),
		Cut: o.latest.Cut(), Pins: o.pins.Stored(),
	}
}

// Restore records what a process of an earlier daemon has listed for a scope. What is
// known already of the scope, or of all, stays: restore the youngest process first.
func (o *Offers) Restore(scope string, of *Offering) {
	o.set(scope, cmp.Or(o.own[scope], of))
	o.latest = cmp.Or(o.latest, of)
}

// Forget forgets what the processes of a scope have listed.
func (o *Offers) Forget(scope string) { delete(o.own, scope) }

// set records what a scope is offered.
func (o *Offers) set(scope string, of *Offering) {
	if o.own == nil {
		o.own = map[string]*Offering{}
	}
	o.own[scope] = of
}

// Taken is what [Offers.Take] has changed.
type Taken struct {
	Shared   []Kind   // kinds of which the sessions of the scope may be offered something else now
	Others   []Kind   // the same for sessions of scopes that have never listed
	Altered  []string // tools that differ from their pins, and did not before
	Store    bool     // the server's file is to be written
	Relisted bool     // the scope has listed something else before
}

// Take makes the lists of a process what its scope is offered. tools are the likenesses of
// the listed tools. An offering that is equal to an earlier one is not made again, so that
// sessions and scopes share it.
func (o *Offers) Take(scope string, s *Source, is *Memory, tools []Likeness, now time.Time) (t Taken) {
	before, own, latest := o.Of(scope), o.own[scope], o.latest
	var of *Offering
	switch {
	case own.Equal(&is.Lists, is.About, is.Cut):
		of = own
	case latest.Equal(&is.Lists, is.About, is.Cut):
		of = latest
	default:
		of = s.Offering(is.Lists, is.About, is.Cut)
	}
	o.set(scope, of)
	o.latest, o.before = of, nil
	var pinned bool
	t.Altered, pinned = o.pins.Compare(tools, now)
	t.Shared, t.Others = changed(before, of), changed(latest, of)
	t.Store, t.Relisted = latest != of || pinned, own != nil && own != of
	return t
}

// changed returns the kinds of which sessions may be offered something else than before: all if
// it was not known before what they are offered.
func changed(before, of *Offering) []Kind {
	if before == nil {
		return []Kind{Tools, Prompts, Resources, Templates}
	}
	return Differing(before, of)
}

// Remake makes all offerings again, by another configuration. It reports whether one
// differs from what it was.
func (o *Offers) Remake(s *Source) (changed bool) {
	made := map[*Offering]*Offering{}
	remake := func(of *Offering) *Offering {
		if of == nil || made[of] != nil {
			return made[of]
		}
		made[of] = of.Remake(s)
		changed = changed || len(Differing(of, made[of])) > 0
		return made[of]
	}
	o.latest = remake(o.latest)
	for scope, of := range o.own {
		o.own[scope] = remake(of)
	}
	return changed
}

// Accept pins the tools as a scope is offered them, and returns the names of those that
// were pinned otherwise. Pins of tools that only other scopes are offered stay.
func (o *Offers) Accept(scope string) []string {
	keep := map[string]bool{}
	// Scopes that have never listed are offered the latest.
	for _, of := range append(slices.Collect(maps.Values(o.own)), o.latest) {
		for _, tool := range of.All(Tools) {
			keep[tool.Own] = true
		}
	}
	return o.pins.Accept(Likenesses(o.Of(scope).Lists()[Tools]), keep, time.Now())
}

// CountChanged returns how many tools of the latest offering differ from their pins.
func (o *Offers) CountChanged() int { return o.pins.CountChanged(o.latest) }
