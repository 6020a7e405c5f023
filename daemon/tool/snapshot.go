package tool

import (
	"context"
)

// Snapshot returns a tool's answer for the asked detail: a text for models, and a value
// that encodes as a JSON object. It must not block.
type Snapshot func(d Detail) (text string, value any)

// snapshotTool returns a tool that answers with a snapshot.
func snapshotTool(name, title, description string, snapshot Snapshot) Tool {
	return Tool{
		Name:        name,
		Description: description,
		Annotations: Annotations{Title: title, ReadOnly: true, Idempotent: true},
		Dispatch:    OnHost,
		Contract:    Convergent,
		Handle: func(_ context.Context, c Call) (Result, error) {
			text, value := snapshot(c.Detail)
			return Result{Text: text, Value: value}, nil
		},
	}
}

// NewHealth returns the tool health_snapshot.
func NewHealth(snapshot Snapshot) Tool {
	return snapshotTool("health_snapshot", "Health of holdline",
		"Says whether holdline, the daemon behind this MCP server, is well: ready or not, the state of its workers, "+
			"which MCP servers are in trouble and why, and with detail=full the last fault, sessions and uptime. "+
			"Answers at once, also while other calls run. Use it when a holdline tool failed and "+
			"you want to know whether to try again.", snapshot)
}

// NewTelemetry returns the tool telemetry_snapshot.
func NewTelemetry(snapshot Snapshot) Tool {
	return snapshotTool("telemetry_snapshot", "Telemetry of holdline",
		"Says what was called through holdline since its daemon started: requests, successes, faults and retries, the "+
			"busiest operations, and with detail=full latencies (p50, p95, p99) and the last error of each. Answers "+
			"at once.", snapshot)
}
