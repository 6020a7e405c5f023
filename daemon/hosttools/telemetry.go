package hosttools

import "holdline/daemon/tool"

// Telemetry is the tool telemetry_snapshot.
func Telemetry(snapshot Snapshot) tool.Tool {
	return snapshotTool("telemetry_snapshot", "Telemetry of holdline",
		"Says what was called through holdline since its daemon started: requests, successes, faults and retries, the "+
			"busiest operations, and with detail=full latencies (p50, p95, p99) and the last error of each. Answers at once.", snapshot)
}
