package daemon

import (
	"context"
	"strings"
	"sync/atomic"

	"holdline/daemon/config"
	"holdline/daemon/hosttools"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
)

// rules are the word of the configuration, as it is when they are asked, on who
// may use what.
type rules struct {
	cfg *atomic.Pointer[config.Config]
}

func (r rules) May(identity, name string) bool {
	ok, _ := policy.NewRules(r.cfg.Load()).May(identity, "", name)
	return ok
}

func (r rules) Check(identity, server, name string) error {
	cfg := r.cfg.Load()
	own := name
	if server == "" { // the longest that it may be of
		for prefix := range cfg.Servers {
			if rest, ok := strings.CutPrefix(name, prefix+"__"); ok && len(prefix) > len(server) {
				server, own = prefix, rest
			}
		}
	}
	return policy.NewRules(cfg).Check(identity, server, own)
}

func (r rules) Reaches(identity, server string) bool {
	return policy.NewRules(r.cfg.Load()).Reaches(identity, server)
}

func (r rules) Searches(identity string) bool { return r.cfg.Load().Searches(identity) }

// discover is what hosted servers offer that a caller may use, and what is
// wrong with them.
func (l *life) discover(ctx context.Context, c tool.Caller, start bool) hosttools.Discovery {
	may := rules{&l.config}
	var d hosttools.Discovery
	for _, one := range l.servers.Discover(ctx, c, start, func(server string) bool { return may.Reaches(c.Identity, server) }) {
		d.Servers++
		if one.Fault != nil {
			d.Troubles = append(d.Troubles, hosttools.Trouble{Server: one.Server, Error: one.Fault.Fault.Detail})
		}
		for _, t := range one.Tools {
			if may.May(c.Identity, t.Exposed) {
				d.Tools = append(d.Tools, hosttools.Candidate{Server: one.Server, Tool: t.Name, Exposed: t.Exposed, Listing: t.Listing})
			}
		}
	}
	return d
}
