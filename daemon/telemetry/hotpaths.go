package telemetry

import (
	"cmp"
	"maps"
	"slices"
)

// Bounds of the table of paths, and of its summary.
const (
	snapshotEvery = 100 // calls
	shownPaths    = 12
	maxHotPaths   = 1024
)

// hotPaths counts calls by the path that they name. A lock of its owner guards it.
type hotPaths struct {
	events int64
	byPath map[string]*pathLine
}

// pathLine is one path in the summary. Latencies are in milliseconds.
type pathLine struct {
	Path     string `json:"path"`
	Requests int64  `json:"request_count"`
	Errors   int64  `json:"error_count"`
	Average  int64  `json:"avg_latency_ms"`
	Max      int64  `json:"max_latency_ms"`
	sum      int64
}

// hotLine is the log's summary: the paths that were called most often, and those that
// took longest on average.
type hotLine struct {
	Event    string     `json:"event"`
	TS       int64      `json:"ts_unix_ms"`
	RepoRoot *string    `json:"repo_root"` // null if unknown
	Total    int64      `json:"total_tool_events"`
	Hottest  []pathLine `json:"hottest_paths"`
	Slowest  []pathLine `json:"slowest_paths"`
}

// countCall counts the call of a line. After each hundredth call it returns a summary, else
// nil. If the table is full, a new path replaces the one with the fewest calls.
func (h *hotPaths) countCall(line *callLine) *hotLine {
	h.events++
	if path := line.PathHint; path != "" {
		p := h.byPath[path]
		if p == nil {
			if len(h.byPath) >= maxHotPaths {
				delete(h.byPath, slices.MinFunc(slices.Collect(maps.Values(h.byPath)), func(a, b *pathLine) int {
					return cmp.Compare(a.Requests, b.Requests)
				}).Path)
			}
			p = &pathLine{Path: path}
			h.byPath[path] = p
		}
		p.Requests++
		p.sum += line.Latency
		p.Average = p.sum / p.Requests
		p.Max = max(p.Max, line.Latency)
		if line.Fault != nil {
			p.Errors++
		}
	}
	if h.events%snapshotEvery != 0 {
		return nil
	}
	return h.snapshot(line.TS, line.RepoRoot)
}

// snapshot returns the summary, at now in Unix milliseconds.
func (h *hotPaths) snapshot(now int64, root string) *hotLine {
	rows := make([]pathLine, 0, len(h.byPath))
	for _, p := range h.byPath {
		rows = append(rows, *p)
	}
	first := func(order func(a, b pathLine) int) []pathLine {
		slices.SortFunc(rows, order)
		return slices.Clone(rows[:min(len(rows), shownPaths)])
	}
	var known *string
	if root != "" {
		known = &root
	}
	return &hotLine{
		Event: "hot_paths_snapshot", TS: now, RepoRoot: known, Total: h.events,
		Hottest: first(func(a, b pathLine) int {
			return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(b.Max, a.Max), cmp.Compare(a.Path, b.Path))
		}),
		Slowest: first(func(a, b pathLine) int {
			return cmp.Or(cmp.Compare(b.Average, a.Average), cmp.Compare(b.Requests, a.Requests),
				cmp.Compare(a.Path, b.Path))
		}),
	}
}
