package policy

import (
	"fmt"
	"strings"

	"holdline/daemon/config"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// anonymous is who sends no greeting.
const anonymous = "anonymous"

// Rules are the lists of a configuration that say who may see and call which
// tool. They are a view: making them costs nothing.
type Rules struct {
	cfg *config.Config
}

// NewRules are the rules of cfg, which must not be nil and is never changed.
func NewRules(cfg *config.Config) Rules { return Rules{cfg} }

// May tells whether an identity may see and call a tool of a hosted server,
// or, with server "", one of holdline's own; and why, in words that name the
// rule and its key in the file.
//
// Two pairs of lists are asked, the server's by the tool's own name, the
// identity's by "<server>__<tool>" (own tools by their name); both must let it
// pass. In each pair a glob of deny is stronger than one of allow, and a list
// allow, even an empty one, refuses what it does not name. An identity that
// the file does not name may use everything, but anonymous needs a list allow
// for the tools of hosted servers.
//
// The own tools that find tools of hosted servers and call them are for those
// identities whose hosted tools are not listed; a list allow need not name
// them, since what they find and call is asked for by itself.
func (r Rules) May(identity, server, name string) (ok bool, reason string) {
	own := name
	reason = "no rule names it"
	id := r.cfg.Identities[identity]
	switch {
	case server != "":
		name = server + "__" + own
		h := r.cfg.Servers[server].Holdline
		if ok, reason = pass("mcpServers."+server+".holdline", h.Allow, h.Deny, own, reason); !ok {
			return false, reason
		}
	case name == tool.FindTools || name == tool.CallTool:
		expose := "identities." + identity + ".expose"
		if !r.cfg.Searches(identity) {
			return false, fmt.Sprintf("%s is not %q", expose, config.ExposeSearch)
		}
		return pass("identities."+identity, nil, id.Deny, name, fmt.Sprintf("%s is %q", expose, config.ExposeSearch))
	}
	if identity == anonymous && server != "" && id.Allow == nil {
		return false, "anonymous, who sends no greeting, uses holdline's own tools only"
	}
	return pass("identities."+identity, id.Allow, id.Deny, name, reason)
}

// Reaches tells whether an identity may use any tool of a server, as far as
// that can be told without their names: if not, it need not know of the server.
func (r Rules) Reaches(identity, server string) bool {
	id := r.cfg.Identities[identity]
	if identity == anonymous && id.Allow == nil {
		return false
	}
	prefix := server + "__"
	for _, glob := range id.Deny {
		if strings.HasSuffix(glob, "*") && !strings.HasSuffix(glob, `\*`) && config.Match(glob, prefix) {
			return false // and so it matches all that begins like that
		}
	}
	if id.Allow == nil {
		return true
	}
	for _, glob := range id.Allow {
		fixed := glob
		if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
			fixed = glob[:i]
		}
		if strings.HasPrefix(prefix, fixed) && fixed != glob || strings.HasPrefix(fixed, prefix) {
			return true
		}
	}
	return false
}

// pass asks one pair of lists, which stand under key. Silent is the reason if
// they say nothing.
func pass(key string, allow, deny []string, name, silent string) (bool, string) {
	if i := matching(deny, name); i >= 0 {
		return false, fmt.Sprintf("%s.deny[%d] %q names it", key, i, deny[i])
	}
	if allow == nil {
		return true, silent
	}
	if i := matching(allow, name); i >= 0 {
		return true, fmt.Sprintf("%s.allow[%d] %q names it", key, i, allow[i])
	}
	return false, fmt.Sprintf("%s.allow does not name it", key)
}

// matching is the index of the first glob that names name, or -1.
func matching(globs []string, name string) int {
	for i, glob := range globs {
		if config.Match(glob, name) {
			return i
		}
	}
	return -1
}

// Check is [Rules.May] as an error: nil, or a fault of code denied.
func (r Rules) Check(identity, server, tool string) error {
	ok, reason := r.May(identity, server, tool)
	if ok {
		return nil
	}
	return fault.New(fault.Denied, fault.Host, operation(tool), "%s may not use %s: %s", who(identity), named(server, tool), reason)
}

// operation is how telemetry and faults name the call of a tool.
func operation(tool string) string { return "tools/call:" + tool }

func named(server, tool string) string {
	if server == "" {
		return tool
	}
	return tool + " of " + server
}

func who(identity string) string {
	if identity == "" {
		return "a client without a name"
	}
	return identity
}
