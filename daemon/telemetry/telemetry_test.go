package telemetry

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/fault"
)

func failure(code fault.Code) *fault.Record {
	return fault.New(code, fault.Worker, "tools/call:consult", "it broke\nbadly")
}

const msec = time.Millisecond

var consult = tool("consult")

// tool returns the operation of a call of a tool of the daemon.
func tool(name string) Operation { return Operation{Method: toolsCall, Tool: name} }

// methodOf returns the operation of a request that is no tool call.
func methodOf(name string) Operation { return Operation{Method: name} }

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestHealthOfNewDaemon checks health and its texts before the first request.
func TestHealthOfNewDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{
			Daemon: Daemon{PID: 7, Version: "1.2", Epoch: 3}, Executable: "/usr/bin/holdline", Generation: 4,
		})
		h := r.Health(Parts{})
		if got, want := h.NotReady, "the daemon is starting or stopping"; got != want {
			t.Errorf("NotReady = %q, want %q", got, want)
		}
		r.SetServing(true)
		time.Sleep(1500 * msec)
		h = r.Health(Parts{Sessions: 2, Servers: 1})
		h.Verdict, h.Troubles = "Ready. 1 server up, no recent faults.", []string{"x: hangs"}
		if got, want := h.Text(false), "Ready. 1 server up, no recent faults.\nx: hangs"; got != want {
			t.Errorf("Text = %q, want %q", got, want)
		}
		if got, want := asJSON(t, h.Concise()),
			`{"ready":true,"worker_generation":4,"worker_alive":true,"rollout_pending":false,`+
				`"launch_path_stable":true}`; got != want {
			t.Errorf("Concise = %s, want %s", got, want)
		}
		want :=
			`{"health":{"state":"cold","generation":4,"uptime_ms":1500,"consecutive_failures":0,` +
				`"restart_count":0,"rollout":"stable","last_fault":null},` +
				`"worker_alive":true,"launch_path_stable":true,"daemon":{"pid":7,"version":"1.2","epoch":3},` +
				`"sessions":2,"workers":0,"servers":1,` +
				`"telemetry_log":{"written":0,"failed":0}}`
		if got := asJSON(t, h); got != want {
			t.Errorf("Full:\n got %s\nwant %s", got, want)
		}
		wantText :=
			"Ready. 1 server up, no recent faults.\nx: hangs\nstate=cold generation=4 uptime=2s consecutive_failures=0 " +
				"restarts=0 rollout=stable\n" +
				"daemon pid=7 version=1.2 epoch=3\nsessions=2 workers=0 servers=1"
		if got := h.Text(true); got != wantText {
			t.Errorf("Text:\n got %s\nwant %s", got, wantText)
		}
	})
}

// TestStates checks the state of health through starts, losses and rollouts.
func TestStates(t *testing.T) {
	r := New(Options{Generation: 10})
	r.SetServing(true)
	expect := func(state State, ready, alive bool, restarts int64) {
		t.Helper()
		h := r.Health(Parts{})
		if h.State != state || h.Ready != ready || h.WorkerAlive != alive || h.RestartCount != restarts {
			t.Errorf("state %s ready %v alive %v restarts %d, want %s %v %v %d",
				h.State, h.Ready, h.WorkerAlive, h.RestartCount, state, ready, alive, restarts)
		}
	}
	expect(Cold, true, true, 0)
	r.WorkerStarting("a", 11)
	expect(Starting, true, true, 0)
	r.WorkerReady("a")
	expect(Ready, true, true, 0)
	r.WorkerStarting("b", 12) // the worst part counts
	expect(Starting, true, true, 0)
	r.WorkerEnded("b")
	expect(Ready, true, true, 0)

	r.WorkerLost("a", true) // one server of several: the daemon serves all others
	expect(Recovering, true, false, 0)
	r.WorkerStarting("a", 13) // starting is not yet ready
	expect(Recovering, true, false, 1)
	r.WorkerReady("a")
	expect(Ready, true, true, 1)
	r.WorkerLost("a", false) // nothing is missing: it is not started again
	expect(Cold, true, true, 1)

	r.WorkerReady("adopted")
	expect(Ready, true, true, 1)
	r.Request(consult, msec, 0, failure(fault.TransportFailure))
	expect(Recovering, false, true, 1)
	r.WorkerLost("adopted", true)
	r.WorkerReady("adopted")
	expect(Ready, true, true, 1)

	r.SetRollout(Pending, nil)
	expect(Ready, true, true, 1)
	if h := r.Health(Parts{}); !h.Concise().RolloutPending || !strings.HasSuffix(h.Text(false), " Upgrade: "+
		"pending.") {
		t.Errorf("pending rollout: %+v", h)
	}
	r.SetRollout(Reloading, nil)
	expect(Recovering, false, true, 1)
	r.SetRollout(Stable, nil)
	r.WorkerStarting("c", 12) // reported late
	if got := r.Health(Parts{}).Generation; got != 13 {
		t.Errorf("generation = %d, want 13", got)
	}
}

// TestLastFault checks which requests set, count and clear the last fault.
func TestLastFault(t *testing.T) {
	r := New(Options{})
	r.SetServing(true)
	last := func() string {
		h := r.Health(Parts{})
		if h.LastFault == nil {
			return fmt.Sprintf("none %d", h.ConsecutiveFailures)
		}
		return fmt.Sprintf("%s %d", h.LastFault.Fault.Code, h.ConsecutiveFailures)
	}
	for i, step := range []struct {
		key  Operation
		f    *fault.Record
		want string
	}{
		{consult, nil, "none 0"},
		{consult, failure(fault.ProcessFailure), "process_failure 1"},
		{consult, failure(fault.DownstreamFailure), "downstream_failure 2"},
		// None of these successes proves that a failed part works.
		{methodOf("ping"), nil, "downstream_failure 2"},
		{methodOf("tools/list"), nil, "downstream_failure 2"},
		{methodOf("initialize"), nil, "downstream_failure 2"},
		{methodOf("notifications/initialized"), nil, "downstream_failure 2"},
		{methodOf("server/discover"), nil, "downstream_failure 2"},
		{methodOf("logging/setLevel"), nil, "downstream_failure 2"},
		{tool("health_snapshot"), nil, "downstream_failure 2"},
		{tool("telemetry_snapshot"), nil, "downstream_failure 2"},
		// None of these faults means that a part fails.
		{consult, failure(fault.Cancelled), "downstream_failure 2"},
		{consult, failure(fault.InvalidInput), "downstream_failure 2"},
		{tool("nothing"), failure(fault.UnknownTool), "downstream_failure 2"},
		{consult, failure(fault.Denied), "downstream_failure 2"},
		{consult, failure(fault.BudgetExceeded).WithLimit("calls", 3, 3), "downstream_failure 2"},
		{consult, failure(fault.ResourceExhausted).WithLimit("calls in flight", 64, 64), "downstream_failure 2"},
		{consult, failure(fault.ResourceExhausted), "resource_exhausted 3"},
		{consult, nil, "none 0"},
	} {
		r.Request(step.key, msec, 0, step.f)
		if got := last(); got != step.want {
			t.Errorf("step %d, %s: %s, want %s", i, step.key, got, step.want)
		}
	}
	f := failure(fault.Timeout)
	r.Request(consult, msec, 0, f)
	f.Fault.Detail = "changed by its owner"
	h := r.Health(Parts{})
	if h.LastFault.Fault.Detail != "it broke\nbadly" {
		t.Error("the recorder keeps the caller's record, not a copy")
	}
	if h.NotReady != "the last request failed: it broke badly" || h.State != Recovering {
		t.Errorf("health = %s, %s", h.NotReady, h.State)
	}
	if !strings.HasSuffix(h.Text(true), "\nlast fault: timeout in tools/call:consult: it broke badly") {
		t.Errorf("full text = %s", h.Text(true))
	}
}

// TestReadyAgreesWithState checks that after any fault, ready means that no part is
// recovering.
func TestReadyAgreesWithState(t *testing.T) {
	for _, code := range fault.Codes() {
		for _, own := range []bool{false, true} {
			r := New(Options{})
			r.SetServing(true)
			f := failure(code)
			if own {
				f = f.WithLimit("calls in flight", 1, 1)
			}
			r.Request(consult, msec, 0, f)
			h := r.Health(Parts{})
			if h.Ready == (h.State == Recovering) || h.Ready == f.IsTransport() {
				t.Errorf("after %s (own limit: %v): ready %v, state %s, counted as transport fault: %v", code, own,
					h.Ready, h.State, f.IsTransport())
			}
			if f.IsOwn() && (h.LastFault != nil || h.ConsecutiveFailures != 0) {
				t.Errorf("%s of the caller's own (limit: %v) counts: %s", code, own, h.Text(true))
			}
		}
	}
}

// TestFaultsAreSplit checks that each class of faults is counted as response error or
// transport fault, and every request once.
func TestFaultsAreSplit(t *testing.T) {
	r := New(Options{})
	transport := 0
	for _, code := range fault.Codes() {
		f := failure(code)
		if f.IsTransport() {
			transport++
		}
		r.Request(consult, msec, 0, f)
	}
	r.Request(consult, msec, 2, nil)
	got := r.Snapshot(CacheCounts{}).Telemetry.Totals
	n := len(fault.Codes())
	if got.RequestCount != int64(n+1) || got.TransportFaultCount != int64(transport) ||
		got.ResponseErrorCount != int64(n-transport) || got.SuccessCount != 1 || got.RetryCount != 2 {
		t.Errorf("totals = %+v, of them %d of %d transport", got, transport, n)
	}
}

// TestSnapshot checks the counters and their JSON.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Rollouts: 2})
		for range 3 {
			r.Request(Operation{Method: "ping"}, 0, 0, nil)
		}
		r.Request(consult, 40*msec, 1, nil)
		r.Request(consult, 20*msec, 0, failure(fault.Timeout))
		r.Request(Operation{Method: "b"}, msec, 0, failure(fault.InternalFailure))
		r.Request(Operation{Method: "b"}, msec, 0, nil)
		r.Request(Operation{Method: "a"}, msec, 0, nil)
		r.Request(Operation{Method: "a"}, msec, 0, nil)
		r.ToolCall(Call{Session: "h1", Number: 1, Identity: "codex", Client: "codex 1", Took: msec})
		time.Sleep(time.Second)

		s := r.Snapshot(CacheCounts{Hits: 1, Misses: 1})
		var order []string
		for _, m := range s.Telemetry.Methods {
			order = append(order, m.Method)
		}
		if got, want := strings.Join(order, " "), "ping "+consult.String()+" b a"; got != want {
			t.Errorf("order = %s, want %s", got, want)
		}
		wantText :=
			"requests=9 success=7 response_error=1 transport_fault=1 retry=1\nworker_restarts=0 " +
				"host_rollouts=2\nhot methods:\n" +
				"ping requests=3 response_error=0 transport_fault=0 retry=0\n" +
				consult.String() + " requests=2 response_error=0 transport_fault=1 retry=1\n" +
				"b requests=2 response_error=1 transport_fault=0 retry=0\n" +
				"a requests=2 response_error=0 transport_fault=0 retry=0"
		if got := s.Text(false); got != wantText {
			t.Errorf("Text:\n got %s\nwant %s", got, wantText)
		}
		want :=
			`{"requests":9,"successes":7,"response_errors":1,"transport_faults":1,"retries":1,` +
				`"worker_restarts":0,"host_rollouts":2,"hot_methods":[` +
				`{"method":"ping","requests":3,"response_errors":0,"transport_faults":0,"retries":0},`
		if got := asJSON(t, s.Concise()); !strings.HasPrefix(got, want) {
			t.Errorf("Concise = %s", got)
		}
		full := asJSON(t, s)
		for _, want := range []string{
			`{"telemetry":{"uptime_ms":1000,"state":"recovering","generation":0,"consecutive_failures":0,` +
				`"restart_count":0,"totals":{"request_count":9,"success_count":7,"response_error_count":1,` +
				`"transport_fault_count":1,"retry_count":1,`,
			`{"method":"tools/call:consult","tool":"consult","request_count":2,"success_count":1,` +
				`"response_error_count":0,"transport_fault_count":1,"retry_count":1,"p50_ms":20.479,"p95_ms":40,` +
				`"p99_ms":40,"last_latency_ms":20,"max_latency_ms":40,"avg_latency_ms":30,"last_error":"timeout"}`,
			`"last_error":null`,
			`"host_rollouts":2,"cache":{"hits":1,"misses":1},"sessions":[{"session":1,"identity":"codex",` +
				`"client":"codex 1","calls":1,`,
			`"identities":[{"identity":"codex","calls":1,`,
		} {
			if !strings.Contains(full,
				strings.Replace(want, `"consecutive_failures":0`,
					fmt.Sprintf(`"consecutive_failures":%d`, s.Telemetry.ConsecutiveFailures), 1)) {
				t.Errorf("Snapshot lacks %s:\n%s", want, full)
			}
		}
		if text := s.Text(true); !strings.Contains(text, "#1 codex calls=1") ||
			!strings.Contains(text, " last_error=timeout") {
			t.Errorf("full text = %s", text)
		}
		r.SessionEnded("h1")
		if s := r.Snapshot(CacheCounts{}); len(s.Sessions) != 0 || len(s.Identities) != 1 {
			t.Errorf("after the session's end: %+v", s)
		}
	})
}

func TestEmptySnapshotEncodesLists(t *testing.T) {
	s := New(Options{}).Snapshot(CacheCounts{})
	for _, got := range []string{asJSON(t, s), asJSON(t, s.Concise())} {
		for _, list := range []string{"methods", "hot_methods", "sessions", "identities"} {
			if strings.Contains(got, `"`+list+`":null`) {
				t.Errorf("%s is null in %s", list, got)
			}
		}
	}
	if got := s.Text(false); !strings.HasSuffix(got, "\nhot methods: none") {
		t.Errorf("Text = %q", got)
	}
}

// TestNamesAreBounded checks that names that clients make up do not make the counters grow.
func TestNamesAreBounded(t *testing.T) {
	r := New(Options{})
	for i := range 10_000 {
		name := fmt.Sprintf("made-up-%d", i)
		r.Request(Operation{}, 0, 0, failure(fault.UnknownMethod))
		r.Request(Operation{Method: toolsCall, Server: "hosted", Tool: name}, msec, 0, nil)
		r.ToolCall(Call{Session: name, Identity: name + strings.Repeat("x", 1000), Tool: name})
		r.WorkerStarting(name, int64(i))
		r.WorkerLost(name+"-other", true)
	}
	if n := len(r.operations); n > maxOperations+1 {
		t.Errorf("%d operations are kept", n)
	}
	if n := len(r.sessions); n > maxSessions {
		t.Errorf("%d sessions are kept", n)
	}
	if n := len(r.identities); n > maxIdentities+1 {
		t.Errorf("%d identities are kept", n)
	}
	if n := len(r.workers); n > maxWorkers {
		t.Errorf("%d workers are kept", n)
	}
	if c := r.operations[Operation{}]; c == nil || c.total.RequestCount != 10_000 {
		t.Errorf("requests of unknown methods = %+v, want 10000", c)
	}
	var requests int64
	for _, c := range r.operations {
		requests += c.total.RequestCount
	}
	if requests != 20_000 {
		t.Errorf("%d requests are counted by operation, want 20000: none is lost", requests)
	}
	if last := (Operation{Method: toolsCall, Server: "hosted", Tool: "made-up-9999"}); r.operations[last] == nil {
		t.Errorf("what was called last is not counted by its name")
	}
	if c := r.operations[Operation{Method: other}]; c == nil || c.latency.n != uint64(c.total.RequestCount) ||
		c.longest != msec {
		t.Errorf("what was called long ago = %+v, want its latencies in one histogram", c)
	}
	if text := r.Snapshot(CacheCounts{}).Text(true); len(text) > 20_000 {
		t.Errorf("the full text has %d characters", len(text))
	}
}

func TestConcurrentUse(t *testing.T) {
	r := New(Options{Path: t.TempDir() + "/telemetry.jsonl", Paths: true, MaxBytes: 64 << 10})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				id := fmt.Sprint(g)
				r.Request(consult, msec, 0, nil)
				r.ToolCall(Call{
					Session: id, Identity: id, RequestID: "1", Tool: "consult",
					Arguments: json.RawMessage(`{"path":"/x"}`),
				})
				r.WorkerStarting(id, int64(i))
				r.WorkerReady(id)
				_ = r.Health(Parts{}).Text(true)
				if i%50 == 0 {
					_ = r.Snapshot(CacheCounts{}).Text(true)
				}
				r.WorkerEnded(id)
				r.SessionEnded(id)
			}
		})
	}
	wg.Wait()
	if got := r.Snapshot(CacheCounts{}).Telemetry.Totals.RequestCount; got != 1600 {
		t.Errorf("requests = %d, want 1600", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := r.Health(Parts{}).TelemetryLog; got.Failed != 0 || got.Written != 1616 {
		t.Errorf("log = %+v, want 1600 calls and 16 summaries", got)
	}
}

// TestStableLaunchPath checks which paths of a program are those of a build or of a
// temporary directory.
func TestStableLaunchPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/usr/local/bin/holdline":                true,
		"/home/u/go/bin/holdline":                true,
		"/home/u/src/targets/holdline":           true,
		"":                                       true,
		"/tmp/x/holdline":                        false,
		"/home/u/holdline/target/debug/holdline": false,
		"/home/u/.cache/go-build/ab/abcd-d/holdline":   false,
		"/var/folders/x/go-build123/b001/exe/holdline": false,
		"/usr/bin/holdline (deleted)":                  false,
	} {
		if got := stableLaunchPath(path); got != want {
			t.Errorf("stableLaunchPath(%q) = %v, want %v", path, got, want)
		}
	}
}

// TestHistogram checks the buckets of durations and the percentiles made of them.
func TestHistogram(t *testing.T) {
	// Buckets are adjacent, and the width of each is at most an eighth of its start.
	for i := 1; i < buckets; i++ {
		low := upper(i-1) + 1
		if bucketOf(low) != i || bucketOf(upper(i)) != i {
			t.Fatalf("bucket %d holds [%d, %d], but they fall into %d and %d", i, low, upper(i), bucketOf(low),
				bucketOf(upper(i)))
		}
		if width := upper(i) - low + 1; i >= 8 && width*8 > low {
			t.Errorf("bucket %d from %d is %d wide", i, low, width)
		}
	}
	if got := bucketOf(1 << 62); got != buckets-1 {
		t.Errorf("a huge duration falls into %d", got)
	}
	var c counts
	for i := 1; i <= 1000; i++ {
		c.countRequest(time.Duration(i)*msec, 0, nil)
	}
	for p, want := range map[float64]time.Duration{.5: 500 * msec, .95: 950 * msec, .99: 990 * msec, 1: 1000 * msec} {
		if got := c.percentile(p); got < want || got > want+want/8 {
			t.Errorf("p%v = %v, want %v to an eighth more", p*100, got, want)
		}
	}
	c = counts{}
	c.countRequest(-msec, 0, nil) // the clock was set back
	if got := c.percentile(.99); got != 0 {
		t.Errorf("p99 of nothing = %v", got)
	}
}

func BenchmarkRequest(b *testing.B) {
	r := New(Options{})
	b.ReportAllocs()
	for b.Loop() {
		r.Request(consult, msec, 0, nil)
	}
}

// TestRolloutRejected checks that the reason of a refused rollout is the last fault until
// there is a newer one, and that the next rollout clears it, but no success does.
func TestRolloutRejected(t *testing.T) {
	r := New(Options{Executable: "/usr/bin/holdline"})
	r.SetServing(true)
	r.SetRollout(Rejected, fault.New(fault.RolloutFailure, fault.Rollout, "upgrade", "garbage"))
	r.Request(consult, msec, 0, nil)
	h := r.Health(Parts{})
	if h.Rollout != Rejected || !h.Ready || h.Refusal == nil || h.LastFault == nil ||
		h.LastFault.Fault.Code != fault.RolloutFailure {
		t.Errorf("health = %+v", h)
	}
	if got, want := h.Text(false), " Upgrade: rejected."; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
	r.Request(consult, msec, 0, failure(fault.Timeout))
	if h := r.Health(Parts{}); h.LastFault.Fault.Code != fault.Timeout || h.ConsecutiveFailures != 1 {
		t.Errorf("after another fault health = %+v", h)
	}
	r.Request(consult, msec, 0, nil)
	r.SetRollout(Stable, nil)
	if h := r.Health(Parts{}); h.LastFault != nil || h.Refusal != nil {
		t.Errorf("after a good rollout health = %+v", h)
	}
	r.SetRollout(Rejected, fault.New(fault.RolloutFailure, fault.Rollout, "upgrade", "garbage"))
	r.SetRollout(Pending, nil)
	if h := r.Health(Parts{}); h.LastFault != nil {
		t.Errorf("with another file there health = %+v", h)
	}
}

// TestOperationString checks the text of operations.
func TestOperationString(t *testing.T) {
	for want, op := range map[string]Operation{
		"(unknown)":              {},
		"ping":                   {Method: "ping"},
		"tools/call":             {Method: toolsCall},
		"tools/call:consult":     {Method: toolsCall, Tool: "consult"},
		"tools/call:files__read": {Method: toolsCall, Server: "files", Tool: "read"},
		"resources/read:files":   {Method: "resources/read", Server: "files"},
	} {
		if got := op.String(); got != want {
			t.Errorf("%#v.String() = %q, want %q", op, got, want)
		}
	}
}
