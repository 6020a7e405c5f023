package top

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// Times of a feed.
const (
	statusEvery  = time.Second
	memoryEvery  = 5 // statuses; to look at the memory of all processes takes the daemon longer
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	actionTime   = 2 * time.Minute // a server may take that long to start
)

// Messages that a feed sends to the model.
type (
	// statusMsg is what the daemon says about itself at one moment.
	statusMsg struct {
		status   control.StatusAnswer
		consults []control.Consult
		memory   bool // the status has the memory of processes
	}
	// absentMsg says why there is no connection to a daemon.
	absentMsg struct{ err error }
	// eventMsg is an event of the daemon with that generation.
	eventMsg struct {
		control.Event

		generation int64
	}
)

// feed asks the daemon for what top shows, and does what its user wants.
type feed struct {
	paths        socket.Paths
	ctx          context.Context //nolint:containedctx // commands of bubbletea's get none; it ends with the program
	cwd, project string
}

// connect connects to the daemon. The caller must close the client.
func (f *feed) connect() (*control.Client, error) {
	conn, _, err := f.paths.Dial(f.ctx)
	if err != nil {
		return nil, err
	}
	return control.NewClientOf(f.ctx, conn, cmdenv.Version, f.paths.State())
}

// follow calls do with a connection to the daemon, and again with the next one whenever do
// returns, until the feed ends. absent gets each error. It never starts a daemon.
func (f *feed) follow(absent func(error), do func(*control.Client) error) {
	for pause := firstPause; f.ctx.Err() == nil; pause = min(2*pause, longestPause) {
		begun := time.Now()
		c, err := f.connect()
		if err == nil {
			err = do(c)
			c.Close()
		}
		if time.Since(begun) > longestPause {
			pause = firstPause // that daemon was there for a while
		}
		if f.ctx.Err() == nil {
			absent(err)
		}
		f.wait(pause)
	}
}

// wait returns after that time, or when the feed ends.
func (f *feed) wait(d time.Duration) {
	select {
	case <-f.ctx.Done():
	case <-time.After(d):
	}
}

// watchStatus sends a [statusMsg] every second, or an [absentMsg] while there is no daemon. It
// returns when the feed ends.
func (f *feed) watchStatus(send func(tea.Msg)) {
	f.follow(func(err error) { send(absentMsg{err}) }, func(c *control.Client) error {
		for n := 0; ; n++ {
			s := statusMsg{memory: n%memoryEvery == 1} // not the first: it is to come at once
			err := c.Call(f.ctx, control.Status, control.StatusParams{Memory: s.memory}, &s.status, nil)
			if err != nil {
				return err
			}
			var list control.ConsultListAnswer
			if err := c.Call(f.ctx, control.ConsultList, nil, &list, nil); err != nil {
				return err
			}
			s.consults = list.Consults
			send(s)
			f.wait(statusEvery)
		}
	})
}

// watchEvents sends an [eventMsg] for each event of the daemon, once, and an [absentMsg] as
// soon as the daemon is gone. It returns when the feed ends.
func (f *feed) watchEvents(send func(tea.Msg)) {
	var last eventMsg
	f.follow(func(err error) {
		if _, answered := errors.AsType[*control.RemoteError](err); !answered { // an older daemon has no events
			send(absentMsg{err})
		}
	}, func(c *control.Client) error {
		if c.Daemon.Epoch != last.generation {
			last = eventMsg{generation: c.Daemon.Epoch}
		}
		return c.Call(f.ctx, control.Events, control.EventsParams{After: last.N}, nil, func(p control.Progress) {
			if p.Event != nil {
				last.Event = *p.Event
				send(last)
			}
		})
	})
}

// ask makes one request on a connection of its own.
func (f *feed) ask(method string, params, answer any) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(f.ctx, actionTime)
	defer cancel()
	return c.Call(ctx, method, params, answer, nil)
}

// server makes a request about one server.
func (f *feed) server(method, name string) (int, error) {
	at := control.Whereabouts{Cwd: f.cwd, Project: f.project}
	var a control.ServerAnswer
	err := f.ask(method, control.ServerParams{Whereabouts: at, Name: name}, &a)
	return a.Processes, err
}

// logs returns what the processes of a server have written since the places in after.
func (f *feed) logs(name string, after map[string]int64) (a control.ServerLogsAnswer, err error) {
	err = f.ask(control.ServerLogs, control.ServerLogsParams{Name: name, After: after, Follow: true}, &a)
	return a, err
}

// consult makes a request about one consult.
func (f *feed) consult(method, id string) (a control.ConsultAnswer, err error) {
	err = f.ask(method, control.ConsultID{ID: id}, &a)
	return a, err
}

// explain returns why there is no daemon, and what the user can do, in words. was says that
// there was one.
func explain(err error, was bool) (what, help string) {
	refusal, refused := errors.AsType[*protocol.Refusal](err)
	_, stopped := errors.AsType[*socket.StoppedError](err)
	switch {
	case stopped:
		return "Holdline was stopped.", "Start it again: holdline start"
	case refused && refusal.Code == protocol.RefusedVersion:
		return "The daemon does not talk to this version of Holdline: " + refusal.Message + ".",
			"Replace it: holdline upgrade"
	case refused && refusal.Code != protocol.RefusedStopping:
		return "The daemon does not let this program in: " + refusal.Message + ".", "Find out more: holdline doctor"
	case errors.Is(err, socket.ErrNoDaemon) && was:
		return "The daemon is gone.", "Your agents start the next one; or: holdline start"
	case errors.Is(err, socket.ErrNoDaemon):
		return "Holdline is not running.", "It starts with your first agent; or: holdline start"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "The daemon does not answer.", "Find out why: holdline doctor"
	case errors.Is(err, socket.ErrOtherUser), errors.Is(err, os.ErrPermission):
		return "What listens at the daemon's socket belongs to another user.", "Find out more: holdline doctor"
	}
	return "The daemon is away.", "This goes on when it is back."
}

// plain returns why a request failed, in words.
func plain(err error) string {
	if remote, ok := errors.AsType[*control.RemoteError](err); ok {
		if remote.Fault != nil && remote.Fault.Fault.Code == fault.UnknownMethod {
			return "the daemon is older than this program: holdline upgrade"
		}
		return remote.Message
	}
	what, _ := explain(err, true)
	return what
}
