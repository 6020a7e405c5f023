package daemon

import (
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"holdline/daemon/hosted"
	"holdline/daemon/policy"
	"holdline/daemon/session"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// recorder lets sessions tell telemetry what happened.
type recorder struct{ r *telemetry.Recorder }

func (t recorder) Request(method, server, toolName string, took time.Duration, replays int, f *fault.Record) {
	t.r.Request(telemetry.Operation{Method: method, Server: server, Tool: toolName}, took, replays, f)
}

func (t recorder) ToolCall(c session.ToolCall) {
	t.r.ToolCall(telemetry.Call{
		Session: c.Caller.Session, Number: c.Caller.Number, Identity: c.Caller.Identity, Client: c.Caller.Client,
		Project: c.Caller.Project, Root: c.Caller.Root, RequestID: c.RequestID, Tool: c.Tool, Server: c.Server, Cache: c.Cache,
		Arguments: c.Arguments, Took: c.Took, Replays: c.Replays, Fault: c.Fault,
	})
}

func (t recorder) SessionEnded(hash string) { t.r.SessionEnded(hash) }

// health is the tool health_snapshot.
func (l *life) health(d tool.Detail) (string, any) {
	servers := l.servers.Status()
	h := l.telemetry.Health(telemetry.Parts{Sessions: len(l.sessions.Sessions()), Servers: len(servers), Unwell: unwell(servers)})
	if d == tool.Full {
		return h.Text(true), h.Full()
	}
	return h.Text(false), h.Concise()
}

// unwell are the servers that cannot be used now, or may not be, and why.
func unwell(servers []hosted.Status) []telemetry.Unwell {
	var all []telemetry.Unwell
	for i := range servers {
		s := &servers[i]
		one := telemetry.Unwell{Name: s.Name, State: s.State}
		switch {
		case s.Suspect:
			one.State, one.Detail = "silent", "a call had no answer; it is asked for a sign of life, and started again if it gives none"
		case s.State == "recovering", s.State == "failed", s.State == "ejected":
		case s.Circuit != policy.Closed:
			one.State = "circuit_" + string(s.Circuit)
		default:
			continue
		}
		if one.Detail == "" && s.Fault != nil {
			one.Detail = s.Fault.Fault.Detail
		}
		all = append(all, one)
	}
	return all
}

// snapshot is the tool telemetry_snapshot.
func (l *life) snapshot(d tool.Detail) (string, any) {
	s := l.telemetry.Snapshot()
	if d == tool.Full {
		return s.Text(true), s
	}
	return s.Text(false), s.Concise()
}

// status is what the command of that name shows.
func (l *life) status() control.StatusAnswer {
	health := l.telemetry.Health(telemetry.Parts{})
	s := control.StatusAnswer{
		Daemon: control.Daemon{
			PID: l.PID, Version: l.Version, Epoch: l.place.Generation(), UptimeMS: time.Since(l.begin).Milliseconds(),
			Socket: l.place.Socket(), StartedBy: l.StartedBy, Rollout: string(health.Rollout), Config: *l.file.Load(),
		},
		Sessions: []control.Session{},
		Workers:  []control.Worker{},
		Servers:  []control.Server{},
		Consults: l.consultCounts(),
		Cache:    control.Cache(l.servers.Cache()),
		Runtime:  runtimeNow(),
	}
	s.Daemon.ConfigRefused = l.configRefusal()
	if log := health.Log; log.LastError != "" {
		s.Daemon.Degraded = "the call log cannot be written: " + log.LastError
	}
	if f := health.Refusal; f != nil {
		s.Daemon.Refusal = f.Fault.Detail
	}
	for _, one := range l.sessions.Sessions() {
		s.Sessions = append(s.Sessions, control.Session(one))
	}
	for _, w := range l.workers.Workers() {
		s.Workers = append(s.Workers, control.Worker(w))
	}
	for _, one := range l.servers.Status() {
		s.Servers = append(s.Servers, serverView(&one))
	}
	return s
}

// serverView is a hosted server as the command line gets it.
func serverView(s *hosted.Status) control.Server {
	v := control.Server{
		Name: s.Name, Scope: string(s.Scope), State: s.State, Active: s.Active, Lazy: s.Lazy, RefCount: s.Users, Processes: s.Processes,
		Restarts: s.Restarts, Failures: s.Failures, Circuit: string(s.Circuit), Ejected: s.Ejected, InFlight: s.InFlight, Queued: s.Queued,
		CacheCount: s.CacheEntries, NoiseLines: s.Noise, Notes: s.Notes, LastFault: s.Fault,
	}
	if s.Tools >= 0 {
		v.Tools, v.Changed, v.Blocked = &s.Tools, s.Changed, s.Blocks && s.Changed > 0
	}
	if s.Fault != nil {
		v.LastFaultMS = s.FaultAt.UnixMilli()
	}
	return v
}

// runtimeNow describes this process.
func runtimeNow() control.Runtime {
	r := control.Runtime{Goroutines: runtime.NumGoroutine(), FDs: descriptors()}
	read := []struct {
		name string
		to   *int64
	}{
		{"/memory/classes/heap/objects:bytes", &r.HeapBytes},
		{"/gc/heap/allocs:objects", &r.Allocs},
		{"/gc/heap/allocs:bytes", &r.AllocBytes},
	}
	samples := make([]metrics.Sample, len(read))
	for i := range read {
		samples[i].Name = read[i].name
	}
	metrics.Read(samples)
	for i := range samples {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			*read[i].to = int64(samples[i].Value.Uint64())
		}
	}
	return r
}

// descriptors counts the open descriptors, less the one that counting takes.
func descriptors() int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return -1
	}
	return len(entries) - 1
}
