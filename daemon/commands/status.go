package commands

import (
	"time"

	"holdline/daemon/heap"
	"holdline/daemon/policy"
	"holdline/daemon/telemetry"
	"holdline/daemon/tool"
	"holdline/protocol/control"
)

// Health returns the answer of the tool health_snapshot: a text for models, and a value
// that encodes as JSON. It asks no server, so it answers even if all of them hang.
func (d *Daemon) Health(detail tool.Detail) (string, any) {
	servers := d.Servers.Status()
	h := d.Telemetry.Health(telemetry.Parts{
		Sessions: len(d.Sessions.Sessions()), Servers: len(servers), Unwell: unwell(servers),
	})
	if detail == tool.Full {
		return h.Text(true), h
	}
	return h.Text(false), h.Concise()
}

// unwell returns the servers that cannot be used now, or perhaps not, and why: those that
// left a call without an answer, that recover, failed or are ejected, and those with a
// circuit that is not closed.
func unwell(servers []control.Server) []telemetry.Unwell {
	var all []telemetry.Unwell
	for i := range servers {
		s := &servers[i]
		one := telemetry.Unwell{Name: s.Name, State: s.State}
		switch {
		case s.Suspect:
			one.State = "silent"
			one.Detail = "a call had no answer; it is asked for a sign of life, and started again if it gives none"
		case s.State == "recovering", s.State == "failed", s.State == "ejected":
		case s.Circuit != string(policy.Closed):
			one.State = "circuit_" + s.Circuit
		default:
			continue
		}
		if one.Detail == "" && s.LastFault != nil {
			one.Detail = s.LastFault.Fault.Detail
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
	health := d.Telemetry.Health(telemetry.Parts{})
	s := control.StatusAnswer{
		Daemon: control.Daemon{
			PID: d.PID, Version: d.Version, Epoch: d.Place.Generation(), UptimeMS: time.Since(d.Begin).Milliseconds(),
			Socket: d.Place.Socket(), StartedBy: d.StartedBy, Rollout: string(health.Rollout), Config: d.File.Path(),
		},
		Sessions: d.Sessions.Sessions(),
		Workers:  d.Workers.Workers(),
		Servers:  d.Servers.Status(),
		Consults: d.consultCounts(),
		Cache:    d.Servers.Cache(),
		Runtime:  heap.Usage(),
	}
	for i, loads := 0, d.Telemetry.Loads(); i < len(s.Servers); i++ {
		s.Servers[i].Load = loads[s.Servers[i].Name]
	}
	s.Daemon.ConfigRefused, s.Daemon.ConfigCopy = d.File.Refusal()
	if log := health.TelemetryLog; log.LastError != "" {
		s.Daemon.Degraded = "the call log cannot be written: " + log.LastError
	}
	if f := health.Refusal; f != nil {
		s.Daemon.Refusal = f.Fault.Detail
	}
	return s
}
