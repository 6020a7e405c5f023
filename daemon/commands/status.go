package commands

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/heap"
	"holdline/daemon/leaf"
	"holdline/daemon/policy"
	"holdline/daemon/redact"
	"holdline/daemon/spelling"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
	"holdline/protocol/process"
)

// Health returns the answer of the tool health_snapshot: a text for models, and a value
// that encodes as JSON. It asks no server, so it answers even if all of them hang.
func (d *Daemon) Health(detail tool.Detail) (string, any) {
	s, h := d.look()
	h.Verdict, _ = trouble.Headline(&s)
	for _, t := range trouble.All(&s) {
		if t.Bad || detail == tool.Full {
			h.Troubles = append(h.Troubles, t.String())
		}
	}
	if detail == tool.Full {
		return h.Text(true), h
	}
	return h.Text(false), h.Concise()
}

// unwell returns the servers in trouble, with a word for programs and the reason for people.
func unwell(servers []control.Server) []telemetry.Unwell {
	var all []telemetry.Unwell
	for i := range servers {
		s := &servers[i]
		troubles := trouble.OfServer(s)
		at := slices.IndexFunc(troubles, func(t trouble.Trouble) bool { return t.Bad })
		if at < 0 {
			continue
		}
		one := telemetry.Unwell{Name: s.Name, State: s.State, Detail: troubles[at].What}
		switch {
		case s.Suspect:
			one.State = "silent"
		case s.State == "unreachable", s.State == "recovering", s.State == "failed", s.State == "ejected", s.State == control.NeedsLogin:
		case s.Circuit != string(policy.Closed):
			one.State = "circuit_" + s.Circuit
		case s.Blocked:
			one.State = "blocked"
		}
		if s.LastFault != nil && !s.Suspect && one.State != "blocked" {
			one.Detail = s.LastFault.Fault.Detail
		}
		if s.State == "unreachable" {
			one.Detail = s.Unreachable
		}
		all = append(all, one)
	}
	return all
}

// Snapshot returns the answer of the tool telemetry_snapshot, in the same form as
// [Daemon.Health].
func (d *Daemon) Snapshot(detail tool.Detail) (string, any) {
	cache := d.Servers.Cache()
	s := d.Telemetry.Snapshot(telemetry.CacheCounts{Hits: cache.Hits, Misses: cache.Misses})
	if detail == tool.Full {
		return s.Text(true), s
	}
	return s.Text(false), s.Concise()
}

// status returns what `holdline status` shows. The parts are asked one after the other, so
// the whole may mix two moments.
func (d *Daemon) status() control.StatusAnswer {
	s, _ := d.look()
	return s
}

// look returns what status shows, and the health at the same time.
func (d *Daemon) look() (control.StatusAnswer, telemetry.Health) {
	s := control.StatusAnswer{
		Daemon: control.Daemon{
			PID: d.PID, Version: d.Version, Epoch: d.Place.Generation(), UptimeMS: time.Since(d.Begin).Milliseconds(),
			Socket: d.Place.Socket(), StartedBy: d.StartedBy, Config: d.File.Path(),
		},
		Sessions: d.Sessions.Sessions(),
		Workers:  d.Workers.Workers(),
		Servers:  d.Servers.Status(),
		Consults: d.consultCounts(),
		Cache:    d.Servers.Cache(),
		Runtime:  heap.Usage(),
		Sockets:  d.Guests.Status(),
	}
	for i, loads := 0, d.Telemetry.Loads(); i < len(s.Servers); i++ {
		s.Servers[i].Load = loads[s.Servers[i].Name]
	}
	unreachable := map[string]string{} // by server
	for _, w := range s.Workers {
		if w.Unreachable != "" {
			unreachable[w.Name] = w.Unreachable
		}
	}
	cfg := d.File.Current()
	for i := range s.Servers {
		if settings, ok := cfg.Server(s.Servers[i].Name); ok {
			s.Servers[i].Transport, s.Servers[i].Login = settings.Transport, d.Login(&settings)
			s.Servers[i].Host = settings.Host
			s.Servers[i].Unreachable = cmp.Or(unreachable[settings.Name], s.Servers[i].Unreachable)
		}
	}
	health := d.Telemetry.Health(telemetry.Parts{
		Sessions: len(s.Sessions), Servers: len(s.Servers), Unwell: unwell(s.Servers),
	})
	s.Daemon.Rollout, s.Daemon.NotReady = string(health.Rollout), health.NotReady
	s.Daemon.ConfigRefused, s.Daemon.ConfigCopy = d.File.Refusal()
	for name, err := range cfg.Unusable() {
		s.LeftOut = append(s.LeftOut, control.LeftOut{Name: name, Why: err.Error()})
	}
	slices.SortFunc(s.LeftOut, func(a, b control.LeftOut) int { return spelling.Compare(a.Name, b.Name) })
	var degraded []string
	if log := health.TelemetryLog; log.LastError != "" {
		degraded = append(degraded, "the call log cannot be written: "+log.LastError)
	}
	if files := d.Place.Complaint(); files != "" {
		degraded = append(degraded, files)
	}
	s.Daemon.Degraded = strings.Join(append(degraded, d.Troubles()...), "; ")
	if f := health.Refusal; f != nil {
		s.Daemon.Refusal = f.Fault.Detail
	}
	return s, health
}

// showStatus answers the command status.
func (d *Daemon) showStatus(ctx context.Context, p control.StatusParams, _ Progress) (any, error) {
	s := d.status()
	s.Differs = d.differences(s.Sessions)
	if p.Memory {
		d.addMemory(ctx, &s)
	}
	return s, nil
}

// differences returns in which variables that decide what a server works on, and that its entry keeps, the
// environment of an agent is another than the one with which the server was started. It reads the
// environments of the processes, whose values go nowhere; a system that does not show them has no differences.
func (d *Daemon) differences(sessions []control.Session) []control.Difference {
	byID := map[string]*control.Session{}
	for i := range sessions {
		if one := &sessions[i]; one.Socket == "" && one.State == "attached" { // the pid of a guest may be of another machine
			byID[one.ID] = one
		}
	}
	var all []control.Difference
	for _, serving := range d.Servers.Serving() {
		settings, _ := d.File.Current().Server(serving.Server)
		for _, name := range keptVariables(&settings) {
			has := process.Variable(serving.PID, name)
			for _, id := range serving.Sessions {
				one := byID[id]
				if one == nil {
					continue
				}
				if wants := process.Variable(one.PID, name); wants != "" && wants != has {
					all = append(all, control.Difference{Server: serving.Server, Variable: name, Project: one.Cwd, Session: id})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b control.Difference) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Session, b.Session))
	})
	return all
}

// keptVariables returns the names of variables that decide what programs work on, or are secrets, and that the
// entry of a server has as they are in the environment.
func keptVariables(s *config.Settings) []string {
	var names []string
	for name, value := range s.Env {
		if own := strings.HasPrefix(value.Reveal(), "${"+name+":-") || value.Reveal() == "${"+name+"}"; own &&
			(command.Selecting.Has(name) || redact.NamesSecret(name)) {
			names = append(names, name)
		}
	}
	return names
}

// addMemory adds to a status how much memory the processes take. What could not be measured in
// time stays 0.
func (d *Daemon) addMemory(ctx context.Context, s *control.StatusAnswer) {
	roots := []int{d.PID}
	for _, w := range s.Workers {
		roots = append(roots, w.PID)
	}
	for _, one := range s.Sessions {
		roots = append(roots, one.PID)
	}
	trees := d.Memory.Trees(ctx, roots)
	s.Daemon.MemoryBytes = trees[d.PID].Own.Total
	servers := map[string]*control.Server{}
	for i := range s.Servers {
		servers[s.Servers[i].Name] = &s.Servers[i]
	}
	launches := d.Leaves.Known(slices.Collect(maps.Keys(servers))...)
	// A worker adopts what its child has left behind, so all below it counts.
	for i := range s.Workers {
		w := &s.Workers[i]
		t := trees[w.PID]
		w.OSProcesses, w.MemoryBytes, w.PrivateBytes = t.Processes, t.Below.Total, t.Below.Private
		w.WorkerBytes = t.Own.Total
		if one := servers[w.Name]; one != nil && w.Kind == process.KindServer {
			one.OSProcesses += w.OSProcesses
			one.MemoryBytes += w.MemoryBytes
			one.PrivateBytes += w.PrivateBytes
			if k := leafOf(launches[w.Name], w.ChildPID); k != nil {
				one.SparedProcesses += k.Spares
				one.SparedBytes += k.Saves
			}
		}
	}
	for i := range s.Sessions {
		s.Sessions[i].MemoryBytes = trees[s.Sessions[i].PID].Own.Total
	}
}

// leafOf returns the launch by whose record the process with that pid was started; nil if there is none.
func leafOf(launches []leaf.Known, pid int) *leaf.Known {
	if len(launches) == 0 || pid == 0 {
		return nil
	}
	args := process.Args(pid)
	at := slices.IndexFunc(launches, func(k leaf.Known) bool {
		n := len(k.Program)
		return n > 0 && len(args) >= n && slices.Equal(k.Program, args[:n])
	})
	if at < 0 {
		return nil
	}
	return &launches[at]
}
