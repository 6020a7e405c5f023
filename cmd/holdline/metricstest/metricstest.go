// Package metricstest reads the OpenMetrics format as strictly as its specification. It is
// for tests.
package metricstest

import (
	"bufio"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdline/daemon/lazyregexp"
)

var (
	metricLine  = lazyregexp.New(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$`)
	metricLabel = lazyregexp.New(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\n|\\")*)"(,|$)`)
)

// Family is one family of metrics.
type Family struct {
	Kind, Unit, Help string
	Samples          map[string]float64 // values by name and labels
}

// Read returns the families in text by name. It fails the test at the first
// line that the specification of OpenMetrics does not allow.
func Read(t *testing.T, text string) map[string]Family {
	t.Helper()
	if !strings.HasSuffix(text, "\n# EOF\n") {
		t.Fatalf("the text does not end with # EOF:\n%s", text)
	}
	families := map[string]Family{}
	name := ""
	seen := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(strings.TrimSuffix(text, "# EOF\n")))
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			f := strings.SplitN(rest, " ", 3)
			if len(f) != 3 {
				t.Fatalf("line %q", line)
			}
			if f[1] != name {
				if f[0] != "TYPE" || seen[f[1]] {
					t.Fatalf("the family of %q does not begin with its type, or is torn", line)
				}
				name = f[1]
				seen[name] = true
			}
			one := families[name]
			switch {
			case len(one.Samples) > 0:
				t.Fatalf("%q stands behind samples", line)
			case f[0] == "TYPE" && one.Kind == "" && slices.Contains([]string{"counter", "gauge", "summary"}, f[2]):
				one.Kind = f[2]
			case f[0] == "UNIT" && one.Unit == "" && strings.HasSuffix(name, "_"+f[2]):
				one.Unit = f[2]
			case f[0] == "HELP" && one.Help == "":
				one.Help = f[2]
			default:
				t.Fatalf("line %q", line)
			}
			families[name] = one
			continue
		}
		one := families[name]
		if one.Samples == nil {
			one.Samples = map[string]float64{}
			families[name] = one
		}
		key, value := readSample(t, line, name, one.Kind)
		if _, twice := one.Samples[key]; twice {
			t.Fatalf("sample %q stands twice", key)
		}
		one.Samples[key] = value
	}
	return families
}

// readSample reads one line of a family.
func readSample(t *testing.T, line, family, kind string) (key string, value float64) {
	t.Helper()
	m := metricLine().FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("line %q is no sample", line)
	}
	suffix, ok := strings.CutPrefix(m[1], family)
	if allowed := map[string][]string{
		"counter": {"_total"}, "gauge": {""}, "summary": {"", "_count", "_sum"},
	}[kind]; !ok || !slices.Contains(allowed, suffix) {
		t.Fatalf("sample %q in the family %s of kind %s", line, family, kind)
	}
	names := map[string]bool{}
	for rest := strings.TrimSuffix(strings.TrimPrefix(m[2], "{"), "}"); rest != ""; {
		l := metricLabel().FindStringSubmatch(rest)
		if l == nil || names[l[1]] {
			t.Fatalf("labels of %q at %q", line, rest)
		}
		names[l[1]] = true
		rest = rest[len(l[0]):]
	}
	value, err := strconv.ParseFloat(m[3], 64)
	if err != nil || kind == "counter" && value < 0 {
		t.Fatalf("value of %q: %v", line, err)
	}
	if kind == "summary" && suffix == "" != names["quantile"] {
		t.Fatalf("quantile of %q", line)
	}
	return m[1] + m[2], value
}
