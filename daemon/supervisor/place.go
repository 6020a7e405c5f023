package supervisor

import (
	"context"
	"errors"
	"time"

	"holdline/daemon/supervisor/far"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/supervisor/near"
	"holdline/daemon/supervisor/workdirs"
	"holdline/protocol/farwire"
	"holdline/protocol/process"
	"holdline/protocol/workerwire"
)

// A place is where a worker runs. All that a supervisor does with a worker goes over its
// connection, but for this.
type place interface {
	// launch starts the worker of a directory, which has its spec, and returns when it listens.
	launch(ctx context.Context, w *Worker, env workerwire.Environment) error
	// connect attaches to the worker. Once nothing of it is left it returns [errDead]: then
	// what it has left to be read is in its directory here.
	connect(ctx context.Context, w *Worker) (*client, error)
}

// placeOf returns the place of the worker of a directory. One that ran elsewhere, and is dead,
// is here: all that is left of it is.
func (s *Supervisor) placeOf(dir string) place {
	if at := finding.Far(dir); at != nil {
		return elsewhere{s, at}
	}
	return here{s}
}

// here is this machine.
type here struct{ *Supervisor }

func (p here) launch(ctx context.Context, w *Worker, env workerwire.Environment) error {
	var place func(context.Context, int) int64
	if b := w.spec.Bounds; b != nil {
		place = func(ctx context.Context, pid int) int64 {
			data, err := p.o.Limits.Place(ctx, pid, w.spec.ID, b)
			if err != nil {
				p.log.WarnContext(ctx, "no control group for a server with limits", "worker", w.spec.ID, "err", err)
			}
			return data
		}
	}
	return near.Launch(ctx, p.o.Exe, w.dir, env, place)
}

func (p here) connect(ctx context.Context, w *Worker) (*client, error) { return w.connectHere(ctx) }

// elsewhere is another machine, or a container.
type elsewhere struct {
	*Supervisor
	at *process.Far
}

// launch starts the worker there. Before that it ends what this daemon has given up there: no
// call is made again beside one that may still run. The session becomes the connection.
func (p elsewhere) launch(ctx context.Context, w *Worker, env workerwire.Environment) error {
	if w.session == nil {
		session, err := p.At(p.at).Dial(ctx)
		if err != nil {
			return err
		}
		w.session = session
	}
	err := p.At(p.at).Start(ctx, w.session, &w.spec, env.Env)
	if err != nil {
		w.session.HangUp()
		w.session = nil
		return err
	}
	return nil
}

// refusedTime is how long a machine may refuse to say anything of a worker before that counts for dead.
const refusedTime = 10 * time.Second

// Pauses between attempts to attach to a worker elsewhere.
const (
	firstWait   = 100 * time.Millisecond
	longestWait = 3 * time.Second
)

// connect attaches to the worker, and tries again as long as it may live. While this daemon was
// never attached it returns the error of the first attempt: its caller may have something else
// to do. Once the worker has ended itself for sure, since no daemon could reach it, it is given
// up; so is one that is to be ended and cannot be reached.
func (p elsewhere) connect(ctx context.Context, w *Worker) (*client, error) {
	var refused time.Time // since when that side answers, and refuses what it is asked for
	wait := firstWait     // longer each time: the machine may answer, and what it has may have no room here
	for silent := 0; ; wait = min(2*wait, longestWait) {
		c, err := p.connectOnce(ctx, w)
		lost, unreachable := errors.AsType[*far.UnreachableError](err)
		if unreachable && lost.Refused && refused.IsZero() {
			refused = time.Now()
		} else if !unreachable || !lost.Refused {
			refused = time.Time{}
		}
		switch {
		case errors.Is(err, errSilent) && ctx.Err() == nil:
			if silent++; silent > 1 { // though the machine answers
				err = p.giveUp(ctx, w, err)
			}
		case !unreachable || ctx.Err() != nil:
			return c, err
		}
		over := workdirs.EndedAlone(w.dir, &w.spec) || !refused.IsZero() && time.Since(refused) > refusedTime
		w.mu.Lock()
		first := w.pid == 0
		w.mu.Unlock()
		switch {
		case errors.Is(err, errDead), errors.Is(err, errDisowned):
			return nil, err
		case unreachable && (over || w.isOverdue()):
			return nil, p.abandon(w, lost)
		case unreachable && first && refused.IsZero():
			return nil, err
		}
		if err := w.pauseElsewhere(ctx, max(wait, p.Hosts().Pause(p.at.Host))); err != nil {
			return nil, err
		}
	}
}

// pauseElsewhere blocks for a pause, or until the worker is to be ended.
func (w *Worker) pauseElsewhere(ctx context.Context, pause time.Duration) error {
	until := time.Now().Add(pause)
	for time.Now().Before(until) && !w.isOverdue() {
		if err := near.Pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// connectOnce tries to attach. It returns errDead once the worker is known to be dead, and what
// it left is here.
func (p elsewhere) connectOnce(ctx context.Context, w *Worker) (*client, error) {
	session := w.session // of a start
	w.session = nil
	if session == nil {
		var err error
		if session, err = p.At(p.at).Dial(ctx); err != nil {
			return nil, err
		}
	}
	c, err := p.connectBy(ctx, w, session)
	if err != nil {
		session.HangUp()
	}
	return c, err
}

// connectBy is connectOnce with a session.
func (p elsewhere) connectBy(ctx context.Context, w *Worker, session *far.Session) (*client, error) {
	look, err := session.Ask(ctx, farwire.Request{Op: farwire.Look, ID: w.spec.ID})
	if err == nil && (!look.Alive || w.isOverdue()) {
		if err = p.At(p.at).Bury(ctx, w.dir, session); err == nil {
			return nil, errDead
		}
	}
	if err != nil && ctx.Err() == nil { // it may pass: a disk may be full, here or there
		return nil, p.lost(err)
	} else if err != nil {
		return nil, err
	}
	_, err = session.Ask(ctx, farwire.Request{Op: farwire.Connect, ID: w.spec.ID})
	if _, said := errors.AsType[*workerwire.Error](err); said {
		return nil, errors.Join(err, errSilent) // it lives, and takes no connection
	}
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeoutCause(ctx, 2*answerTimeout, errSilent)
	defer cancel()
	on := &client{nc: session.Conn, out: session.Out, r: workerwire.Reader{R: session.R}, session: session}
	c, hello, err := openClient(limit, on, w.spec.Version)
	if err == nil {
		c, err = w.attachOn(limit, c, &hello)
	}
	switch {
	case err == nil:
		w.sup.Contact(w.dir)
		return c, nil
	case errors.Is(err, ErrClosed), errors.Is(err, errSilent), judge(err) == disowned:
		return nil, err
	case judge(err) == permanent:
		return nil, p.giveUp(ctx, w, err)
	}
	return nil, p.lost(err)
}

// lost returns err as an [*far.UnreachableError].
func (p elsewhere) lost(err error) error {
	if u, ok := errors.AsType[*far.UnreachableError](err); ok {
		return u
	}
	refused, ok := errors.AsType[*workerwire.Error](err)
	return &far.UnreachableError{
		Host: p.at.Host, Words: err.Error(), Refused: ok && refused.Code != workerwire.CodeExhausted,
	}
}

// giveUp ends a worker that lives and cannot be used. It returns errDead once its tree is gone.
func (p elsewhere) giveUp(ctx context.Context, w *Worker, why error) error {
	if !p.Still() {
		return errDisowned
	}
	w.recordKill(ctx, why)
	if err := p.Destroy(ctx, w.dir, false); err != nil && ctx.Err() == nil {
		return p.lost(err)
	} else if err != nil {
		return err
	}
	return errDead
}

// abandon takes a worker that cannot be reached for dead. What may be left of it is ended as soon
// as its host answers. It returns errDead.
func (p elsewhere) abandon(w *Worker, why error) error {
	if err := p.At(p.at).Abandon(w.dir); err != nil {
		return err
	}
	w.recordKill(context.Background(), why)
	return errDead
}

// keepAlive asks the worker at the other end of a connection for a sign of life, again and
// again, and closes the connection if nothing at all comes. The asking tells that side, too, that
// the connection holds. It returns when the connection is lost.
func (w *Worker) keepAlive(c *client) {
	tick := time.NewTicker(farwire.PingEvery)
	defer tick.Stop()
	var answer <-chan workerwire.Frame
	var asked, heardAt time.Time
	heard := int64(-1)
	for {
		if answer == nil {
			w.mu.Lock()
			acked := w.acked
			w.mu.Unlock()
			asked = time.Now()
			// To acknowledge the same once more changes nothing.
			if answer, _ = c.request(workerwire.Frame{Kind: workerwire.Ack, N: acked}); answer == nil {
				return
			}
			w.readOn()
		}
		if now := c.session.Heard(); now != heard {
			heard, heardAt = now, time.Now()
		} else if time.Since(heardAt) > farwire.Silence {
			w.sup.log.Warn("a host says nothing any more", "host", c.session.Host, "worker", w.spec.ID)
			c.closeConn()
			return
		}
		select {
		case _, ok := <-answer:
			if !ok {
				return
			}
			answer = nil
			w.sup.Hosts().Measured(c.session.Host, time.Since(asked))
			w.sup.Contact(w.dir)
			select {
			case <-tick.C:
			case <-c.lost:
				return
			}
		case <-tick.C:
		case <-c.lost:
			return
		}
	}
}

// patience is how long a call waits for a connection that was lost before it is refused.
const patience = 20 * time.Second

// patient bounds the wait of a write to a worker elsewhere for a connection. The reason is that
// nobody knows when the host will answer again.
func (w *Worker) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	w.mu.Lock()
	down, since := w.c == nil, w.downSince
	w.mu.Unlock()
	if w.spec.Far == nil || !down || since.IsZero() {
		return ctx, func() {}
	}
	why := w.sup.Hosts().Last(w.spec.Far.Host)
	if why == nil {
		why = &far.UnreachableError{Host: w.spec.Far.Host, Words: "the connection was lost"}
	}
	return context.WithDeadlineCause(ctx, since.Add(patience), why)
}

// keepStderr appends what the child of a worker elsewhere has written to stderr to its file
// here, for people.
func (w *Worker) keepStderr(c *client, f *workerwire.Frame) {
	if c.session == nil || f.Kind != workerwire.Stderr {
		return
	}
	w.mu.Lock()
	fresh := f.N > w.last
	w.mu.Unlock()
	if fresh {
		near.KeepStderr(w.dir, f.Payload)
	}
}

// startElsewhere is [Supervisor.startWorker] for a worker on another machine, whose name it puts
// into the spec.
func (s *Supervisor) startElsewhere(ctx context.Context, dir string, spec process.Spec, env workerwire.Environment) (
	*Worker, error,
) {
	at := *spec.Far
	at.Node = ""
	session, err := s.At(&at).DialStart(ctx)
	if err != nil {
		return nil, err
	}
	at.Node, spec.Far = session.Node, &at
	w, err := s.startWorker(ctx, dir, spec, env, session)
	if err != nil {
		session.HangUp()
	}
	return w, err
}
