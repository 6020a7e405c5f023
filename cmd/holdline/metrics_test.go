package main

import (
	"bufio"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdline/daemon/telemetry"
	"holdline/protocol/control"
)

// family is what a strict reader of OpenMetrics makes of one.
type metricFamily struct {
	kind, unit, help string
	samples          map[string]float64 // by name and labels
}

var (
	metricLine  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$`)
	metricLabel = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\n|\\")*)"(,|$)`)
)

// readMetrics reads a text as the specification of OpenMetrics wants it, and
// fails the test at the first fault.
func readMetrics(t *testing.T, text string) map[string]metricFamily {
	t.Helper()
	if !strings.HasSuffix(text, "\n# EOF\n") {
		t.Fatalf("the text does not end with # EOF:\n%s", text)
	}
	families := map[string]metricFamily{}
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
			case len(one.samples) > 0:
				t.Fatalf("%q stands behind samples", line)
			case f[0] == "TYPE" && one.kind == "" && slices.Contains([]string{"counter", "gauge", "summary"}, f[2]):
				one.kind = f[2]
			case f[0] == "UNIT" && one.unit == "" && strings.HasSuffix(name, "_"+f[2]):
				one.unit = f[2]
			case f[0] == "HELP" && one.help == "":
				one.help = f[2]
			default:
				t.Fatalf("line %q", line)
			}
			families[name] = one
			continue
		}
		one := families[name]
		if one.samples == nil {
			one.samples = map[string]float64{}
			families[name] = one
		}
		key, value := readSample(t, line, name, one.kind)
		if _, twice := one.samples[key]; twice {
			t.Fatalf("sample %q stands twice", key)
		}
		one.samples[key] = value
	}
	return families
}

// readSample reads one line of a family.
func readSample(t *testing.T, line, family, kind string) (key string, value float64) {
	t.Helper()
	m := metricLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("line %q is no sample", line)
	}
	suffix, ok := strings.CutPrefix(m[1], family)
	if allowed := map[string][]string{"counter": {"_total"}, "gauge": {""}, "summary": {"", "_count", "_sum"}}[kind]; !ok || !slices.Contains(allowed, suffix) {
		t.Fatalf("sample %q in the family %s of kind %s", line, family, kind)
	}
	names := map[string]bool{}
	for rest := strings.TrimSuffix(strings.TrimPrefix(m[2], "{"), "}"); rest != ""; {
		l := metricLabel.FindStringSubmatch(rest)
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

// TestOpenMetrics: names that clients and servers make up break nothing.
func TestOpenMetrics(t *testing.T) {
	evil := "a\"b\\c\nd\xff}"
	counts := &telemetry.Snapshot{
		Telemetry: telemetry.Body{State: telemetry.Recovering, Methods: []telemetry.Method{
			{Method: "tools/call:git__log", Server: "git", Tool: "log", RequestCount: 5, SuccessCount: 3, ResponseErrorCount: 1, TransportFaultCount: 1, RetryCount: 2, P50: 1.5, P95: 20, P99: 1e-3},
			{Method: "tools/call:consult", Tool: "consult", RequestCount: 1, SuccessCount: 1},
			{Method: "tools/call:" + evil, Tool: evil, RequestCount: 1, SuccessCount: 1},
			{Method: "ping", RequestCount: 1e7, SuccessCount: 1e7},
		}},
		Cache:      telemetry.CacheCounts{Hits: 7, Misses: 8},
		Identities: []telemetry.SessionCounts{{Identity: evil, Calls: 3, ResponseErrors: 1}},
		Sessions:   []telemetry.SessionCounts{{Session: 3, Identity: "codex", Client: evil, Calls: 3}, {Session: 4, Identity: "codex", Calls: 1}},
	}
	status := &control.StatusAnswer{
		Daemon:   control.Daemon{PID: 1, Version: "1", UptimeMS: 1500},
		Sessions: []control.Session{{State: "attached"}, {State: "attached"}},
		Servers:  []control.Server{{Name: "git", State: "ready", Ejected: true, NoiseLines: 4}, {Name: evil, State: "failed"}},
		Consults: control.Consults{Running: 2},
	}
	got := readMetrics(t, string(openMetrics(counts, status)))
	for family, samples := range map[string]map[string]float64{
		"holdline_requests": {
			`holdline_requests_total{method="tools/call",tool="git__log",server="git",outcome="success"}`:                               3,
			`holdline_requests_total{method="tools/call",tool="git__log",server="git",outcome="response_error"}`:                        1,
			`holdline_requests_total{method="tools/call",tool="git__log",server="git",outcome="transport_fault"}`:                       1,
			`holdline_requests_total{method="tools/call",tool="consult",server="",outcome="success"}`:                                   1,
			`holdline_requests_total{method="ping",tool="",server="",outcome="success"}`:                                                1e7,
			fmt.Sprintf(`holdline_requests_total{method="tools/call",tool="%s",server="",outcome="success"}`, "a\\\"b\\\\c\\nd\uFFFD}"): 1,
		},
		"holdline_request_duration_seconds": {
			`holdline_request_duration_seconds{method="tools/call",tool="git__log",server="git",quantile="0.95"}`: .02,
			`holdline_request_duration_seconds_count{method="tools/call",tool="git__log",server="git"}`:           5,
		},
		"holdline_uptime_seconds":     {"holdline_uptime_seconds": 1.5},
		"holdline_ready":              {"holdline_ready": 0},
		"holdline_cache_lookups":      {`holdline_cache_lookups_total{result="hit"}`: 7, `holdline_cache_lookups_total{result="miss"}`: 8},
		"holdline_sessions":           {`holdline_sessions{state="attached"}`: 2, `holdline_sessions{state="detached"}`: 0},
		"holdline_consults":           {`holdline_consults{state="running"}`: 2},
		"holdline_server_ejected":     {`holdline_server_ejected{server="git"}`: 1},
		"holdline_server_noise_lines": {`holdline_server_noise_lines_total{server="git"}`: 4},
		"holdline_session_calls":      {`holdline_session_calls_total{identity="codex",session="4",client="",outcome="success"}`: 1},
	} {
		for key, want := range samples {
			if have, ok := got[family].samples[key]; !ok || have != want {
				t.Errorf("%s = %v (there: %v), want %v", key, have, ok, want)
			}
		}
	}
	for name, f := range got {
		if f.help == "" || len(f.samples) == 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	readMetrics(t, string(openMetrics(new(telemetry.Snapshot), new(control.StatusAnswer))))
}

// TestMetrics: what a daemon did is counted.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, errs, code := p.run("", "metrics"); code != exitNoDaemon {
		t.Errorf("without a daemon: exit %d\n%s", code, errs)
	}
	p.daemon()
	a := p.agent("--identity", "codex").shake()
	a.wait(a.call("health_snapshot", nil))
	a.wait(a.call("health_snapshot", nil))
	got := readMetrics(t, p.must("metrics"))
	for family, sample := range map[string]string{
		"holdline_requests":       `holdline_requests_total{method="tools/call",tool="health_snapshot",server="",outcome="success"}`,
		"holdline_identity_calls": `holdline_identity_calls_total{identity="codex",outcome="success"}`,
	} {
		if n := got[family].samples[sample]; n != 2 {
			t.Errorf("%s = %v, want 2; the family is %v", sample, n, got[family].samples)
		}
	}
	if n := got["holdline_sessions"].samples[`holdline_sessions{state="attached"}`]; n != 1 {
		t.Errorf("%v sessions", n)
	}
}
