package consult

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// attachRetry is the pause between two attempts to attach to a live worker that the
// daemon can neither reach nor kill.
const attachRetry = time.Second

// restore returns the job of a directory that an earlier daemon has left. With started
// the job has a worker, or had one; without, it still waits in the queue. The caller
// must pass the job to [Manager.resumeJobs].
//
// An adopted job keeps its deadline: restore computes it from the worker's hard
// deadline. If the machine has been booted since, no process of the job can be alive,
// and the deadline is now. A job that was being cancelled is cancelled again.
func (m *Manager) restore(rec record, dir string, started bool) (*job, error) {
	j := &job{
		rec: rec, dir: dir, timeout: time.Duration(rec.TimeoutMS) * time.Millisecond, created: rec.created(),
		state: Queued, note: "queued", slot: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		claim: m.restoreClaim(&rec),
	}
	if started {
		spec, err := process.ReadSpec(dir)
		if err != nil {
			return nil, err
		}
		j.adopted, j.state, j.note = true, Running, "adopted by the new daemon"
		j.deadline = time.Now() // of an earlier boot nothing can still run
		if rec.thisBoot() {
			j.deadline = bootclock.TimeMS(spec.Orphan.HardDeadlineBootMS).Add(-m.opt.Ladder.Whole() - spareTime)
		}
		j.began = j.deadline.Add(-j.timeout)
	}
	if rec.Ending != "" {
		j.end(rec.Ending)
	}
	return j, nil
}

// resumeJobs puts restored jobs into the queue or into its slots, oldest first, and
// starts a goroutine for each. For an attended job it starts a second one, which ends
// the job if its client does not come back.
//
// Adopted jobs take their slots whatever the limit says: their programs already run.
func (m *Manager) resumeJobs(jobs []*job) {
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.rec.CreatedUnixMS, b.rec.CreatedUnixMS) })
	m.mu.Lock()
	for _, j := range jobs {
		m.live[j.rec.ID] = j
		if j.adopted {
			m.queue.occupy(j)
		} else {
			m.queue.waiting = append(m.queue.waiting, j)
		}
	}
	m.queue.start(m.settings.Load().MaxConcurrent)
	m.mu.Unlock()
	faultpoint.At("adopt.queued")
	// No caller's context may end these jobs: only their stop channels do.
	ctx := context.Background()
	for _, j := range jobs {
		m.opt.Log.InfoContext(ctx, "consult of an earlier daemon", "consult", j.rec.ID, "identity", j.rec.Identity,
			"state", j.state, "attended", j.rec.Attended)
		if j.rec.Attended {
			m.jobs.Go(func() { m.awaitClient(j) })
		}
		m.jobs.Go(func() { m.serve(ctx, j) })
	}
}

// awaitClient ends an attended job of an earlier daemon if its client does not come
// back for it within [Options.Return], or at once if the client's process is gone. A
// job that a call attends by then, or that is a background job, goes on. A caller that
// waits for the job by its id counts as its client for as long as it waits. It blocks
// until the time is over, the job has ended or the manager stops.
func (m *Manager) awaitClient(j *job) {
	t := time.NewTimer(m.opt.Return)
	defer t.Stop()
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for late := false; !j.rec.deserted(); {
		if late && !j.watched() {
			j.endUnattended("its client did not come back")
			return
		}
		select {
		case <-look.C:
		case <-t.C:
			late = true
		case <-j.done:
			return
		case <-m.detached:
			return
		case <-m.abandoned:
			return
		}
	}
	j.endUnattended("its client is gone")
}

// lookPause is the pause between two looks at the process of a client that is expected
// back.
const lookPause = time.Second

// Recorded reports whether line n of a session has asked for a consult that is live or
// kept here.
func (m *Manager) Recorded(session string, n int64) bool {
	id := ID(session, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id] != nil || m.kept[id] != nil
}

// attach attaches to the worker that an earlier daemon has started. While the worker
// lives but cannot be reached, attach tries again every second: as long as the worker
// may still finish, the answer outcome_unknown would not be safe. It returns
// [errLeft] if the manager stops meanwhile, and the error of the last attempt if the
// worker is dead.
func (d *driver) attach(ctx context.Context) error {
	for {
		err := d.attachOnce(ctx)
		if err == nil {
			return nil
		}
		if alive, lerr := supervisor.Alive(d.j.dir); lerr != nil || !alive {
			return err
		}
		// Nothing may be said of it while it lives.
		d.m.opt.Log.ErrorContext(ctx, "worker of a consult can be neither reached nor killed", "consult", d.j.rec.ID,
			"err", err)
		select {
		case <-time.After(attachRetry):
		case <-d.m.detached:
			return errLeft
		case <-d.m.abandoned:
			return errLeft
		}
	}
}

// attachOnce attaches to the worker, or reads what a dead worker has left. It sets
// d.proc and d.sent.
//
// Writes are numbered from 1: the first is the call, the second its cancellation. If
// the worker has taken no write, the program has certainly not seen the call. Then
// attachOnce composes the call again for a live worker, and [driver.follow] sends it.
func (d *driver) attachOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	alive, err := supervisor.Alive(d.j.dir)
	if err == nil && !alive {
		d.sign = lastSign(d.j.dir)
	}
	faultpoint.At("adopt.attaching")
	proc, last, err := d.m.opt.Starter.Attach(ctx, d.j.dir, 0)
	if err != nil {
		return err
	}
	d.proc = proc
	faultpoint.At("adopt.attached")
	d.sent = last > 0
	if last > 1 {
		d.j.end("it was being cancelled when the daemon ended")
	}
	if d.sent || !alive {
		return nil
	}
	eng, err := d.m.engine(d.j.rec.Engine)
	if err != nil {
		return err
	}
	params, err := d.params(ctx, eng)
	if err == nil {
		params.TempDir, err = d.m.shortTemp(filepath.Join(d.j.dir, dirTemp), d.j.rec.ID, params.Level)
	}
	if err != nil {
		d.failed = err // follow then ends the process, which still waits for its call
		return nil
	}
	d.call = callLine(params)
	return nil
}

// lastSign returns when a dead worker last wrote to its directory. That is the best
// guess at when the run ended. It is zero if the worker has left no file.
func lastSign(dir string) (last time.Time) {
	for _, name := range []string{process.FileLock, process.FileState, process.FileSpool, calls.File} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// errLeft ends the attempts to attach to a worker: the manager stops, and the next
// daemon goes on with the job.
var errLeft = errors.New("left to the next daemon")

// unknown returns the outcome_unknown fault of a job whose worker has left no file that
// can be read.
func unknown(err error) *fault.Record {
	return fault.New(fault.OutcomeUnknown, fault.Worker, operation,
		"the consult was begun by an earlier daemon, and what became of it is not known: %v", err)
}
