package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"holdline/cmd/holdline/doctor"
	"holdline/contrib"
)

// hungryEntries are a server with limits whose tool eat allocates without end, and its
// neighbour.
func (p *place) hungryEntries() map[string]any {
	return map[string]any{
		"hungry": shellEntry(hosting{"scope": "shared", "limits": map[string]any{
			"memory": "256MiB", "processes": 200, "cpu_weight": 50,
		}}),
		"tools": p.toolsEntry(hosting{"scope": "shared"}),
	}
}

// limitsHeldBy returns by what doctor says that limits are held here.
func (p *place) limitsHeldBy(t *testing.T) string {
	t.Helper()
	out, errs, _ := p.run("", "doctor", "--json")
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("doctor: %v\n%s%s", err, out, errs)
	}
	for _, f := range all {
		if f.Check == "limits of servers" {
			what, why, _ := strings.Cut(f.What, ": ")
			t.Logf("limits are held here: %s (%s)", what, why)
			return what
		}
	}
	t.Fatalf("doctor does not say what holds limits:\n%s", out)
	return ""
}

// eats has a server allocate without end, and checks that it dies alone, by what doctor says, and
// is back. It returns whether the memory of all its processes together is limited.
func (p *place) eats(t *testing.T, daemon int) (group bool) {
	t.Helper()
	a := p.agent("--no-autostart").shake()
	// Processes that were begun for an agent that has left end while this one comes: calls start others.
	a.waitAll(a.effect("t0", 1), a.call("hungry__run", map[string]any{"command": "true"}))
	before, neighbour := p.untilReady("hungry"), p.untilReady("tools")
	want := p.limitsHeldBy(t)
	if got := p.server("hungry").LimitsHeldBy; got != want {
		t.Errorf("limits are held by: %s; doctor says: %s", got, want)
	}
	shown := strings.Join(strings.Fields(p.must("servers", "get", "hungry")), " ")
	if !strings.Contains(shown, "limits held by "+want) {
		t.Errorf("servers get does not say what holds the limits:\n%s", shown)
	}
	slow := a.effect("t1", 1000)
	eat := a.call("hungry__eat", nil)
	got := a.waitAll(slow, eat)
	if x := got[eat]; x.code() != "outcome_unknown" {
		t.Errorf("the call of a server that ate all its memory: %s, want outcome_unknown", x.raw)
	}
	if x := got[slow]; x.Error != nil || x.Result.IsError || x.text() != "t1" {
		t.Errorf("the neighbour's answer: %s", x.raw)
	}
	fault := p.server("hungry").LastFault
	if fault == nil {
		t.Fatal("the server has no fault")
	}
	group = !strings.Contains(want, "RLIMIT_DATA")
	const words = "memory limit of 256MiB was reached"
	if group != strings.Contains(fault.Fault.Detail, words) {
		t.Errorf("the fault is %q; want it to say %q: %v", fault.Fault.Detail, words, group)
	}
	if group != strings.Contains(got[eat].raw, words) {
		t.Errorf("the call's answer is %s; want it to say %q: %v", got[eat].raw, words, group)
	}
	if x := a.wait(a.call("hungry__run", map[string]any{"command": "true"})); x.Error != nil || x.Result.IsError {
		t.Errorf("the server is not back: %s", x.raw)
	}
	if now := p.untilReady("hungry"); now == before {
		t.Errorf("the server is process %d, as before", now)
	}
	if now := p.untilReady("tools"); now != neighbour {
		t.Errorf("the neighbour was process %d, and is %d", neighbour, now)
	}
	if !alive(daemon) || p.status().Daemon.PID != daemon {
		t.Errorf("the daemon was %d, and is %d", daemon, p.status().Daemon.PID)
	}
	return group
}

// TestLimitedServer_DiesAlone checks, without systemd, that limits are held by what doctor says: a
// control group, where one can be made, or a limit of each process.
func TestLimitedServer_DiesAlone(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	p := newPlace(t)
	d := p.configure(p.hungryEntries()).daemon()
	if !p.eats(t, d.Process.Pid) {
		t.Log("no cgroup of version 2 can be divided here: RLIMIT_DATA was tried")
	}
}

// limitedUnderSystemd checks that a server with limits has a scope of its own, which outlives
// the daemon and ends with the server.
func limitedUnderSystemd(m *managed) {
	m.configure(m.hungryEntries())
	m.enable()
	m.agent().shake().rest()
	pid := m.main()
	if !m.eats(m.t, pid) {
		m.t.Error("systemd does not hold the memory")
	}
	child := m.untilReady("hungry")
	a := m.agent("--no-autostart").shake()
	for range 3 { // it gets an error, and goes on, and so does its worker
		x := a.wait(a.call("hungry__run", map[string]any{
			"command": `exec sh -c 'trap "kill \$began 2>/dev/null" EXIT; for i in $(seq 300); do sleep 300 & began="$began $!"; done'`,
			"within":  "60", // seconds, for a busy machine, and for a bash, which tries again for 15
		}))
		if got := x.text(); !strings.Contains(got, "fork") {
			m.t.Errorf("a server that may have 200 processes started 300: %s", x.raw)
		}
	}
	a.rest()
	if now := m.untilReady("hungry"); now != child {
		m.t.Errorf("the server was process %d, and is %d after it had as many processes as it may", child, now)
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/cgroup")
	if err != nil || !strings.Contains(string(groups), "/holdline-shungry-") {
		m.t.Errorf("the server is in the groups\n%s%v", groups, err)
	}
	m.systemctl("restart", contrib.SystemdService)
	m.untilMain(pid)
	if now := m.untilReady("hungry"); now != child {
		m.t.Errorf("the server was process %d, and is %d behind a restart of the daemon", child, now)
	}
	if got := m.server("hungry").LimitsHeldBy; !strings.Contains(got, "memory and processes") {
		m.t.Errorf("the next daemon says that limits are held by %q", got)
	}
	m.must("stop", "--all")
	waitFor(m.t, "the end of the scopes", func() bool {
		cmd := exec.Command("systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "holdline-*.scope")
		cmd.Env = m.env
		out, err := cmd.CombinedOutput()
		return err == nil && len(out) == 0
	})
}
