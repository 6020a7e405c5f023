package hosted

import (
	"encoding/json"
	"errors"

	"holdline/daemon/config/resolve"
	"holdline/daemon/hosted/upstream"
	"holdline/daemon/leaf"
	"holdline/daemon/listing"
)

// launching is how one start of an instance starts its server: by its leaf, if a record has that, or as its entry says.
type launching struct {
	inst    *instance
	prepare func() (resolve.Process, error) // what the entry says; the same at each call

	launch   *leaf.Launch // nil if no launcher starts the server
	isDirect bool         // the latest process was started by its leaf
	hasTried bool         // a leaf has failed in this start
	said     string       // by the latest process
}

// errSaysOtherwise says that a leaf does not answer as the server behind its launcher does.
var errSaysOtherwise = errors.New("it answers otherwise than behind its launcher")

// process returns how to start the next process.
func (w *launching) process() (resolve.Process, error) {
	p, err := w.prepare()
	if w.launch, w.isDirect, w.said = p.Launch, false, ""; err != nil || w.launch == nil || w.hasTried {
		return p, err
	}
	w.inst.m.hub.Mu.Lock()
	isRecovery := w.inst.mustRecover
	w.inst.m.hub.Mu.Unlock()
	if direct, ok := w.launch.Direct(isRecovery); ok {
		w.isDirect = true
		p.Command, p.Args, p.Dir, p.Env = direct.Command, direct.Args, direct.Dir, direct.Env
	}
	return p, nil
}

// heard takes what a process has answered in its handshake. A leaf that is started for the first time must have said
// what the server says behind its launcher.
func (w *launching) heard(u *upstream.Process, lists listing.Lists) error {
	if w.launch == nil {
		return nil
	}
	w.inst.m.hub.Mu.Lock()
	parts := []json.RawMessage{u.Result}
	w.inst.m.hub.Mu.Unlock()
	for _, list := range lists {
		parts = append(parts, list...)
	}
	w.said = leaf.Said(parts)
	if want := w.launch.Said(); !w.isDirect || want == "" {
		return nil
	} else if want != w.said {
		return errSaysOtherwise
	}
	w.logged(w.launch.Confirm())
	return nil
}

// served looks for the leaf of a process that serves and was started as its entry says, in a goroutine.
func (w *launching) served(u *upstream.Process) {
	hub, worker := w.inst.m.hub, u.Worker()
	if w.launch == nil || w.isDirect || w.hasTried || worker == nil {
		return
	}
	hub.WG.Go(func() {
		why, err := w.launch.Observe(worker.Status().ChildPID, w.said)
		w.logged(err)
		if why != "" {
			hub.Log.Debug("server is started with its launcher", "server", w.inst.key.server, "why", why)
		}
	})
}

// failed takes note of the failure of a start. It reports whether that was of a leaf, so that the server is now started
// as its entry says, which counts as no crash.
func (w *launching) failed(err error) bool {
	if !w.isDirect {
		return false
	}
	w.hasTried = true
	why := "it did not start without its launcher"
	if errors.Is(err, errSaysOtherwise) {
		why = errSaysOtherwise.Error()
	}
	w.inst.m.hub.Log.Info("server is started with its launcher", "server", w.inst.key.server, "why", why, "err", err)
	w.logged(w.launch.Refuse(why))
	return true
}

// logged logs that a record could not be written.
func (w *launching) logged(err error) {
	if err != nil {
		w.inst.m.hub.Log.Warn("how a server is started cannot be recorded", "server", w.inst.key.server, "err", err)
	}
}
