package hosted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/policy"
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// lists are what a process lists, as it came.
type lists [kinds][]json.RawMessage

// offering is what one process of a server offers. It is never changed:
// processes that offer the same share one.
type offering struct {
	raw    lists
	about  json.RawMessage          // result of the handshake
	cut    []string                 // which lists are longer than what is known of them, in words
	offers [kinds][]*offer          // by exposed name
	byName [kinds]map[string]*offer // by exposed name
	byOwn  [kinds]map[string]*offer // by the server's own
}

// all are the offers of a kind; none of an offering that is not known.
func (o *offering) all(k kind) []*offer {
	if o == nil {
		return nil
	}
	return o.offers[k]
}

// named is what bears that name, as a session says it; nil if nothing does.
func (o *offering) named(k kind, c *tool.Caller, name string) *offer {
	switch {
	case o == nil:
		return nil
	case c.Only != "":
		return o.byOwn[k][name]
	}
	return o.byName[k][name]
}

// either is the tool of that name, its server's own or else that which sessions
// see; nil if there is none.
func (o *offering) either(name string) *offer {
	if o == nil {
		return nil
	}
	return cmp.Or(o.byOwn[tools][name], o.byName[tools][name])
}

// own is the tool of that name of the server's own; nil if there is none.
func (o *offering) own(name string) *offer {
	if o == nil {
		return nil
	}
	return o.byOwn[tools][name]
}

// lists are the lists as they came; none of an offering that is not known.
func (o *offering) lists() lists {
	if o == nil {
		return lists{}
	}
	return o.raw
}

// says is what the process has said of itself; nil if that is not known.
func (o *offering) says() json.RawMessage {
	if o == nil {
		return nil
	}
	return o.about
}

// shortened tells which lists were cut off, in words.
func (o *offering) shortened() []string {
	if o == nil {
		return nil
	}
	return o.cut
}

// offering makes the offers of a process's lists.
func (s *server) offering(raw lists, about json.RawMessage, cut []string) *offering {
	of := &offering{raw: raw, about: about, cut: cut}
	for k := range kinds {
		of.byName[k], of.byOwn[k] = map[string]*offer{}, map[string]*offer{}
		for _, listing := range raw[k] {
			o, err := s.offer(k, listing)
			if err != nil {
				s.m.log.Warn("left out, its listing is malformed", "server", s.spec.Name, "list", k.sort().member, "err", err)
			}
			if o == nil || of.byName[k][o.remote.Name] != nil { // or it is listed twice
				continue
			}
			of.offers[k] = append(of.offers[k], o)
			of.byName[k][o.remote.Name] = o
			of.byOwn[k][o.name] = o
			if o.alone != "" && of.byOwn[k][o.alone] == nil {
				of.byOwn[k][o.alone] = o
			}
		}
		slices.SortFunc(of.offers[k], func(a, b *offer) int { return cmp.Compare(a.remote.Name, b.remote.Name) })
	}
	return of
}

// offersLocked is what a caller is offered: what the process that it uses has
// listed, or listed last, or else what is known of the server. It is nil if
// nothing is.
func (s *server) offersLocked(c *tool.Caller) *offering {
	return s.offersOfLocked(s.instanceKey(c))
}

func (s *server) offersOfLocked(key instanceKey) *offering {
	return cmp.Or(s.ownLocked(key), s.latest)
}

// ownLocked is what the processes of an instance have listed last; nil if none
// has.
func (s *server) ownLocked(key instanceKey) *offering {
	if inst := s.m.instances[key]; inst != nil && inst.own != nil {
		return inst.own
	}
	return s.bequeathedLocked(key)
}

// bequeathedLocked is what the last process of an instance has listed that an
// earlier daemon had, as long as something of it is left.
func (s *server) bequeathedLocked(key instanceKey) *offering {
	var last *upstream
	for u := range s.m.processes {
		if u.inst.key == key && u.inst.srv == s && u.inst.own != nil && (last == nil || u.generation > last.generation) {
			last = u
		}
	}
	if last == nil {
		return nil
	}
	return last.inst.own
}

// take takes what a process lists, and where that was cut off, and tells
// sessions whose lists are others by that.
func (u *upstream) take(raw lists, cut []string) {
	s, inst := u.inst.srv, u.inst
	m, list := u.m, likenesses(raw[tools])
	m.mu.Lock()
	about := u.result
	m.mu.Unlock()
	u.keepLists(raw, about, cut) // before anybody uses them: the next daemon finds there what was called
	m.mu.Lock()
	if m.servers[s.spec.Name] != s && !inst.trial || inst.up != nil && inst.up != u { // it was configured otherwise meanwhile, or has a successor
		m.mu.Unlock()
		return
	}
	before, latest, listed := s.offersOfLocked(inst.key), s.latest, inst.own
	now := s.knownLocked(inst, raw, about, cut)
	inst.own, s.latest = now, now
	altered, pinned := s.pinLocked(list, time.Now())
	told := s.concernedLocked(inst, differing(before, now), differing(latest, now))
	if inst.trial { // who takes its place is told then
		told = nil
	}
	m.mu.Unlock()
	s.warn(altered)
	if latest != now || pinned {
		s.keep()
	}
	if listed != nil && listed != now {
		m.cache.Forget(s.spec.Name)
	}
	for _, one := range told {
		one.c.ListChanged(one.k.sort().changed)
	}
}

// knownLocked is the offering of lists: one that is there already, if it is
// the same.
func (s *server) knownLocked(inst *instance, raw lists, about json.RawMessage, cut []string) *offering {
	for _, of := range []*offering{inst.own, s.latest} {
		if of != nil && slices.Equal(of.cut, cut) && sameJSON(of.about, about) && sameLists(&of.raw, &raw) {
			return of
		}
	}
	return s.offering(raw, about, cut)
}

func sameLists(a, b *lists) bool {
	for k := range kinds {
		if !slices.EqualFunc(a[k], b[k], func(a, b json.RawMessage) bool { return sameJSON(a, b) }) {
			return false
		}
	}
	return true
}

// sameJSON tells whether two values say the same: one may have been kept in a
// file, without its white space.
func sameJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || a != nil && b != nil && policy.Digest(a) == policy.Digest(b)
}

// news is a list of a session's that is not what it was.
type news struct {
	c tool.Client
	k kind
}

// concernedLocked are the sessions that are told of other lists: those that
// share the instance of that which differs for them, and those whose own has
// never listed of what else differs.
func (s *server) concernedLocked(inst *instance, shared, others []kind) []news {
	var all []news
	for _, c := range s.m.clients {
		who := c.Caller()
		if !s.visible(&who) {
			continue
		}
		key, differ := s.instanceKey(&who), others
		switch {
		case key == inst.key:
			differ = shared
		case s.ownLocked(key) != nil:
			continue
		}
		for _, k := range differ {
			all = append(all, news{c, k})
		}
	}
	return all
}

// differing are the kinds of which two offerings differ.
func differing(a, b *offering) []kind {
	var all []kind
	for k := range kinds {
		if a != b && !slices.EqualFunc(a.all(k), b.all(k), sameOffer) {
			all = append(all, k)
		}
	}
	return all
}

func sameOffer(a, b *offer) bool {
	return a.remote.Contract == b.remote.Contract && sameJSON(a.listing, b.listing)
}

// remakeLocked makes all offerings anew, by what is configured now. It reports
// whether some differ from what they were.
func (s *server) remakeLocked() bool {
	changed, made := false, map[*offering]*offering{}
	remake := func(of *offering) *offering {
		if of == nil || made[of] != nil {
			return made[of]
		}
		made[of] = s.offering(of.raw, of.about, of.cut)
		changed = changed || len(differing(of, made[of])) > 0
		return made[of]
	}
	s.latest = remake(s.latest)
	each := map[*instance]struct{}{}
	for u := range s.m.processes {
		each[u.inst] = struct{}{}
	}
	for _, inst := range s.m.instances {
		each[inst] = struct{}{}
	}
	for inst := range each {
		if inst.srv == s {
			inst.own = remake(inst.own)
		}
	}
	return changed
}

// keepLists writes down what a process lists, for the next daemon.
func (u *upstream) keepLists(raw lists, about json.RawMessage, cut []string) {
	mem := memory{Version: memoryVersion, Key: u.inst.key.key, About: about, Cut: cut}
	mem.setLists(raw)
	if err := mem.write(filepath.Join(u.dir, process.FileLists)); err != nil {
		u.log.Warn("what a server lists cannot be written down", "err", err)
	}
}

// readLists reads what a process has listed, by its directory; nil if that is
// not known.
func readLists(dir string) (*memory, error) {
	mem, err := readMemory(filepath.Join(dir, process.FileLists))
	if err != nil || mem.Version != memoryVersion {
		return nil, err
	}
	return &mem, nil
}

// readMemory reads a file of what was listed; one that is not there is empty.
func readMemory(path string) (mem memory, err error) {
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return memory{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &mem)
	}
	return mem, err
}

// Remembered returns what a server has listed last, by its own names, as it is
// kept in the catalog directory: its tools, and its prompts, resources and
// templates. It reports whether that is known. It needs no [Manager].
func Remembered(catalogDir, server string) (toolNames, others []string, known bool) {
	mem, err := readMemory(filepath.Join(catalogDir, server+".json"))
	if err != nil || mem.Version != memoryVersion {
		return nil, nil, false
	}
	for k, list := range mem.lists() {
		for _, listing := range list {
			name, ok := mcp.String(jsonrpc.Field(listing, kind(k).sort().key))
			switch {
			case !ok:
			case kind(k) == tools:
				toolNames = append(toolNames, name)
			default:
				others = append(others, name)
			}
		}
	}
	return toolNames, others, true
}

// write writes the file. What was listed is spelled as it came, but for white
// space.
func (mem *memory) write(path string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(mem); err != nil {
		return fmt.Errorf("what a server offers: %w", err)
	}
	return statedir.WriteFile(path, b.Bytes())
}

func (mem *memory) lists() lists { return lists{mem.Tools, mem.Prompts, mem.Resources, mem.Templates} }

func (mem *memory) setLists(raw lists) {
	mem.Tools, mem.Prompts, mem.Resources, mem.Templates = raw[tools], raw[prompts], raw[resources], raw[templates]
}
