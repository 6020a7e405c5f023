package hosttools

import "holdline/daemon/tool"

// Health is the tool health_snapshot.
func Health(snapshot Snapshot) tool.Tool {
	return snapshotTool("health_snapshot", "Health of holdline",
		"Says whether holdline, the daemon behind this MCP server, is well: ready or not, the state of its workers, "+
			"which MCP servers are unwell, the last fault, and with detail=full its sessions, workers and uptime. Answers at once, also while other "+
			"calls run. Use it when a holdline tool failed and you want to know whether to try again.", snapshot)
}
