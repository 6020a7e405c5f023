package metricscmd

import (
	"fmt"
	"testing"

	"holdline/cmd/holdline/metricstest"
	"holdline/daemon/telemetry"
	"holdline/protocol/control"
)

// TestOpenMetrics checks that names made up by clients and servers do not break the format.
func TestOpenMetrics(t *testing.T) {
	evil := "a\"b\\c\nd\xff}"
	counts := &telemetry.Snapshot{
		Telemetry: telemetry.Body{State: telemetry.Recovering, Methods: []telemetry.Method{
			{
				Method: "tools/call:git__log", Server: "git", Tool: "log",
				Totals: telemetry.Totals{
					RequestCount: 5, SuccessCount: 3, ResponseErrorCount: 1, TransportFaultCount: 1, RetryCount: 2,
					Percentiles: telemetry.Percentiles{P50: 1.5, P95: 20, P99: 1e-3},
				},
			},
			{Method: "tools/call:consult", Tool: "consult", Totals: telemetry.Totals{RequestCount: 1, SuccessCount: 1}},
			{Method: "tools/call:" + evil, Tool: evil, Totals: telemetry.Totals{RequestCount: 1, SuccessCount: 1}},
			{Method: "ping", Totals: telemetry.Totals{RequestCount: 1e7, SuccessCount: 1e7}},
		}},
		Cache: telemetry.CacheCounts{Hits: 7, Misses: 8},
		Identities: []telemetry.SessionCounts{{
			Identity: evil, Calls: 3, Failures: telemetry.Failures{ResponseErrors: 1},
		}},
		Sessions: []telemetry.SessionCounts{
			{Session: 3, Identity: "codex", Client: evil, Calls: 3}, {Session: 4, Identity: "codex", Calls: 1},
		},
	}
	status := &control.StatusAnswer{
		Daemon:   control.Daemon{PID: 1, Version: "1", UptimeMS: 1500},
		Sessions: []control.Session{{State: "attached"}, {State: "attached"}},
		Servers: []control.Server{
			{Name: "git", State: "ready", Ejected: true, NoiseLines: 4}, {Name: evil, State: "failed"},
		},
		Consults: control.Consults{Running: 2},
	}
	got := metricstest.Read(t, string(openMetrics(counts, status)))
	for family, samples := range map[string]map[string]float64{
		"holdline_requests": {
			`holdline_requests_total{method="tools/call",tool="git__log",server="git",outcome="success"}`:         3,
			`holdline_requests_total{method="tools/call",tool="git__log",server="git",outcome="response_error"}`:  1,
			`holdline_requests_total{method="tools/call",tool="git__log",server="git",outcome="transport_fault"}`: 1,
			`holdline_requests_total{method="tools/call",tool="consult",server="",outcome="success"}`:             1,
			`holdline_requests_total{method="ping",tool="",server="",outcome="success"}`:                          1e7,
			fmt.Sprintf(`holdline_requests_total{method="tools/call",tool="%s",server="",outcome="success"}`,
				"a\\\"b\\\\c\\nd\uFFFD}"): 1,
		},
		"holdline_request_duration_seconds": {
			`holdline_request_duration_seconds{method="tools/call",tool="git__log",server="git",quantile="0.95"}`: .02,
			`holdline_request_duration_seconds_count{method="tools/call",tool="git__log",server="git"}`:           5,
		},
		"holdline_uptime_seconds": {"holdline_uptime_seconds": 1.5},
		"holdline_ready":          {"holdline_ready": 0},
		"holdline_cache_lookups": {
			`holdline_cache_lookups_total{result="hit"}`: 7, `holdline_cache_lookups_total{result="miss"}`: 8,
		},
		"holdline_sessions": {
			`holdline_sessions{state="attached"}`: 2, `holdline_sessions{state="detached"}`: 0,
		},
		"holdline_consults":           {`holdline_consults{state="running"}`: 2},
		"holdline_server_ejected":     {`holdline_server_ejected{server="git"}`: 1},
		"holdline_server_noise_lines": {`holdline_server_noise_lines_total{server="git"}`: 4},
		"holdline_session_calls": {
			`holdline_session_calls_total{identity="codex",session="4",client="",outcome="success"}`: 1,
		},
	} {
		for key, want := range samples {
			if have, ok := got[family].Samples[key]; !ok || have != want {
				t.Errorf("%s = %v (there: %v), want %v", key, have, ok, want)
			}
		}
	}
	for name, f := range got {
		if f.Help == "" || len(f.Samples) == 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	metricstest.Read(t, string(openMetrics(new(telemetry.Snapshot), new(control.StatusAnswer))))
}
