package policy

import (
	"fmt"

	"holdline/daemon/config"
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
func (r Rules) May(identity, server, tool string) (ok bool, reason string) {
	name, reason := tool, "no rule names it"
	if server != "" {
		name = server + "__" + tool
		h := r.cfg.Servers[server].Holdline
		if ok, reason = pass("mcpServers."+server+".holdline", h.Allow, h.Deny, tool, reason); !ok {
			return false, reason
		}
	}
	id := r.cfg.Identities[identity]
	if identity == anonymous && server != "" && id.Allow == nil {
		return false, "anonymous, who sends no greeting, uses holdline's own tools only; identities.anonymous.allow can name more"
	}
	return pass("identities."+identity, id.Allow, id.Deny, name, reason)
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
