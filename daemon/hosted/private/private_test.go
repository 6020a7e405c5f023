package private_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/private"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/worker/workertest"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// room has the directory of one private call, and its daemons, one after another.
type room struct {
	t     *testing.T
	dir   string // the runtime directory
	job   string // the worker's directory
	epoch int64
}

func newRoom(t *testing.T) *room {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl") // a short path, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	r := &room{t: t, dir: dir, job: filepath.Join(dir, "consults", "one")}
	t.Cleanup(func() {
		if err := r.daemon().Workers.Clear(context.WithoutCancel(t.Context()), r.job); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	if err := os.MkdirAll(r.job, 0o700); err != nil {
		t.Fatal(err)
	}
	return r
}

// daemon returns the part of the next daemon that makes private calls.
func (r *room) daemon() private.Processes {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	r.epoch++
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	workers := supervisor.New(supervisor.Options{
		Exe: exe, RuntimeDir: r.dir, StateDir: r.dir, Epoch: r.epoch, Program: "test", Log: log,
	})
	r.t.Cleanup(func() { _ = workers.Close(context.Background()) })
	return private.Processes{Log: log, Workers: workers, Watch: nobody{}}
}

// call returns a call of a script. The script appends each line that it reads to a file.
func (r *room) call(script string) *private.Call {
	return &private.Call{
		Dir: r.job, Argv: []string{"/bin/sh", "-c", script}, Name: "script", Limit: time.Hour,
		Grace:  50 * time.Millisecond,
		Record: calls.Record{N: 7, Session: "s", Name: "run", Contract: "never_replay", Identity: "a"},
		Compose: func(context.Context) (any, []string, error) {
			return map[string]string{"prompt": "x"}, []string{"PATH=" + os.Getenv("PATH"), "LOG=" + r.log()}, nil
		},
		Progress: func(json.RawMessage) {}, Cancelled: func() {},
	}
}

func (r *room) log() string { return filepath.Join(r.dir, "log") }

// lines returns the lines that the scripts have read so far.
func (r *room) lines() []string {
	b, _ := os.ReadFile(r.log())
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// run makes a call and returns its end.
func run(ctx context.Context, p private.Processes, c *private.Call) (end private.End) {
	p.Call(ctx, c, func(e private.End) { end = e })
	return end
}

const (
	hear     = `read -r line || exit; echo "$line" >> "$LOG"; `
	progress = `echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":5}}'; `
	answer   = `echo '{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{}}}'; `
)

// TestPrivateResultUntilSettled checks that the worker keeps the result until settle has
// returned. If the daemon dies before, the next one gets the result, and the call is made
// once.
func TestPrivateResultUntilSettled(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	if e := resultAfterDeath(t, r); string(e.Result) != `{"structuredContent":{}}` || e.Exit.Code == nil || *e.Exit.Code != 3 {
		t.Errorf("the next daemon has %+v", e)
	}
	got := r.lines()
	if len(got) != 1 || !strings.Contains(got[0], `"method":"tools/call"`) ||
		!strings.Contains(got[0], `"progressToken":1`) {
		t.Errorf("the process has read %q", got)
	}
	if alive, err := finding.Alive(r.job); err != nil || alive {
		t.Errorf("the worker lives: %t, %v", alive, err)
	}
}

// TestPrivateNoticesEarlyAck breaks the rule that output is acknowledged when it is not
// needed any more: the next daemon then lacks the result.
func TestPrivateNoticesEarlyAck(t *testing.T) {
	t.Cleanup(func() { faultpoint.Break(nil) }) // after all parts have ended
	faultpoint.Break(func(name string) bool { return name == "ack.confirmed" })
	if e := resultAfterDeath(t, newRoom(t)); e.Result != nil {
		t.Errorf("the next daemon has the result %s", e.Result)
	}
}

// resultAfterDeath lets a daemon die when it has the result of a call but has not settled
// it, and returns what the next daemon has of the call.
func resultAfterDeath(t *testing.T, r *room) private.End {
	t.Helper()
	first := r.daemon()
	// The process ends when the daemon has read what follows the result.
	c := r.call(hear + answer + progress + `until [ -e "$LOG.read" ]; do sleep 0.01; done; exit 3`)
	told := 0
	c.Progress = func(json.RawMessage) {
		told++
		if err := os.WriteFile(r.log()+".read", nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	first.Call(t.Context(), c, func(e private.End) {
		if string(e.Result) != `{"structuredContent":{}}` || e.Exit.Code == nil || *e.Exit.Code != 3 || told != 1 {
			t.Errorf("ended with %s, %s, after %d progress notifications", e.Result, e.Exit, told)
		}
		if err := first.Workers.Close(t.Context()); err != nil { // as if the daemon died before the answer was kept
			t.Error(err)
		}
	})
	c.Adopt = true
	return run(t.Context(), r.daemon(), c)
}

// TestPrivateCancelled checks that a process that ignores the cancellation is ended in
// time, and that one without a call yet gets none.
func TestPrivateCancelled(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	cancel := make(chan struct{})
	c := r.call(`trap "" TERM; ` + hear + progress + hear + "while :; do sleep 1; done")
	c.Cancel, c.Progress = cancel, func(json.RawMessage) { close(cancel) }
	begun := time.Now()
	if e := run(t.Context(), r.daemon(), c); e.Exit.Signal != "SIGKILL" || e.Result != nil {
		t.Errorf("ended with %+v", e)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
	if got := r.lines(); len(got) != 2 || !strings.Contains(got[1], `{"requestId":1}`) {
		t.Errorf("the process has read %q", got)
	}

	r = newRoom(t)
	c = r.call(hear + answer)
	c.Cancel = cancel
	if e := run(t.Context(), r.daemon(), c); e.Generation == 0 || e.Result != nil || r.lines()[0] != "" {
		t.Errorf("ended with %+v, and the process has read %q", e, r.lines())
	}
}

// TestPrivateLeft checks that a process that is detached continues, and that the next
// daemon waits for it without a second call. A process without a call yet is called by the
// next daemon.
func TestPrivateLeft(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	ctx, leave := context.WithCancel(t.Context())
	c := r.call(hear + progress + `until [ -e "$LOG.go" ]; do sleep 0.01; done; ` + answer)
	c.Progress = func(json.RawMessage) { leave() }
	if e := run(ctx, r.daemon(), c); !e.Left {
		t.Errorf("ended with %+v", e)
	}
	if err := os.WriteFile(r.log()+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Adopt, c.Progress = true, func(json.RawMessage) {}
	if e := run(t.Context(), r.daemon(), c); e.Left || e.Result == nil || len(r.lines()) != 1 {
		t.Errorf("the next daemon has %+v, and the process has read %q", e, r.lines())
	}

	r = newRoom(t)
	first := r.daemon()
	c = r.call(hear + answer)
	_, env, _ := c.Compose(t.Context())
	spec := process.Spec{ID: "one", Kind: process.KindConsult, Name: "script", Argv: c.Argv, Cwd: "/"}
	spec.Orphan = process.Orphan{Do: process.OrphanLeave, AfterMS: time.Minute.Milliseconds()}
	if _, err := first.Workers.Start(t.Context(), r.job, spec, env); err != nil {
		t.Fatal(err)
	}
	if err := first.Workers.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Adopt = true
	if e := run(t.Context(), r.daemon(), c); e.Result == nil || len(r.lines()) != 1 {
		t.Errorf("a process that was not called ends with %+v, and has read %q", e, r.lines())
	}
}

// TestPrivateLongResultLost_ProcessIsEnded takes away the file with the long result of a call that
// was made while there was no daemon. The next daemon does not wait for it until the call's limit,
// but ends the process; a lost notification ends nothing.
func TestPrivateLongResultLost_ProcessIsEnded(t *testing.T) {
	t.Parallel()
	const long = `head -c 300000 /dev/zero | tr '\0' x; `
	for name, x := range map[string]struct {
		line string
		want bool
	}{
		"result":       {`printf '{"jsonrpc":"2.0","id":1,"result":{"t":"'; ` + long + `echo '"}}'; `, false},
		"notification": {`printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"t":"'; ` + long + `echo '"}}'; `, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t)
			ctx, leave := context.WithCancel(t.Context())
			rest := "sleep 600"
			if x.want {
				rest = `until [ -e "$LOG.more" ]; do sleep 0.01; done; ` + answer
			}
			c := r.call(hear + progress + `until [ -e "$LOG.go" ]; do sleep 0.01; done; ` + x.line + `: > "$LOG.said"; ` + rest)
			c.Progress = func(json.RawMessage) { leave() }
			if e := run(ctx, r.daemon(), c); !e.Left {
				t.Errorf("ended with %+v", e)
			}
			until := func(path string) {
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
					if found, _ := filepath.Glob(path); len(found) > 0 {
						return
					} else if time.Now().After(deadline) {
						t.Fatalf("there is no %s", path)
					}
				}
			}
			if err := os.WriteFile(r.log()+".go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			until(r.log() + ".said")
			file := filepath.Join(r.job, process.FileLong+"1")
			until(file)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(r.log()+".more", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			c.Adopt, c.Progress = true, func(json.RawMessage) {}
			begun := time.Now()
			e := run(t.Context(), r.daemon(), c)
			if took := time.Since(begun); e.Left || (e.Result != nil) != x.want || took > 30*time.Second {
				t.Errorf("the next daemon has, after %v, %+v", took, e)
			}
		})
	}
}

// TestMain lets the test binary stand in for the program that workers run.
func TestMain(m *testing.M) {
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	os.Exit(m.Run())
}

// nobody ignores the states of processes.
type nobody struct{}

func (nobody) WorkerStarting(string, int64) {}
func (nobody) WorkerReady(string)           {}
func (nobody) WorkerEnded(string)           {}

// TestPrivateDetached checks that a call whose worker was detached has no outcome, whoever
// detached it: its process goes on.
func TestPrivateDetached(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	first := r.daemon()
	c := r.call(hear + progress + `until [ -e "$LOG.go" ]; do sleep 0.01; done; ` + answer)
	closed := make(chan error, 1)
	c.Progress = func(json.RawMessage) { go func() { closed <- first.Workers.Close(t.Context()) }() }
	if e := run(t.Context(), first, c); !e.Left {
		t.Errorf("ended with %+v", e)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(r.log()+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Adopt, c.Progress = true, func(json.RawMessage) {}
	if e := run(t.Context(), r.daemon(), c); e.Result == nil || len(r.lines()) != 1 {
		t.Errorf("the next daemon has %+v, and the process has read %q", e, r.lines())
	}
}
