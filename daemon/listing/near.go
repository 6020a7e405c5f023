package listing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/plural"
	"holdline/daemon/spelling"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// Limits of the suggestions in an error about a name that does not exist.
const (
	maxNear     = 5
	maxCompared = 48  // bytes of a name
	maxQuoted   = 128 // bytes of a name
)

// UnknownServer returns the fault unknown_tool of a call to a server that the caller
// does not see. It names those servers whose names are most like it.
func (v *View) UnknownServer(name string) error {
	return unknown("no server "+quote(name)+" is hosted here", near(name, v.Servers()))
}

// UnknownTool returns the fault unknown_tool of a call to a tool that a server does
// not offer. It names those tools that the caller may use and whose names are most
// like it.
func (v *View) UnknownTool(server, own string) error {
	var names []string
	if s := v.Server(server); s != nil {
		for _, o := range s.Offering.All(Tools) {
			if v.mayUse(server, o.Remote.Names...) {
				names = append(names, o.Own)
			}
		}
	}
	return unknown("server "+server+" offers no tool "+quote(own), near(own, names))
}

// unknown returns the fault that says what does not exist, and what does.
func unknown(detail string, near []string) error {
	switch len(near) {
	case 0:
	case 1:
		detail += "; there is " + near[0]
	default:
		detail += "; there are " + strings.Join(near, ", ")
	}
	return fault.New(fault.UnknownTool, fault.Host, mcp.ToolsCall+":"+tool.CallTool, "%s", detail)
}

// quote returns a name that a caller made up, fit for an error.
func quote(name string) string { return strconv.Quote(name[:min(len(name), maxQuoted)]) }

// near returns at most [maxNear] of the names, those most like name first. A name
// that contains the other one counts as nearest; the rest go by edit distance,
// without regard to case. Long names are compared by their beginnings only, which
// bounds the work.
func near(name string, names []string) []string {
	name = strings.ToLower(name[:min(len(name), maxCompared)])
	type rated struct {
		name     string
		distance int
	}
	all := make([]rated, len(names))
	for i, other := range names {
		lower := strings.ToLower(other[:min(len(other), maxCompared)])
		all[i] = rated{other, spelling.Distance(name, lower)}
		if strings.Contains(lower, name) {
			all[i].distance = 0
		}
	}
	slices.SortFunc(all, func(a, b rated) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var out []string
	for _, r := range all[:min(len(all), maxNear)] {
		out = append(out, r.name)
	}
	return out
}

// maxClashes bounds the resources that a note of [Clashes] names; the others are only counted.
const maxClashes = 3

// Clashes returns a note for the user on the resources of a server that an earlier server, by name, lists as
// well: sessions that see both get the earlier server's. owners has the server of each URI so far; Clashes
// adds those of this server. together reports whether a session is there that sees both servers: without
// one nobody misses anything. It returns no note, or one for each earlier server.
func Clashes(server string, of *Offering, owners map[string]string, together func(owner string) bool) []string {
	shared := map[string][]string{} // URIs by the earlier server
	for _, k := range []Kind{Resources, Templates} {
		for _, o := range of.All(k) {
			if owner := owners[o.Own]; owner == "" {
				owners[o.Own] = server
			} else if owner != server {
				shared[owner] = append(shared[owner], o.Own)
			}
		}
	}
	var notes []string
	for _, owner := range slices.Sorted(maps.Keys(shared)) {
		if !together(owner) {
			continue
		}
		uris := shared[owner]
		var names []string
		for _, uri := range uris[:min(len(uris), maxClashes)] {
			names = append(names, fault.Quote([]byte(uri)))
		}
		if more := len(uris) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		notes = append(notes, fmt.Sprintf("sessions that see both get %s of server %s: %s; to have this one's: "+
			"holdline mcp-stdio --server %s", plural.Count(len(uris), "resource"), owner, strings.Join(names, ", "), server))
	}
	return notes
}
