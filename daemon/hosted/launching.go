package hosted

import (
	"errors"
	"time"

	"holdline/daemon/config/resolve"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/leaf"
)

// launching is how one start of an instance starts its server: by its leaf, if a record has that, or as its entry says.
type launching struct {
	inst    *instance
	prepare func() (resolve.Process, error) // what the entry says; the same at each call

	launch   *leaf.Launch // nil if no launcher starts the server
	isDirect bool         // the latest process was started by its leaf
	hasTried bool         // a leaf has failed in this start
	asSpare  bool         // the launcher has failed in this start, and the leaf is tried in its place
	said     string       // by the latest process
	unheard  bool         // a list of the latest process was not answered in time: said is not to be compared
	begun    time.Time    // of the start of the latest process
	leafSaid string       // by a leaf that did not say what the server had said behind its launcher
}

// errSaysOtherwise says that a leaf does not answer as the server behind its launcher does.
var errSaysOtherwise = errors.New(leaf.SaysOtherwise)

// probation is how long a process has to live that is started by its leaf. One that ends by itself before that may do so
// since its launcher is not there.
const probation = time.Minute

// refreshPatience is for how long a launcher that is to look for a newer version may be silent. Without a network npx
// waits for minutes, and the version that ran last is there.
const refreshPatience = 20 * time.Second

// process returns how to start the next process, by the clock of its start.
func (w *launching) process(clock *startup.Clock) (resolve.Process, error) {
	p, err := w.prepare()
	w.launch, w.isDirect, w.said, w.begun = p.Launch, false, "", time.Now()
	if err != nil || w.launch == nil {
		return p, err
	}
	w.inst.m.hub.Mu.Lock()
	isRecovery, quit := w.inst.mustRecover, w.inst.quit
	w.inst.quit = false
	w.inst.m.hub.Mu.Unlock()
	if quit {
		w.refuse(leaf.EndedSoon, nil)
	}
	direct, ok := w.launch.Direct(isRecovery)
	switch {
	case w.asSpare:
		direct, ok = w.launch.Spare()
	case w.hasTried:
		ok = false
	}
	if !ok && !w.hasTried {
		if _, hasSpare := w.launch.Spare(); hasSpare {
			clock.Shorten(max(refreshPatience, 2*w.launch.TookBefore()))
		}
	}
	if ok {
		w.isDirect = true
		p.Command, p.Args, p.Dir, p.Env = direct.Command, direct.Args, direct.Dir, direct.Env
	}
	return p, nil
}

// heard takes what a process has answered in its handshake. A leaf that is started for the first time must have said
// what the server says behind its launcher. If it has not answered all lists in time, as on a busy machine, the next start
// decides.
func (w *launching) heard(u *upstream.Process, lists handshake.Lists) error {
	if w.launch == nil {
		return nil
	}
	w.inst.m.hub.Mu.Lock()
	about := u.Result
	w.inst.m.hub.Mu.Unlock()
	w.said, w.unheard = leaf.Said(about, lists.Raw[:]), lists.Unheard
	if want := w.launch.Said(); !w.isDirect || want == "" || w.unheard {
		return nil
	} else if want != w.said {
		w.leafSaid = w.said
		return errSaysOtherwise
	}
	w.logged(w.launch.Confirm(w.said))
	return nil
}

// served looks for the leaf of a process that serves and was started as its entry says, in a goroutine.
func (w *launching) served(u *upstream.Process) {
	hub, worker := w.inst.m.hub, u.Worker()
	hub.Mu.Lock()
	w.inst.isDirect = w.isDirect
	hub.Mu.Unlock()
	switch {
	case w.launch == nil || w.isDirect || worker == nil:
		return
	case w.unheard: // what a leaf says is not to be compared with that
		return
	case w.leafSaid != "" && w.leafSaid == w.said: // it says by now behind its launcher what its leaf has said
		hub.WG.Go(func() { w.logged(w.launch.Confirm(w.said)) })
		return
	case w.hasTried:
		return
	}
	w.launch.Took = time.Since(w.begun)
	hub.WG.Go(func() {
		why, err := w.launch.Observe(worker.Status().ChildPID, w.said)
		w.logged(err)
		if why != "" {
			hub.Log.Debug("server is started with its launcher", "server", w.inst.key.server, "why", why)
		}
	})
}

// failed takes note of the failure of a start, and reports whether the server is now started the other way, which counts
// as no crash: as its entry says, if that was its leaf; or by its leaf, which has worked before, if that was its launcher.
func (w *launching) failed(err error) bool {
	switch {
	case w.launch == nil || w.asSpare:
		return false
	case w.isDirect:
		w.hasTried = true
		why := leaf.NotStarted
		if errors.Is(err, errSaysOtherwise) {
			why = leaf.SaysOtherwise
		}
		w.refuse(why, err)
		return true
	case w.hasTried:
		return false
	}
	if _, w.asSpare = w.launch.Spare(); w.asSpare {
		w.logged(w.launch.Postpone())
		w.inst.m.hub.Log.Warn("the launcher of a server has not started it, or not in time, so that is started without it",
			"server", w.inst.key.server, "err", err)
	}
	return w.asSpare
}

// refuse says that the server is to be started as its entry says.
func (w *launching) refuse(why string, err error) {
	w.inst.m.hub.Log.Info("server is started with its launcher", "server", w.inst.key.server, "why", why, "err", err)
	w.logged(w.launch.Refuse(why))
}

// logged logs that a record could not be written.
func (w *launching) logged(err error) {
	if err != nil {
		w.inst.m.hub.Log.Warn("how a server is started cannot be recorded", "server", w.inst.key.server, "err", err)
	}
}
