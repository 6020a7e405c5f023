package daemon

import (
	"context"

	"holdline/daemon/tool"
)

// discover returns what hosted servers offer that a caller may use, and what is
// wrong with them.
func (d *daemon) discover(ctx context.Context, c tool.Caller, start bool) tool.Discovery {
	var found tool.Discovery
	for _, one := range d.servers.Discover(ctx, c, start) {
		found.Servers++
		if one.Fault != nil {
			found.Troubles = append(found.Troubles, tool.Trouble{Server: one.Server, Error: one.Fault.Fault.Detail})
		}
		for _, t := range one.Tools {
			found.Tools = append(found.Tools,
				tool.Candidate{Server: one.Server, Tool: t.Name, Exposed: t.Exposed, Listing: t.Listing})
		}
	}
	return found
}
