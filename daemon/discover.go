package daemon

import (
	"context"

	"holdline/daemon/tool"
)

// discover returns what hosted servers offer that a caller may use, and what is
// wrong with them.
func (l *life) discover(ctx context.Context, c tool.Caller, start bool) tool.Discovery {
	var d tool.Discovery
	for _, one := range l.servers.Discover(ctx, c, start) {
		d.Servers++
		if one.Fault != nil {
			d.Troubles = append(d.Troubles, tool.Trouble{Server: one.Server, Error: one.Fault.Fault.Detail})
		}
		for _, t := range one.Tools {
			d.Tools = append(d.Tools, tool.Candidate{Server: one.Server, Tool: t.Name, Exposed: t.Exposed, Listing: t.Listing})
		}
	}
	return d
}
