package listing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"holdline/daemon/policy"
)

// Lists are the listings of a server by kind, as the server spelled them.
type Lists [Kinds][]json.RawMessage

// Offering is what one process of a server offers. It never changes: processes
// that list the same share one. Its methods accept nil, an unknown offering,
// which offers nothing.
type Offering struct {
	lists  Lists
	about  json.RawMessage // result of the handshake
	cut    []string        // notes for users: which entries are left out
	offers [Kinds][]*Offer // by the name that sessions see
	shown  [Kinds]map[string]*Offer
	own    [Kinds]map[string]*Offer // by the server's own name, and by [Offer.Alone]
}

// Offering makes the offers of lists. about is the result of the handshake, and
// cut says for users which entries are missing in the lists.
func (s *Source) Offering(lists Lists, about json.RawMessage, cut []string) *Offering {
	of := &Offering{lists: lists, about: about, cut: cut}
	for k := range Kinds {
		of.shown[k], of.own[k] = map[string]*Offer{}, map[string]*Offer{}
		for _, listing := range lists[k] {
			o, err := s.offer(k, listing)
			if err != nil {
				s.Warn(k.MCP().Member, err)
			}
			if o == nil || of.shown[k][o.Remote.Name] != nil { // or it is listed twice
				continue
			}
			of.offers[k] = append(of.offers[k], o)
			of.shown[k][o.Remote.Name] = o
			of.own[k][o.Own] = o
			if o.Alone != "" && of.own[k][o.Alone] == nil {
				of.own[k][o.Alone] = o
			}
		}
		slices.SortFunc(of.offers[k], func(a, b *Offer) int { return cmp.Compare(a.Remote.Name, b.Remote.Name) })
	}
	return of
}

// Remake makes the offers of the same lists by another source. o does not change.
func (o *Offering) Remake(s *Source) *Offering { return s.Offering(o.lists, o.about, o.cut) }

// All returns the offers of a kind, sorted by the name that sessions see.
func (o *Offering) All(k Kind) []*Offer {
	if o == nil {
		return nil
	}
	return o.offers[k]
}

// Find returns the offer of that name, or nil: the name that sessions see or,
// with alone, that which a session for this server only sees.
func (o *Offering) Find(k Kind, name string, alone bool) *Offer {
	switch {
	case o == nil:
		return nil
	case alone:
		return o.own[k][name]
	}
	return o.shown[k][name]
}

// Tool returns the tool of that name, or nil: the server's own name for it or
// else the one that sessions see.
func (o *Offering) Tool(name string) *Offer {
	return cmp.Or(o.Find(Tools, name, true), o.Find(Tools, name, false))
}

// Lists returns the lists as the server spelled them.
func (o *Offering) Lists() Lists {
	if o == nil {
		return Lists{}
	}
	return o.lists
}

// About returns the result of the handshake; nil if it is unknown.
func (o *Offering) About() json.RawMessage {
	if o == nil {
		return nil
	}
	return o.about
}

// Cut returns notes for users about entries that are left out.
func (o *Offering) Cut() []string {
	if o == nil {
		return nil
	}
	return o.cut
}

// Equal reports whether the offering was made of these.
func (o *Offering) Equal(lists *Lists, about json.RawMessage, cut []string) bool {
	return o != nil && slices.Equal(o.cut, cut) && sameJSON(o.about, about) && o.lists.equal(lists)
}

// equal reports whether two sets of lists mean the same.
func (l *Lists) equal(other *Lists) bool {
	for k := range Kinds {
		if !slices.EqualFunc(l[k], other[k], func(a, b json.RawMessage) bool { return sameJSON(a, b) }) {
			return false
		}
	}
	return true
}

// sameJSON reports whether two values mean the same. Bytes may differ: a list
// from a file has no white space.
func sameJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || a != nil && b != nil && policy.Digest(a) == policy.Digest(b)
}

// Differing returns the kinds of which sessions see different listings in a and b.
// Each may be nil. Equal pointers are never compared in detail.
func Differing(a, b *Offering) []Kind {
	var all []Kind
	for k := range Kinds {
		if a != b && !slices.EqualFunc(a.All(k), b.All(k), sameOffer) {
			all = append(all, k)
		}
	}
	return all
}

// sameOffer reports whether sessions see no difference between two offers.
func sameOffer(a, b *Offer) bool {
	return a.Remote.Contract == b.Remote.Contract && sameJSON(a.Raw, b.Raw)
}
