package consult

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// attachRetry is the pause between attempts to take up a worker that lives and
// can be neither reached nor killed.
const attachRetry = time.Second

// catchUp is the least time that an adopted run has before it is late: what
// its program said while no daemon lived is read first.
const catchUp = 2 * time.Second

// restore makes a job of a directory that can be gone on with: it has, or had,
// a worker (started), or waits for one.
func (m *Manager) restore(rec record, dir string, started bool) (*job, error) {
	j := &job{
		rec: rec, dir: dir, timeout: time.Duration(rec.TimeoutMS) * time.Millisecond, created: rec.created(),
		state: Queued, note: "queued", slot: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		owed: m.owes(&rec),
	}
	if started {
		spec, err := process.ReadSpec(dir)
		if err != nil {
			return nil, err
		}
		j.adopted, j.state, j.note = true, Running, "taken up again"
		j.deadline = time.Now() // of an earlier boot nothing can still run
		if rec.thisBoot() {
			j.deadline = bootclock.TimeMS(spec.Orphan.HardDeadlineBootMS).Add(-m.opt.Ladder.Whole())
		}
		j.began = j.deadline.Add(-j.timeout)
	}
	return j, nil
}

// goOn begins to serve restored jobs. Their clients are expected back.
func (m *Manager) goOn(jobs []*job) {
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
	// The jobs belong to the manager: what ends them is their stop channel.
	ctx := context.Background()
	for _, j := range jobs {
		m.opt.Log.InfoContext(ctx, "consult of an earlier daemon", "consult", j.rec.ID, "identity", j.rec.Identity,
			"state", j.state, "attended", j.rec.Attended)
		if j.rec.Attended {
			m.jobs.Go(func() { m.expect(j) })
		}
		m.jobs.Go(func() { m.serve(ctx, j) })
	}
}

// expect ends a job whose client does not come back for it in time, or cannot.
// Who waits for it by its id meanwhile is as good as its client.
func (m *Manager) expect(j *job) {
	t := time.NewTimer(m.opt.Return)
	defer t.Stop()
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for late := false; !j.rec.deserted(); {
		if late && !j.watched() {
			j.forsake("its client did not come back")
			return
		}
		select {
		case <-look.C:
		case <-t.C:
			late = true
		case <-j.done:
			return
		case <-m.letGo:
			return
		case <-m.abandon:
			return
		}
	}
	j.forsake("its client is gone")
}

// lookPause is how often it is seen whether a client that is expected back
// still can come.
const lookPause = time.Second

// Resumed is told which of its lines a client that is back waits for: what it
// waited for and does not any more ends, unless it knows the id.
func (m *Manager) Resumed(session string, pending map[int64]struct{}) {
	m.returned(session, pending)
	m.mu.Lock()
	var jobs []*job
	for _, j := range m.live {
		if _, ok := pending[j.rec.N]; j.rec.Session == session && !ok {
			jobs = append(jobs, j)
		}
	}
	m.mu.Unlock()
	for _, j := range jobs {
		j.forsake("its client cancelled it")
	}
}

// Recorded tells whether line n of a session has asked for a consult that is
// known here.
func (m *Manager) Recorded(session string, n int64) bool {
	id := ID(session, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id] != nil || m.kept[id] != nil
}

// checkpoint is run.json: what a driver has made of the output up to Seq,
// which the worker need not keep any more.
type checkpoint struct {
	Version  int             `json:"version"`
	Seq      int64           `json:"seq"`
	Rest     []byte          `json:"rest,omitempty"` // of a line that is not whole
	Total    int             `json:"total"`
	Noise    int             `json:"noise,omitempty"`
	Turns    int             `json:"turns,omitempty"`    // that ended
	Answered bool            `json:"answered,omitempty"` // the last of them, by an answer
	Stderr   []string        `json:"stderr,omitempty"`
	Run      json.RawMessage `json:"run"`
}

// maxRest is how long a line that is not whole may be at a checkpoint, in
// bytes; a worker reads a line to its end, however much is not acked.
const maxRest = 64 << 10

// checkpoint writes down what has been read, so that it can be acked.
func (d *driver) checkpoint(seq int64) error {
	run, err := d.run.Checkpoint()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	b, err := json.Marshal(checkpoint{
		Version: formatVersion, Seq: seq, Rest: d.rest, Total: d.total, Noise: d.noise, Turns: d.turns, Answered: d.answered, Stderr: d.stderr, Run: run,
	})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return statedir.WriteFile(filepath.Join(d.j.dir, fileRun), b)
}

// restore goes on from the checkpoint, if there is one, and says which event
// that was.
func (d *driver) restore() (seq int64, err error) {
	b, err := ownfile.Read(filepath.Join(d.j.dir, fileRun), ownfile.MaxDocument)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var c checkpoint
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return 0, fmt.Errorf("reading the checkpoint: %w", err)
	}
	if err := d.run.Restore(c.Run); err != nil {
		return 0, err
	}
	d.rest, d.total, d.noise, d.turns, d.answered, d.stderr = c.Rest, c.Total, c.Noise, c.Turns, c.Answered, c.Stderr
	d.show(true)
	return c.Seq, nil
}

// fresh is what d has not read yet of output that comes from the file of a
// worker that has left. The file may begin before the checkpoint, if the
// daemon that wrote that ended before the worker had taken its ack.
func (d *driver) fresh(ev supervisor.Event) []byte {
	if ev.Seq > 0 || ev.At < 0 {
		return ev.Data
	}
	return ev.Data[max(0, min(int64(d.total)-ev.At, int64(len(ev.Data)))):]
}

// attach takes up the worker of an earlier daemon.
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
		d.m.opt.Log.ErrorContext(ctx, "worker of a consult can be neither reached nor killed", "consult", d.j.rec.ID, "err", err)
		select {
		case <-time.After(attachRetry):
		case <-d.m.letGo:
			return errLeft
		case <-d.m.abandon:
			return errLeft
		}
	}
}

func (d *driver) attachOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	req := d.j.rec.Request
	req.TempDir = filepath.Join(d.j.dir, dirTemp)
	eng, err := d.m.engine(d.j.rec.Engine)
	if err != nil {
		return err
	}
	info, _ := eng.Check(ctx) // without it the run takes the program for one that can do least
	d.run = eng.NewRun(req, info)
	seq, err := d.restore()
	if err != nil {
		return err
	}
	told, err := calls.ReadRecords(d.j.dir)
	if err != nil {
		return err
	}
	var last int64
	if alive, err := supervisor.Alive(d.j.dir); err == nil && !alive {
		d.sign = lastSign(d.j.dir)
	}
	faultpoint.At("adopt.attaching")
	if d.proc, last, err = d.m.opt.Starter.Attach(ctx, d.j.dir, seq); err != nil {
		return err
	}
	faultpoint.At("adopt.attached")
	d.standing(told, last)
	return nil
}

// lastSign is when a worker that is dead last wrote to its directory; zero if it
// has left nothing.
func lastSign(dir string) (last time.Time) {
	for _, name := range []string{process.FileLock, process.FileState, process.FileSpool, calls.File} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// standing finds the rung of the ladder on which the run stands by what its
// program was told: records above the last write are of writes never made.
func (d *driver) standing(told []calls.Record, last int64) {
	d.prompted = last > 0
	for _, r := range told {
		if r.Write > last {
			continue
		}
		switch r.Name {
		case interruptRecord:
			d.phase, d.why = interrupting, engine.Deadline
		case bestRecord:
			d.phase = best
		case cancelRecord:
			d.phase, d.why = cancelling, engine.Cancelled
		}
	}
	if why := d.j.rec.Ending; why != engine.Itself {
		d.phase, d.why = leaving, why
	}
	if d.why == engine.Cancelled {
		d.j.end("it was being cancelled when the daemon ended")
	}
	if d.phase == best && d.turns == 0 {
		d.skip = 1 // the end of the turn that was interrupted is told again
	}
}

// turnsOver tells whether the checkpoint has the end of the turn that an
// adopted run would wait for: it is not told again.
func (d *driver) turnsOver() bool {
	if d.phase == best {
		return d.turns > 1
	}
	return d.turns > 0
}

// left is how long the present rung lasts for an adopted run.
func (d *driver) left() time.Duration {
	ladder := &d.m.opt.Ladder
	switch d.phase {
	case interrupting:
		return ladder.Interrupt
	case best:
		return ladder.Best
	case cancelling:
		return ladder.Cancel
	case leaving:
		return ladder.Leave
	case working, ending:
	}
	return max(time.Until(d.j.deadline), catchUp)
}

// errLeft ends the attempts to take up a worker.
var errLeft = errors.New("left to the next daemon")

// unknown is the fault of a job whose worker nothing can be read of.
func unknown(err error) *fault.Record {
	return fault.New(fault.OutcomeUnknown, fault.Worker, operation,
		"the consult was begun by an earlier daemon, and what became of it is not known: %v", err)
}
