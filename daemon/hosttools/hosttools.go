// Package hosttools holds the tools that run inside the daemon. Snapshots answer
// at once, whatever else runs. For agents that are not shown the tools of hosted
// servers there are two more: [Find] finds them by words and may wait a while
// for servers, [Call] is a call of one of them.
package hosttools

import (
	"context"

	"holdline/daemon/tool"
)

// Snapshot makes a tool's answer for the asked detail: porcelain text ("" for
// the generic one) and a value that encodes as an object. It must not block.
type Snapshot func(d tool.Detail) (text string, value any)

func snapshotTool(name, title, description string, snapshot Snapshot) tool.Tool {
	return tool.Tool{
		Name:        name,
		Description: description,
		Annotations: tool.Annotations{Title: title, ReadOnly: true, Idempotent: true},
		Dispatch:    tool.OnHost,
		Contract:    tool.Convergent,
		Bounds:      tool.BoundsOps,
		Handle: func(_ context.Context, c tool.Call) (tool.Result, error) {
			text, value := snapshot(c.Detail)
			return tool.Result{Text: text, Value: value}, nil
		},
	}
}
