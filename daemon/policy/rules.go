package policy

import (
	"cmp"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"

	"holdline/daemon/config"
	"holdline/daemon/config/glob"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// Rules are the lists of a configuration that say which identity may see and use what.
// A Rules is only a view of the configuration, so it costs nothing to make.
type Rules struct {
	current func() *config.Config
}

// NewRules returns the rules of cfg. cfg must not be nil, and must not change.
func NewRules(cfg *config.Config) Rules {
	return Rules{func() *config.Config { return cfg }}
}

// CurrentRules returns the rules of the configuration in force. Each question to them
// calls current once or more.
func CurrentRules(current func() *config.Config) Rules { return Rules{current} }

// Version returns the configuration in force: it never changes, another one takes its place.
func (r Rules) Version() any { return r.current() }

// May reports whether a session may see and use something; see [Rules.Explain].
func (r Rules) May(who tool.Who, server string, names ...string) bool {
	ok, _ := r.Explain(who, server, names...)
	return ok
}

// Searches reports whether a session finds the tools of hosted servers by a search,
// instead of getting a list.
func (r Rules) Searches(who tool.Who) bool {
	return r.current().Identities[who.Identity].Expose == config.ExposeSearch
}

// Explain reports whether a session may see and use something of a hosted server: a
// tool, a prompt, a resource or a template of resources. With server "" it is one of
// holdline's own tools. The reason names the rule and its key in the file.
//
// A name is the server's own name; for a resource it is the URI. A resource that comes
// from a template has the template's name as a second name.
//
// Two pairs of lists decide, and both must let it pass: the server's pair, with the own
// name, and the identity's pair, with SERVER__NAME, or with the name of an own tool.
// Both pairs also get the name that sessions see, which may differ: see [tool.Shown].
// In each pair, a glob of deny that matches any of the names is stronger than one of
// allow. A list allow, even an empty one, refuses what it does not name. An identity
// that the file does not name may use everything. If the session has a view, its pair
// decides as well, in the same way, and so does its list of servers. Its deny, and that
// of the identity, also get the name that the view gives a tool. The lists of the socket
// of a guest decide as well; see guest.go.
//
// Anonymous may use no hosted server, and none of the own tools that run in a worker.
//
// The own tools that find and call tools of hosted servers are only for identities that
// search for tools. A list allow need not name these two: what they find and call is
// checked by itself.
func (r Rules) Explain(who tool.Who, server string, names ...string) (ok bool, reason string) {
	if server == "" {
		return r.mayOwn(who, names[0])
	}
	if ok, reason = r.Offers(server, names...); !ok {
		return false, reason
	}
	if who.Identity == tool.Anonymous {
		return false, "anonymous, who sends no greeting, uses holdline's own tools only"
	}
	if why := r.shutOut(who, server); why != "" {
		return false, why
	}
	shown := r.Renamed(who, server, names[0])
	for l := range r.lists(who) {
		if ok, reason = l.pass(server, reason, func() asked {
			a := askedOf(server, server+"__", names)
			if shown != "" {
				a.deny = append(a.deny, shown)
			}
			return a
		}); !ok {
			break
		}
	}
	return ok, reason
}

// lists are a pair of lists that a session has to pass, besides those of a server.
type lists struct {
	at          listsKey
	gone        bool     // nothing passes: the configuration has them no more
	servers     []string // that pass; nil is all
	allow, deny []string
}

// lists returns the pairs of lists of a session.
func (r Rules) lists(who tool.Who) iter.Seq[lists] {
	return func(yield func(lists) bool) {
		cfg := r.current()
		id := cfg.Identities[who.Identity]
		if !yield(lists{at: listsKey{"identities.", who.Identity}, allow: id.Allow, deny: id.Deny}) {
			return
		}
		if who.View != "" {
			v, there := cfg.Views[who.View]
			if !yield(lists{listsKey{"views.", who.View}, !there, v.Servers, v.Allow, v.Deny}) {
				return
			}
		}
		if who.Guest != "" {
			yield(r.guestLists(who))
		}
	}
}

// pass asks the lists for something of a server, or for an own tool if server is "". If they do not
// decide, the answer is true, for the reason undecided.
func (l *lists) pass(server, undecided string, names func() asked) (bool, string) {
	switch {
	case l.gone:
		return false, fmt.Sprintf("the configuration has no %s any more", l.at)
	case server != "" && l.servers != nil && !slices.Contains(l.servers, server):
		return false, fmt.Sprintf("%s.servers does not name %s", l.at, server)
	}
	return pass(l.at, l.allow, l.deny, undecided, names)
}

// Renamed returns the name that the view of a session gives a tool of a server, or "".
func (r Rules) Renamed(who tool.Who, server, own string) string {
	rename := r.current().Views[who.View].Rename
	if len(rename) == 0 {
		return ""
	}
	return cmp.Or(rename[server+"__"+own], rename[tool.Shown(server, own)])
}

// Original returns the name SERVER__NAME of a tool that the view of a session has renamed. Other
// names stay.
func (r Rules) Original(who tool.Who, name string) string {
	for from, to := range r.current().Views[who.View].Rename {
		if to == name {
			server, own, _ := tool.SplitShown(from)
			return tool.Shown(server, own)
		}
	}
	return name
}

// Offers reports whether the server's own lists let something pass, for any identity.
func (r Rules) Offers(server string, names ...string) (ok bool, reason string) {
	h := r.current().Servers[server].Holdline
	return pass(listsKey{"mcpServers.", server, ".holdline"}, h.Allow, h.Deny, silent,
		func() asked { return askedOf(server, "", names) })
}

// mayOwn reports whether a session may use one of holdline's own tools; see
// [Rules.Explain].
func (r Rules) mayOwn(who tool.Who, name string) (ok bool, reason string) {
	at := listsKey{"identities.", who.Identity}
	finds := name == tool.FindTools || name == tool.CallTool
	where, _ := tool.OwnDispatch(name)
	switch {
	case finds && !r.Searches(who):
		return false, fmt.Sprintf("%s.expose is not %q", at, config.ExposeSearch)
	case who.Identity == tool.Anonymous && where == tool.OnWorker:
		return false, "anonymous, who sends no greeting, uses no tool that starts a program"
	case who.Guest != "" && strings.HasPrefix(name, "consult"):
		return false, "a consult reads files of this machine, so guests have none"
	case finds:
		reason = fmt.Sprintf("%s.expose is %q", at, config.ExposeSearch)
	default:
		reason = silent
	}
	for l := range r.lists(who) {
		if finds {
			l.allow = nil
		}
		if ok, reason = l.pass("", reason, only(name)); !ok {
			break
		}
	}
	return ok, reason
}

// asked has the names for which the lists allow and deny are asked. A list allow has to name one of
// allow, and one of each of also.
type asked struct {
	allow, deny []string
	also        [][]string
}

// askedOf returns the names of something of a server: prefix with each of its names,
// and what sessions see. Sessions see a URI as it is, so a glob of deny without a
// prefix holds for it, too.
//
// Different URIs may mean the same resource. The lists deny therefore also get all that programs
// could read the URI as. The lists allow must allow its normal form as well. They get only the URI
// without escapes and dots if dots lead out of a directory: otherwise a glob for one directory would
// allow what lies beside it.
func askedOf(server, prefix string, names []string) (a asked) {
	for _, name := range names {
		a.allow = append(a.allow, prefix+name, tool.Shown(server, name), prefix+tool.ShownAlone(server, name))
		if reads := readings(name); reads != nil {
			a.deny = append(a.deny, name)
			for _, as := range reads {
				a.deny = append(a.deny, as, prefix+as)
			}
		}
	}
	a.deny = append(a.deny, a.allow...)
	if clean, climbs := cleanURI(names[0]); climbs {
		a.allow = []string{prefix + clean}
		for _, end := range []string{"#", "?#"} { // some programs leave out what follows
			if i := strings.IndexAny(names[0], end); i >= 0 {
				clean, _ = cleanURI(names[0][:i])
				a.also = append(a.also, []string{prefix + clean})
			}
		}
	}
	if normal := normalURI(names[0]); normal != "" && normal != names[0] && strings.Contains(normal, "/") {
		also := []string{prefix + normal, tool.Shown(server, normal), prefix + tool.ShownAlone(server, normal)}
		for _, template := range names[1:] {
			also = append(also, prefix+template)
		}
		a.also = append(a.also, also)
	}
	return a
}

// Reaches reports whether a session may use anything of a server, as far as the lists
// say so without the names of its tools. If not, the daemon need not show the server to
// the session at all.
func (r Rules) Reaches(who tool.Who, server string) bool {
	if who.Identity == tool.Anonymous || r.shutOut(who, server) != "" {
		return false
	}
	for l := range r.lists(who) {
		if !l.reaches(server) {
			return false
		}
	}
	return true
}

// reaches is [Rules.Reaches] for one pair of lists.
func (l *lists) reaches(server string) bool {
	if l.gone || l.servers != nil && !slices.Contains(l.servers, server) {
		return false
	}
	prefix := server + "__"
	for _, pattern := range l.deny {
		if strings.HasSuffix(pattern, "*") && !strings.HasSuffix(pattern, `\*`) && glob.Match(pattern, prefix) {
			return false // and so it matches all that begins like that
		}
	}
	return l.allow == nil || slices.ContainsFunc(l.allow, func(pattern string) bool {
		fixed := pattern
		if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
			fixed = pattern[:i]
		}
		return strings.HasPrefix(prefix, fixed) && fixed != pattern || strings.HasPrefix(fixed, prefix)
	})
}

// silent is the reason for an answer that no list decides.
const silent = "no rule names it"

// listsKey is the key of a pair of lists in the configuration, in parts: it is put together only
// for an answer that names it.
type listsKey [3]string

// String returns the key.
func (k listsKey) String() string { return strings.Join(k[:], "") }

// pass asks one pair of lists, which stand under at in the configuration, for the names
// that names returns. If the lists do not decide, the answer is true, for the reason
// undecided. It calls names only if there are lists: most identities have none, and there
// may be thousands of tools.
func pass(at listsKey, allow, deny []string, undecided string, names func() asked) (bool, string) {
	if allow == nil && len(deny) == 0 {
		return true, undecided
	}
	by := names()
	if i := forbidding(deny, by.deny); i >= 0 {
		return false, fmt.Sprintf("%s.deny[%d] %q names it", at, i, deny[i])
	}
	if allow == nil {
		return true, undecided
	}
	unnamed := func(names []string) bool { return matching(allow, names) < 0 }
	if i := matching(allow, by.allow); i >= 0 && !slices.ContainsFunc(by.also, unnamed) {
		return true, fmt.Sprintf("%s.allow[%d] %q names it", at, i, allow[i])
	}
	return false, fmt.Sprintf("%s.allow does not name it", at)
}

// only returns a func for [pass] if both lists are asked for the same names.
func only(names ...string) func() asked {
	return func() asked { return asked{allow: names, deny: names} }
}

// matching returns the index of the first glob that matches one of the names, or -1.
func matching(globs, names []string) int {
	return slices.IndexFunc(globs, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return glob.Match(pattern, name) })
	})
}

// foldsCase says that the file systems of this machine take names in another case for the same ones.
// Tests set it.
var foldsCase = runtime.GOOS == "darwin"

// forbidding is [matching] for a list deny: where the case of files does not matter, it does not matter for
// their URIs.
func forbidding(globs, names []string) int {
	if i := matching(globs, names); i >= 0 || !foldsCase {
		return i
	}
	var files []string
	for _, name := range names {
		if name = strings.ToLower(name); strings.Contains(name, "file:") {
			files = append(files, name)
		}
	}
	return slices.IndexFunc(globs, func(pattern string) bool {
		return matching([]string{strings.ToLower(pattern)}, files) >= 0
	})
}

// Check is [Rules.Explain] as an error: nil, or a denied fault.
func (r Rules) Check(who tool.Who, server string, names ...string) error {
	ok, reason := r.Explain(who, server, names...)
	return denied(ok, reason, who, server, names[0])
}

// CheckShown is [Rules.Check] for a tool of which only a name is known so far. That is
// the name that sessions see or, with a server, perhaps that server's own name. If the
// name may have been altered, CheckShown asks only the lists deny: the lists allow may
// name the tool by its own name.
func (r Rules) CheckShown(who tool.Who, server, shown string) error {
	of, name, hosted := tool.SplitShown(shown)
	_, configured := r.current().Servers[of]
	switch {
	case server != "" && (!hosted || of != server):
		return r.Check(who, server, shown)
	case who.Identity == tool.Anonymous || !tool.MayBeAltered(shown):
	default:
		h := r.current().Servers[of].Holdline
		ok, reason := pass(listsKey{"mcpServers.", of, ".holdline"}, nil, h.Deny, silent, only(name, shown))
		for l := range r.lists(who) {
			if l.allow = nil; ok {
				ok, reason = l.pass("", reason, only(shown))
			}
		}
		return denied(ok, reason, who, of, name)
	}
	if !hosted || !configured {
		return r.Check(who, "", shown)
	}
	return r.Check(who, of, name)
}

// denied returns nil if ok, else a denied fault with the reason.
func denied(ok bool, reason string, who tool.Who, server, name string) error {
	if ok {
		return nil
	}
	if who.Guest != "" { // who is not to learn what there is besides
		server, name, reason = "", exposed(server, name), "the socket does not allow it"
	}
	return fault.New(fault.Denied, fault.Host, operation(exposed(server, name)), "%s may not use %s: %s",
		who, named(server, name), reason)
}

// operation returns the name of a call in telemetry and in faults.
func operation(tool string) string { return "tools/call:" + tool }

// exposed returns the name of a tool with its server in front, if it has one.
func exposed(server, tool string) string {
	if server == "" {
		return tool
	}
	return server + "__" + strings.TrimPrefix(tool, server+"__")
}

// named returns the name of a tool for people.
func named(server, tool string) string {
	if server == "" {
		return tool
	}
	return tool + " of " + server
}
