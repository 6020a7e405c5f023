package metricscmd

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/telemetry"
)

// kindOf is the type of a family of metrics, by its name in OpenMetrics.
type kindOf string

// The kinds in use.
const (
	counter kindOf = "counter"
	gauge   kindOf = "gauge"
	summary kindOf = "summary"
)

// labels are the labels of a sample: names and values in turn. The names are constants of this
// package, so only the values are escaped.
type labels []string

// metrics is a text in the format of OpenMetrics 1.0 that is being written, one family after
// the other. It also keeps to the older format of Prometheus, which has no families of type
// info.
type metrics struct {
	b    bytes.Buffer
	name string // of the current family, with the prefix holdline_
	kind kindOf // of the current family
}

// family begins a family. All samples belong to it until the next call. If unit is not "",
// name must end with it, as OpenMetrics demands.
func (m *metrics) family(name string, kind kindOf, unit, help string) {
	m.name, m.kind = "holdline_"+name, kind
	fmt.Fprintf(&m.b, "# TYPE %s %s\n", m.name, kind)
	if unit != "" {
		fmt.Fprintf(&m.b, "# UNIT %s %s\n", m.name, unit)
	}
	fmt.Fprintf(&m.b, "# HELP %s %s\n", m.name, escapeMetric(help))
}

// single begins a family and adds its first value. More samples may follow.
func (m *metrics) single(name string, kind kindOf, unit, help string, value float64, of ...string) {
	m.family(name, kind, unit, help)
	m.sample(value, of...)
}

// sample adds one value to the family. of are the labels, names and values in turn.
func (m *metrics) sample(value float64, of ...string) {
	suffix := ""
	// OpenMetrics wants the suffix on samples, and the name of the family without it.
	if m.kind == counter {
		suffix = "_total"
	}
	m.line(suffix, value, of)
}

// quantiles adds a summary of latencies. p is in milliseconds; the summary is in seconds, as
// the conventions of Prometheus want. count is the number of all latencies.
func (m *metrics) quantiles(p telemetry.Percentiles, count int64, of ...string) {
	for _, q := range []struct {
		name string
		ms   float64
	}{{"0.5", p.P50}, {"0.95", p.P95}, {"0.99", p.P99}} {
		m.line("", q.ms/1000, append(slices.Clone(of), "quantile", q.name))
	}
	m.line("_count", float64(count), of)
}

// line adds one line: the name of the family with a suffix, the labels and the value.
func (m *metrics) line(suffix string, value float64, of labels) {
	m.b.WriteString(m.name + suffix)
	for i := 0; i+1 < len(of); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		fmt.Fprintf(&m.b, `%s%s="%s"`, sep, of[i], escapeMetric(of[i+1]))
	}
	if len(of) > 0 {
		m.b.WriteByte('}')
	}
	m.b.WriteByte(' ')
	m.b.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
	m.b.WriteByte('\n')
}

// counted adds a sample for each value of a label, in the order of the values. of has the
// counts by value.
func (m *metrics) counted(label string, of map[string]int) {
	for _, value := range slices.Sorted(maps.Keys(of)) {
		m.sample(float64(of[value]), label, value)
	}
}

// text ends the text with the line that OpenMetrics wants, and returns it. Nothing may be added
// afterwards.
func (m *metrics) text() []byte {
	m.b.WriteString("# EOF\n")
	return m.b.Bytes()
}

// escapeMetric returns s as OpenMetrics demands it in the value of a label and in a help text:
// valid UTF-8, with backslashes before backslashes, quotes and newlines. Names come from
// clients and servers, so they may have any character.
func escapeMetric(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(s, "\uFFFD"))
}
