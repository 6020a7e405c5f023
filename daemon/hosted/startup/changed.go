package startup

import (
	"fmt"
	"log/slog"

	"holdline/daemon/events"
	"holdline/protocol/control"
)

// WarnChanged logs the names of a server's tools that differ from their pins, at most 20 of
// them.
func WarnChanged(log *slog.Logger, server string, changed []string) {
	if len(changed) == 0 {
		return
	}
	const most = 20
	what := "1 tool is not what it was"
	if len(changed) > 1 {
		what = fmt.Sprintf("%d tools are not what they were", len(changed))
	}
	log.Warn("tools are not what they were when they were first seen",
		"server", server, "tools", changed[:min(len(changed), most)], "count", len(changed), "event",
		events.NewBad(control.Changed, server, "%s, see: holdline servers tools %s --changes", what, server))
}
