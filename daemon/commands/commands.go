// Package commands answers the command line: each method of protocol/control has a
// handler here, which asks the parts of the daemon.
//
// [Server.ServeConn] is the listener's handler of role "control". It starts a
// goroutine for each request, which ends with the connection: a command that is
// interrupted ends what it waited for.
//
// The answers are the types of protocol/control, which most parts return themselves. An
// error of a handler goes to the command line as an error of JSON-RPC, with the fault
// record as its data.
//
// A command that uses servers is a session of its own: its processes are chosen by the
// project from which it is run, and the rules of its identity hold. [Daemon] also makes
// the answers of the tools health_snapshot and telemetry_snapshot, since commands show
// the same.
package commands

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/configfile"
	"holdline/daemon/consult"
	"holdline/daemon/consult/answer"
	"holdline/daemon/events"
	"holdline/daemon/footprint"
	"holdline/daemon/guests"
	"holdline/daemon/hosted"
	"holdline/daemon/hosted/asklogin"
	"holdline/daemon/leaf"
	"holdline/daemon/place"
	"holdline/daemon/session"
	"holdline/daemon/supervisor"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/daemon/userenv"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// Daemon has the parts of a running daemon, which the commands ask. Its fields must not
// change once it serves. Sessions may be set last, since sessions need the tools that are
// made from a Daemon.
type Daemon struct {
	Log       *slog.Logger
	PID       int
	Version   string
	StartedBy string
	Begin     time.Time
	File      *configfile.File
	Place     *place.Place
	Env       *userenv.Environ
	Telemetry *telemetry.Recorder
	Events    *events.Ring
	Workers   *supervisor.Supervisor
	Servers   *hosted.Manager
	Consults  *consult.Manager
	Sessions  *session.Server
	Guests    *guests.Manager
	Rules     tool.Rules
	Memory    *footprint.Meter
	// Leaves has how servers are started without their launchers.
	Leaves *leaf.Store
	// Login returns the login of a server; nil for one that has no address.
	Login func(s *config.Settings) *control.Login
	// Asker asks people to log in.
	Asker *asklogin.Asker
	// Troubles returns for people what keeps the daemon itself from working as it should.
	Troubles func() []string
	// Stop begins to stop the daemon as the user wants it.
	Stop func(control.StopParams)
	// Upgrade hands over to the program at the watched path, and returns only if that
	// failed; see [holdline/daemon/rollout.Watcher.Upgrade].
	Upgrade func(ctx context.Context, progress Progress) (any, error)
}

// Handlers returns the handlers by the methods of protocol/control. Those that take long,
// for example since a server has to start, end early when the command is interrupted.
func (d *Daemon) Handlers() map[string]Handler {
	return map[string]Handler{
		control.Status: handle(d.showStatus),
		control.Health: handleNone(func(context.Context) (any, error) { return encodeView(d.Health(tool.Full)) }),
		control.Telemetry: handleNone(func(context.Context) (any, error) {
			return encodeView(d.Snapshot(tool.Full))
		}),
		control.Events: handle(func(ctx context.Context, p control.EventsParams, progress Progress) (any, error) {
			return nil, d.Events.Follow(ctx, p.After, func(e control.Event) { progress(control.Progress{Event: &e}) })
		}),
		control.Disconnect:  handle(d.disconnect),
		control.Forward:     handle(d.forward),
		control.Stop:        handle(d.stopDaemon),
		control.Reload:      handle(d.reload),
		control.Environment: handle(d.showEnvironment),
		control.Upgrade: handle(func(ctx context.Context, _ struct{}, p Progress) (any, error) {
			return d.Upgrade(ctx, p)
		}),
		control.LoginChanged: handle(func(_ context.Context, p control.LoginParams, _ Progress) (any, error) {
			d.Servers.LoginsChanged()
			d.Asker.Changed(p.Target, p.Out)
			return struct{}{}, nil
		}),
		control.ServerStart:   d.handleServer(d.Servers.Start),
		control.ServerRestart: handle(d.restartServer),
		control.ServerReload:  handle(d.reloadServer),
		control.ServerStop: d.handleServer(func(ctx context.Context, name string, _ tool.Caller) (int, error) {
			return d.Servers.Stop(ctx, name)
		}),
		control.ServerTools:   handle(d.listTools),
		control.ServerAccept:  handle(d.acceptTools),
		control.ServerCall:    handle(d.callTool),
		control.ServerLogs:    handle(d.serverLogs),
		control.ConsultCheck:  handle(d.checkConsult),
		control.ConsultRun:    handle(d.runConsult),
		control.ConsultRemove: handle(d.removeConsult),
		control.ConsultClose:  handle(d.closeConsult),
		control.ConsultList: handleNone(func(context.Context) (any, error) {
			return control.ConsultListAnswer{Consults: d.listConsults()}, nil
		}),
		control.ConsultSay: handle(func(ctx context.Context, p control.SayParams, _ Progress) (any, error) {
			return d.Consults.SayFromShell(ctx, sessionOf(p.Key), p.ID, p.Text)
		}),
		control.ConsultShow: d.handleConsult(
			func(_ context.Context, id string, _ func(string)) (*answer.Answer, error) {
				return d.Consults.Show(id)
			}),
		control.ConsultWait: d.handleConsult(d.Consults.Wait),
		control.ConsultCancel: d.handleConsult(
			func(ctx context.Context, id string, _ func(string)) (*answer.Answer, error) {
				return d.Consults.Cancel(ctx, id)
			}),
	}
}

// disconnect ends sessions.
func (d *Daemon) disconnect(_ context.Context, p control.DisconnectParams, _ Progress) (any, error) {
	return control.DisconnectAnswer{Sessions: d.Sessions.Expel(p.Session, p.Socket)}, nil
}

// forward shows in the status that a command forwards a socket, until the command ends.
func (d *Daemon) forward(ctx context.Context, p control.ForwardParams, _ Progress) (any, error) {
	done, err := d.Guests.Forwarded(p.Socket, p.Host)
	if err != nil {
		return nil, err
	}
	defer done()
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// encodeView returns the answer for a snapshot, with its text and its value.
func encodeView(text string, value any) (control.TelemetryAnswer, error) {
	raw, err := json.Marshal(value)
	return control.TelemetryAnswer{Text: text, Value: raw}, err
}

// stopDaemon begins to stop the daemon. The answer says what runs on without it: the
// sessions, whose proxies start the next daemon, and unless all was asked for the workers.
func (d *Daemon) stopDaemon(_ context.Context, p control.StopParams, _ Progress) (any, error) {
	now := d.status()
	answer := control.StopAnswer{PID: d.PID, Lock: d.Place.File(socket.LockFile), Sessions: now.Sessions}
	if !p.All {
		answer.Workers = now.Workers
	}
	d.Stop(p)
	return answer, nil
}

// reload reads the configuration again. It also asks the user's shell again, since the
// profile may have changed, too. It does not wait for the shell. Servers whose entries
// have changed are replaced; the answer names those that go on as they were.
func (d *Daemon) reload(ctx context.Context, p control.ReloadParams, _ Progress) (any, error) {
	d.Env.Refresh()
	read := d.File.Reload
	if p.Nothing {
		read = d.File.Accept
	}
	changed, err := read(ctx)
	if err != nil {
		return nil, refusedFile(err)
	}
	path, leftOut := d.File.Path(), map[string]string{}
	for name, err := range d.File.Current().Unusable() {
		leftOut[name] = err.Error()
	}
	return control.ReloadAnswer{
		Path: path, Changed: changed, Absent: config.Absent(path), Kept: d.keptServers(ctx), LeftOut: leftOut,
	}, nil
}

// refusedFile returns the fault of a configuration that is not used.
func refusedFile(err error) error {
	f := fault.New(fault.InvalidInput, fault.Host, control.Reload, "%v", err)
	if errors.Is(err, configfile.ErrNothing) {
		return f.WithReason(fault.SaysNothing)
	}
	return f
}

// replaceWait bounds how long a command waits until edited servers are replaced.
const replaceWait = 10 * time.Second

// keptServers returns, by name, why servers go on as they were although their
// entries were edited. It does not wait for a server that takes long to come up.
func (d *Daemon) keptServers(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, replaceWait)
	defer cancel()
	failed, _ := d.Servers.Replaced(ctx)
	kept := map[string]string{}
	for name, err := range failed {
		kept[name] = err.Error()
	}
	return kept
}
