package daemon

import (
	"context"
	"encoding/json"

	"holdline/daemon/config"
	"holdline/daemon/consult"
	dcontrol "holdline/daemon/control"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// controls are the answers to the command line.
func (l *life) controls() map[string]dcontrol.Handler {
	type progress = func(control.Progress)
	return map[string]dcontrol.Handler{
		control.Status: func(context.Context, json.RawMessage, progress) (any, error) { return l.status(), nil },
		control.Health: func(context.Context, json.RawMessage, progress) (any, error) { return view(l.health(tool.Full)) },
		control.Telemetry: func(context.Context, json.RawMessage, progress) (any, error) {
			return view(l.snapshot(tool.Full))
		},
		control.Stop: func(_ context.Context, params json.RawMessage, _ progress) (any, error) {
			var p control.StopParams
			if err := decode(params, &p); err != nil {
				return nil, err
			}
			if p.All {
				l.endAll.Store(true)
			}
			now := l.status()
			answer := control.StopAnswer{PID: l.PID, Lock: l.place.File(socket.LockFile), Sessions: now.Sessions}
			if !p.All {
				answer.Workers = now.Workers
			}
			l.ask(errAsked)
			return answer, nil
		},
		control.Reload: func(ctx context.Context, _ json.RawMessage, _ progress) (any, error) {
			l.env.Refresh() // the profile may be another one, too
			changed, err := l.reload(ctx)
			if err != nil {
				return nil, refusedFile(err)
			}
			return control.ReloadAnswer{Path: *l.file.Load(), Changed: changed, Absent: config.Absent(*l.file.Load()), Kept: l.keptServers(ctx)}, nil
		},
		control.Environment:   l.showEnvironment,
		control.Upgrade:       l.upgrade,
		control.ServerStart:   l.oneServer(l.servers.Start),
		control.ServerRestart: l.oneServer(l.servers.Restart),
		control.ServerReload:  l.reloadServer,
		control.ServerStop: l.oneServer(func(ctx context.Context, name string, _ tool.Caller) (int, error) {
			return l.servers.Stop(ctx, name)
		}),
		control.ServerTools:  l.serverTools,
		control.ServerAccept: l.acceptTools,
		control.ServerCall:   l.callServer,
		control.ServerLogs:   l.serverLogs,
		control.ConsultCheck: func(ctx context.Context, params json.RawMessage, _ progress) (any, error) {
			return l.checkConsult(ctx, params)
		},
		control.ConsultRun:    l.runConsult,
		control.ConsultRemove: l.removeConsult,
		control.ConsultList: func(context.Context, json.RawMessage, progress) (any, error) {
			return control.ConsultListAnswer{Consults: l.listConsults()}, nil
		},
		control.ConsultShow: l.oneConsult(func(_ context.Context, id string, _ func(string)) (*consult.Answer, error) {
			return l.consults.Show(id)
		}),
		control.ConsultWait: l.oneConsult(l.consults.Wait),
		control.ConsultCancel: l.oneConsult(func(ctx context.Context, id string, _ func(string)) (*consult.Answer, error) {
			return l.consults.Cancel(ctx, id)
		}),
	}
}

// view makes an answer of a snapshot.
func view(text string, value any) (control.TelemetryAnswer, error) {
	raw, err := json.Marshal(value)
	return control.TelemetryAnswer{Text: text, Value: raw}, err
}

// decode reads parameters; absent ones leave v as it is.
func decode(params json.RawMessage, v any) error {
	if params == nil {
		return nil
	}
	if err := json.Unmarshal(params, v); err != nil {
		return fault.New(fault.InvalidInput, fault.Host, "control", "parameters: %v", err)
	}
	return nil
}
