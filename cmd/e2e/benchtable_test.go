package e2e

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

// goal is what a line of the table of benchmarks should reach. Fields that are zero ask
// for nothing.
type goal struct {
	ratio float64 // of holdline's figure to the chain's, at most
	most  float64 // of holdline's figure
	least float64 // of holdline's figure
}

// line is one line of that table.
type line struct {
	load     string // in words
	unit     string
	beside   string  // what holdline is compared with; "" is the chain, of processes that only copy
	chain    float64 // its figure; 0 if there is none
	holdline float64
	ratio    float64 // median over all rounds; if it is 0, that of the two figures
	goal     goal

	bench string // set by record
}

// table collects the lines of all benchmarks of this process.
var table struct {
	sync.Mutex

	lines []line
}

// record puts a line into the table, in place of one of an earlier run of the benchmark.
func record(b *testing.B, l line) {
	b.Helper()
	l.bench, _, _ = strings.Cut(strings.TrimPrefix(b.Name(), "Benchmark"), "/")
	if l.ratio == 0 && l.chain != 0 {
		l.ratio = l.holdline / l.chain
	}
	table.Lock()
	defer table.Unlock()
	if i := slices.IndexFunc(table.lines, func(old line) bool { return old.load == l.load }); i >= 0 {
		table.lines[i] = l
		return
	}
	table.lines = append(table.lines, l)
}

// printTable prints the lines that there are, for contrib/doc/performance.md: a table for
// each thing that holdline is compared with.
func printTable(w io.Writer) {
	table.Lock()
	defer table.Unlock()
	slices.SortStableFunc(table.lines, func(a, b line) int { return strings.Compare(a.beside, b.beside) })
	for i, l := range table.lines {
		if i == 0 || l.beside != table.lines[i-1].beside {
			fmt.Fprintf(w, "\n| load | %s | Holdline | ratio | goal | reached | `make bench BENCH=` |\n|---|---|---|---|---|---|---|\n",
				cmp.Or(l.beside, "bare chain"))
		}
		aim, reached := l.verdict()
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | `%s` |\n",
			l.load, figure(l.chain, l.unit), figure(l.holdline, l.unit), figure(l.ratio, ""), aim, reached, l.bench)
	}
	if len(table.lines) > 0 {
		fmt.Fprintln(w)
	}
}

// figure prints a number with three digits that count, and its unit. Zero is nothing.
func figure(v float64, unit string) string {
	if v == 0 || math.IsNaN(v) {
		return ""
	}
	if unit != "" {
		unit = " " + unit
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f%s", v, unit)
	}
	return fmt.Sprintf("%.*f%s", max(0, 2-int(math.Floor(math.Log10(v)))), v, unit)
}

// verdict returns the goal in words, and whether the line has reached it.
func (l line) verdict() (aim, reached string) {
	var over float64 // by which part the figure is worse than the goal
	switch g := l.goal; {
	case g.ratio != 0:
		aim, over = fmt.Sprintf("ratio ≤ %g", g.ratio), l.ratio/g.ratio-1
	case g.most != 0:
		aim, over = fmt.Sprintf("≤ %.3g %s", g.most, l.unit), l.holdline/g.most-1
	case g.least != 0:
		aim, over = fmt.Sprintf("≥ %g %s", g.least, l.unit), 1-l.holdline/g.least
	default:
		return "", ""
	}
	if over <= 0 {
		return aim, "yes"
	}
	return aim, fmt.Sprintf("no, %.0f %% off", math.Ceil(100*over))
}

// medianOf returns the median.
func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// quotients returns a[i]/b[i] for each round i.
func quotients(a, b []float64) []float64 {
	q := make([]float64, len(a))
	for i := range a {
		q[i] = a[i] / b[i]
	}
	return q
}

// TestTable_LinesWithGoals_SayHowFarTheyAreOff checks lines of the table of benchmarks.
func TestTable_LinesWithGoals_SayHowFarTheyAreOff(t *testing.T) {
	for want, l := range map[string]line{
		"10.0 µs, 12.5 µs, 1.25, ratio ≤ 1.25, yes": {
			unit: "µs", chain: 10, holdline: 12.5, ratio: 1.25, goal: goal{ratio: 1.25},
		},
		", 2.20 MiB, , ≤ 2 MiB, no, 11 % off":                {unit: "MiB", holdline: 2.2, goal: goal{most: 2}},
		", 24000 calls/s, , ≥ 30000 calls/s, no, 20 % off":   {unit: "calls/s", holdline: 24000, goal: goal{least: 30000}},
		"1.00 ms, 1.50 ms, 1.50, ratio ≤ 1.25, no, 20 % off": {unit: "ms", chain: 1, holdline: 1.5, ratio: 1.5, goal: goal{ratio: 1.25}},
		"0.00120 ms, 999 ms, 0.0500, , ":                     {unit: "ms", chain: 0.0012, holdline: 999, ratio: 0.05},
	} {
		aim, reached := l.verdict()
		got := strings.Join([]string{
			figure(l.chain, l.unit), figure(l.holdline, l.unit), figure(l.ratio, ""), aim, reached,
		}, ", ")
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
