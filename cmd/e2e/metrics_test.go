package e2e

import (
	"testing"

	"holdline/cmd/holdline/metricstest"
)

// TestMetrics checks that the metrics count what the daemon did.
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
	got := metricstest.Read(t, p.must("metrics"))
	for family, sample := range map[string]string{
		"holdline_requests":       `holdline_requests_total{method="tools/call",tool="health_snapshot",server="",outcome="success"}`,
		"holdline_identity_calls": `holdline_identity_calls_total{identity="codex",outcome="success"}`,
	} {
		if n := got[family].Samples[sample]; n != 2 {
			t.Errorf("%s = %v, want 2; the family is %v", sample, n, got[family].Samples)
		}
	}
	if n := got["holdline_sessions"].Samples[`holdline_sessions{state="attached"}`]; n != 1 {
		t.Errorf("%v sessions", n)
	}
}
