package cli

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/telemetry"
)

// kindOf a family of metrics, as OpenMetrics names it.
type kindOf string

// The kinds in use.
const (
	counter kindOf = "counter"
	gauge   kindOf = "gauge"
	summary kindOf = "summary"
)

// labels of a sample: name and value by turns.
type labels []string

// metrics is a text in the format of OpenMetrics 1.0, made family by family. It
// keeps to what the older format of Prometheus takes, too, so that there is no
// family of kind info.
type metrics struct {
	b    bytes.Buffer
	name string
	kind kindOf
}

// family begins a family: all samples until the next one are its. The unit, ""
// for none, is also the end of the name.
func (m *metrics) family(name string, kind kindOf, unit, help string) {
	m.name, m.kind = "holdline_"+name, kind
	fmt.Fprintf(&m.b, "# TYPE %s %s\n", m.name, kind)
	if unit != "" {
		fmt.Fprintf(&m.b, "# UNIT %s %s\n", m.name, unit)
	}
	fmt.Fprintf(&m.b, "# HELP %s %s\n", m.name, escapeMetric(help))
}

// single begins a family and adds its first value.
func (m *metrics) single(name string, kind kindOf, unit, help string, value float64, of ...string) {
	m.family(name, kind, unit, help)
	m.sample(value, of...)
}

// sample adds one value of the family.
func (m *metrics) sample(value float64, of ...string) {
	suffix := ""
	if m.kind == counter {
		suffix = "_total"
	}
	m.line(suffix, value, of)
}

// quantiles adds a summary of latencies in milliseconds, in seconds.
func (m *metrics) quantiles(p telemetry.Percentiles, count int64, of ...string) {
	for _, q := range []struct {
		name string
		ms   float64
	}{{"0.5", p.P50}, {"0.95", p.P95}, {"0.99", p.P99}} {
		m.line("", q.ms/1000, append(slices.Clone(of), "quantile", q.name))
	}
	m.line("_count", float64(count), of)
}

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

// counted adds a sample for each label value.
func (m *metrics) counted(label string, of map[string]int) {
	for _, value := range slices.Sorted(maps.Keys(of)) {
		m.sample(float64(of[value]), label, value)
	}
}

// text is the whole; nothing may be added to it.
func (m *metrics) text() []byte {
	m.b.WriteString("# EOF\n")
	return m.b.Bytes()
}

// escapeMetric is s as OpenMetrics wants it in a label's value or a help text:
// valid UTF-8 with backslashes before what would end it.
func escapeMetric(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(s, "\uFFFD"))
}
