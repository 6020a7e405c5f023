package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/config/resolve"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/stage"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// TestInstancesThin checks that instances of unused projects are evicted when there are too
// many, ejected ones last.
func TestInstancesThin(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Project, Key: "k", MaxConcurrent: 1}},
	})
	s := m.servers["s"]
	busy := s.instanceLocked(&tool.Caller{Project: "busy"})
	busy.up = &upstream.Process{}
	ejected := s.instanceLocked(&tool.Caller{Project: "ejected"})
	ejected.guards.Restarts.Eject()
	for i := range 10 * maxInstances {
		s.instanceLocked(&tool.Caller{Project: fmt.Sprint(i)})
	}
	if n := len(m.instances); n > maxInstances {
		t.Errorf("%d instances are kept", n)
	}
	if m.instances[busy.key] != busy || m.instances[ejected.key] != ejected {
		t.Error("one that is needed was forgotten")
	}
	for i := range 2 * maxInstances {
		s.instanceLocked(&tool.Caller{Project: fmt.Sprint("e", i)}).guards.Restarts.Eject()
	}
	if n := len(m.instances); n > maxInstances || m.instances[busy.key] != busy {
		t.Errorf("%d instances are kept of a machine of sick ones", n)
	}
}

// TestStartOfEndedProcess checks that a start that Holdline itself has ended does not count
// as one that has failed.
func TestStartOfEndedProcess(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Shared, MaxConcurrent: 1}},
	})
	s := m.servers["s"]
	for _, tc := range []struct {
		err    error // of the last start
		failed bool
	}{{nil, false}, {errEnded, false}, {errors.New("no"), true}} {
		s.instanceLocked(&tool.Caller{}).err = tc.err
		if is := s.Start(&tool.Caller{}); is.Failed != tc.failed || !is.Begun.IsZero() {
			t.Errorf("after %v: %+v", tc.err, is)
		}
	}
}

// TestStartOfAdoptedProcess checks that a list waits for the process of an earlier daemon as
// for one that has all it needs, while this daemon's environment is not known.
func TestStartOfAdoptedProcess(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Shared, MaxConcurrent: 1}},
		Prepared: func() bool { return false },
	})
	s := m.servers["s"]
	inst := s.instanceLocked(&tool.Caller{})
	if !s.Start(&tool.Caller{}).Unprepared {
		t.Error("a server without a process does not wait for the environment")
	}
	inst.adopting = make(chan struct{})
	if s.Start(&tool.Caller{}).Unprepared {
		t.Error("a process that is being adopted waits for the environment")
	}
	inst.adopting, inst.up = nil, &upstream.Process{}
	if s.Start(&tool.Caller{}).Unprepared {
		t.Error("an adopted process waits for the environment")
	}
}

// TestAbandonedStart checks that what was said of a start that failed does not end the next one.
func TestAbandonedStart(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Watch: noWatch{}, StateDir: t.TempDir(),
		Servers: []entry.Server{{
			Name: "s", Scope: entry.Shared, MaxConcurrent: 1,
			Process: func(context.Context, *process.Owner) (resolve.Process, error) {
				return resolve.Process{}, errors.New("it is started")
			},
		}},
	})
	m.hub.Mu.Lock()
	inst := m.servers["s"].instanceLocked(&tool.Caller{})
	inst.startLocked()
	inst.leaveLocked() // the last session leaves
	failed := inst.starting
	m.hub.Mu.Unlock()
	<-failed
	m.hub.Mu.Lock()
	inst.startLocked()
	if inst.abandoned {
		t.Error("the next start is abandoned, too")
	}
	m.hub.Mu.Unlock()
	m.hub.End()
	m.hub.WG.Wait()
}

// TestDisownedCall checks that a process that cannot be restored takes no call with it that a
// younger process has made again.
func TestDisownedCall(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{Name: "s", Scope: entry.Shared, MaxConcurrent: 1}},
	})
	record := calls.Record{Write: 3, N: 5, Session: "x", Kind: calls.KindCall}
	m.hub.Mu.Lock()
	defer m.hub.Mu.Unlock()
	var all []*upstream.Process
	for _, generation := range []int64{2, 1} {
		inst := m.servers["s"].newInstance(instanceKey{server: "s"}, "", "", stage.Retired)
		u := m.hub.NewProcess(inst, t.TempDir(), "s", process.Owner{})
		u.RestoreLocked(generation, nil, []calls.Record{record}, nil)
		all = append(all, u)
	}
	m.disownLocked(all[1].Dir)
	if c := m.hub.Calls[record.Key()]; c == nil || c.Up != all[0] {
		t.Errorf("the call of the younger process is %+v", c)
	}
	m.disownLocked(all[0].Dir)
	if len(m.hub.Calls) != 0 {
		t.Errorf("%d calls are left", len(m.hub.Calls))
	}
}

// TestChangedWhileStarting checks that a process that says during its start that its lists have
// changed is asked for them again once it serves.
func TestChangedWhileStarting(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Watch: served{}, CatalogDir: t.TempDir(),
		Servers: []entry.Server{{Name: "s", Scope: entry.Shared, Key: "k", MaxConcurrent: 1}},
	})
	m.hub.Mu.Lock()
	inst := m.servers["s"].instanceLocked(&tool.Caller{})
	u := m.hub.NewProcess(inst, t.TempDir(), "s", process.Owner{})
	inst.runLocked(u)
	m.hub.Mu.Unlock()
	asked := func() bool { // it has no worker, and is condemned for that once it is asked
		m.hub.Mu.Lock()
		defer m.hub.Mu.Unlock()
		return u.Condemned != nil
	}
	m.hub.Mu.Lock()
	u.Result = json.RawMessage(`{"capabilities":{}}`)
	inst.ListsChanged()
	m.hub.Mu.Unlock()
	if m.hub.WG.Wait(); asked() {
		t.Error("its lists were read beside its start")
	}
	if err := m.serve(u); err != nil {
		t.Fatal(err)
	}
	m.hub.WG.Wait()
	if !asked() {
		t.Error("its lists were not read again")
	}
}

// served is a Watcher that ignores processes that serve.
type served struct{ noWatch }

func (served) WorkerReady(string) {}

// TestDeathDuringFirstList checks that a process of an earlier daemon that dies while it is asked
// for its first lists is reported, and that a session which uses it gets another one.
func TestDeathDuringFirstList(t *testing.T) {
	ended := 0
	started := make(chan struct{})
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), Watch: endings{n: &ended}, CatalogDir: t.TempDir(), StateDir: t.TempDir(),
		Servers: []entry.Server{{
			Name: "s", Scope: entry.Shared, Key: "k", Lazy: true, MaxConcurrent: 1,
			Process: func(context.Context, *process.Owner) (resolve.Process, error) {
				close(started)
				return resolve.Process{}, errors.New("it is started")
			},
		}},
	})
	m.hub.Mu.Lock()
	inst := m.servers["s"].instanceLocked(&tool.Caller{})
	u := m.hub.NewProcess(inst, t.TempDir(), "s", process.Owner{})
	inst.runLocked(u)
	inst.starting = make(chan struct{})
	u.State = stage.Exited
	u.Death = fault.New(fault.ProcessFailure, fault.Server, "run:s", "it ended")
	inst.Exited(u)
	inst.Died(u, stage.Starting)
	m.hub.Mu.Unlock()
	inst.listFirst(u)
	if ended != 1 {
		t.Errorf("its end was reported %d times", ended)
	}
	m.hub.Mu.Lock()
	m.hub.Clients["x"] = anyClient{}
	inst.up, inst.starting = u, make(chan struct{})
	inst.Exited(u)
	m.hub.Mu.Unlock()
	inst.listFirst(u)
	m.hub.WG.Wait()
	select {
	case <-started:
	default:
		t.Error("its session gets no other process")
	}
	m.hub.End()
}

// endings is a Watcher that counts the reports that no process runs.
type endings struct {
	Watcher
	n *int
}

func (w endings) WorkerEnded(string)    { *w.n++ }
func (endings) WorkerLost(string, bool) {}

// anyClient is the client of a session that sees all servers.
type anyClient struct{ tool.Client }

func (anyClient) Caller() tool.Caller { return tool.Caller{Session: "x"} }
func (anyClient) ListChanged(string)  {}

// TestIdleAfterLateAdoption checks that the process of an earlier daemon that is adopted after its
// sessions were given up does not live on without a session.
func TestIdleAfterLateAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{
			Log: slog.New(slog.DiscardHandler), Servers: []entry.Server{{
				Name: "s", Scope: entry.Shared, MaxConcurrent: 1, KeepAlive: time.Minute,
			}},
		})
		m.hub.Mu.Lock()
		inst := m.servers["s"].instanceLocked(&tool.Caller{})
		inst.inherited, inst.adopting, m.hub.Expected = true, make(chan struct{}), true
		m.idleLocked()
		m.hub.Mu.Unlock()
		time.Sleep(time.Hour) // its host is away
		m.hub.Mu.Lock()
		u := m.hub.NewProcess(inst, t.TempDir(), "s", process.Owner{})
		inst.runLocked(u)
		u.ChangeLocked(stage.Ready)
		m.hub.Mu.Unlock()
		m.taken(inst)
		time.Sleep(2 * time.Minute)
		if state, _ := u.Status(); state != stage.Draining {
			t.Errorf("after two minutes without a session it is %v", state)
		}
		m.hub.End()
		m.hub.WG.Wait()
	})
}

// idles returns a manager with a server of projects, and a process for each of so many of them, which lie in root.
func idles(t *testing.T, root string, projects int) (*Manager, []*upstream.Process) {
	t.Helper()
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), CatalogDir: t.TempDir(), StateDir: t.TempDir(), Servers: []entry.Server{{
			Name: "s", Scope: entry.Project, MaxConcurrent: 1, KeepAlive: 10 * time.Minute,
		}},
	})
	var all []*upstream.Process
	for i := range projects {
		dir := filepath.Join(root, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		m.hub.Mu.Lock()
		inst := m.servers["s"].instanceLocked(&tool.Caller{Project: dir, Root: dir})
		u := m.hub.NewProcess(inst, t.TempDir(), "s", process.Owner{})
		inst.runLocked(u)
		u.ChangeLocked(stage.Ready)
		m.idleLocked()
		m.hub.Mu.Unlock()
		all = append(all, u)
		time.Sleep(time.Second)
	}
	return m, all
}

// draining returns which of the processes are ending.
func draining(all []*upstream.Process) (which []int) {
	for i, u := range all {
		if state, _ := u.Status(); state == stage.Draining {
			which = append(which, i)
		}
	}
	return which
}

// TestLastSessionLeaves_ProcessWaits checks how long processes wait for a session: for the time that is configured,
// no longer than their project is there, and not more than maxIdle of them.
func TestLastSessionLeaves_ProcessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		m, all := idles(t, root, maxIdle+2)
		synctest.Wait()
		if got := draining(all); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("with %d processes %v end", len(all), got)
		}
		if err := os.Remove(filepath.Join(root, "5")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rootPause)
		synctest.Wait()
		if got := draining(all); !slices.Equal(got, []int{0, 1, 5}) {
			t.Errorf("once a project was removed %v end", got)
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if got := draining(all); len(got) != 3 {
			t.Errorf("before the time is over %v end", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := draining(all); len(got) != len(all) {
			t.Errorf("after the time only %v end", got)
		}
		m.hub.End()
		m.hub.WG.Wait()
	})
}

// comer is a client of the project in that directory.
type comer struct {
	anyClient
	dir string
}

func (comer) Era() string { return "" }

func (c comer) Caller() tool.Caller { return tool.Caller{Session: "x", Project: c.dir, Root: c.dir} }

// TestSessionComesWhileProcessWaits_NothingEnds checks that a session ends the wait, and that the next wait is a whole
// one, of one goroutine.
func TestSessionComesWhileProcessWaits_NothingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		m, all := idles(t, root, 1)
		for range 100 {
			time.Sleep(time.Minute)
			m.Opened("x", comer{dir: filepath.Join(root, "0")})
			m.Closed("x", "")
		}
		synctest.Wait()
		if got := draining(all); len(got) != 0 {
			t.Errorf("%v end", got)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := draining(all); len(got) != 1 {
			t.Errorf("after the time %v end", got)
		}
		m.hub.End()
		m.hub.WG.Wait()
	})
}

// TestKeepAliveIsEditedWhileProcessWaits_NewTimeCounts checks that a process waits for a session as long as the
// configuration says by now.
func TestKeepAliveIsEditedWhileProcessWaits_NewTimeCounts(t *testing.T) {
	for _, now := range []time.Duration{5 * time.Minute, 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m, all := idles(t, t.TempDir(), 1) // a second has passed since
			time.Sleep(3 * time.Minute)
			m.Configure([]entry.Server{{Name: "s", Scope: entry.Project, MaxConcurrent: 1, KeepAlive: now}})
			time.Sleep(now - 4*time.Minute)
			synctest.Wait()
			if got := draining(all); len(got) != 0 {
				t.Errorf("%v: before the time is over %v end", now, got)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := draining(all); len(got) != 1 {
				t.Errorf("%v: after the time %v end", now, got)
			}
			m.hub.End()
			m.hub.WG.Wait()
		})
	}
}

// TestLastSessionLeavesWhileSuccessorStarts_ItWaitsNoLonger checks that the process of an edited entry does not live on
// without a session if the last one has left before it was up.
func TestLastSessionLeavesWhileSuccessorStarts_ItWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := idles(t, t.TempDir(), 0)
		old := m.servers["s"]
		next := m.newServer(&entry.Server{
			Name: "s", Scope: entry.Project, Key: "edited", MaxConcurrent: 1, KeepAlive: 10 * time.Minute,
		})
		c := tool.Caller{Project: "p", Root: t.TempDir()}
		m.hub.Mu.Lock()
		trial := next.newInstance(next.instanceKey(&c), c.Project, c.Root, stage.OnTrial)
		old.succession = &succession{next: next, done: make(chan struct{})}
		u := m.hub.NewProcess(trial, t.TempDir(), "s", process.Owner{})
		trial.runLocked(u)
		u.ChangeLocked(stage.Ready)
		m.hub.Mu.Unlock()
		if err := m.succeed(old, trial, nil); err != nil || m.servers["s"] != next {
			t.Fatalf("the server is not replaced: %v", err)
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if state, _ := u.Status(); state != stage.Serving {
			t.Errorf("after nine minutes it is %v", state)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if state, _ := u.Status(); state != stage.Draining {
			t.Errorf("after eleven minutes without a session it is %v", state)
		}
		m.hub.End()
		m.hub.WG.Wait()
	})
}
