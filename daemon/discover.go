package daemon

import (
	"context"
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

func (r rules) May(identity, server string, names ...string) bool {
	ok, _ := policy.NewRules(r.cfg.Load()).May(identity, server, names...)
	return ok
}

func (r rules) Check(identity, server string, names ...string) error {
	return policy.NewRules(r.cfg.Load()).Check(identity, server, names...)
}

func (r rules) CheckShown(identity, server, shown string) error {
	return policy.NewRules(r.cfg.Load()).CheckShown(identity, server, shown)
}

func (r rules) Reaches(identity, server string) bool {
	return policy.NewRules(r.cfg.Load()).Reaches(identity, server)
}

func (r rules) Searches(identity string) bool { return r.cfg.Load().Searches(identity) }

// discover is what hosted servers offer that a caller may use, and what is
// wrong with them.
func (l *life) discover(ctx context.Context, c tool.Caller, start bool) hosttools.Discovery {
	var d hosttools.Discovery
	for _, one := range l.servers.Discover(ctx, c, start) {
		d.Servers++
		if one.Fault != nil {
			d.Troubles = append(d.Troubles, hosttools.Trouble{Server: one.Server, Error: one.Fault.Fault.Detail})
		}
		for _, t := range one.Tools {
			d.Tools = append(d.Tools, hosttools.Candidate{Server: one.Server, Tool: t.Name, Exposed: t.Exposed, Listing: t.Listing})
		}
	}
	return d
}
