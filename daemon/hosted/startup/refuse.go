package startup

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"holdline/daemon/config/resolve"
	"holdline/daemon/policy"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// NoServer returns the fault for a name of no configured server.
func NoServer(name string) *fault.Record {
	return fault.New(fault.InvalidInput, fault.Host, Operation(name),
		"there is no server %q; those that there are: holdline servers list", name)
}

// Stopped returns the fault for callers of a server that the user has stopped. damaged is the path of the
// file that says so, if that is damaged, so that nobody knows.
func Stopped(server, damaged string) *fault.Record {
	if damaged != "" {
		return fault.New(fault.Ejected, fault.Host, Operation(server),
			"%s counts for stopped: the file %s, which says whether it is, is damaged. To have it back: holdline servers start %s",
			server, damaged, server)
	}
	return fault.New(fault.Ejected, fault.Host, Operation(server),
		"%s was stopped. To have it back: holdline servers start %s", server, server)
}

// Unused returns the fault for callers of a server that gets no process any more.
func Unused(server string) *fault.Record {
	return fault.New(fault.TransportFailure, fault.Server, Operation(server), "%s is not configured any more", server)
}

// Ejected returns the fault for callers of a server that was ejected by restarts. last is
// its last failure; it may be nil.
func Ejected(server string, restarts *policy.Restarts, last *fault.Record) *fault.Record {
	f := restarts.Fault(server, "")
	f.Operation = Operation(server)
	if last != nil {
		f.Fault.Detail += "; the last time: " + last.Fault.Detail
		f.Cause = last.Cause
	}
	return f
}

// Words returns what a fault says, with the last line that the process wrote.
func Words(f *fault.Record) string {
	words := f.Fault.Detail
	if tail := f.LastWords(); len(tail) > 0 && !strings.Contains(words, tail[len(tail)-1]) {
		words += ": " + tail[len(tail)-1]
	}
	return words
}

// Spec returns the spec of a new worker of a server.
func Spec(server string, p *resolve.Process, owner process.Owner) process.Spec {
	spec := process.Spec{
		ID: WorkerID(server), Kind: process.KindServer, Name: server, Argv: append([]string{p.Command}, p.Args...),
		Cwd: p.Dir, Owner: owner, Tokens: rand.Text(), EndGraceMS: p.EndGrace.Milliseconds(), Confine: p.Confine, Bounds: p.Bounds,
	}
	if p.Host != "" {
		spec.Far = &process.Far{Host: p.Host, InheritEnv: p.InheritEnv, EnvFile: p.EnvFile}
		spec.Orphan.AfterMS = p.HostWindow.Milliseconds()
	}
	return spec
}

// WorkerID returns a new id of a worker, which begins with the server's name.
func WorkerID(server string) string {
	const most = 12
	safe := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, server)
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "s" + safe[:min(len(safe), most)] + "-" + hex.EncodeToString(b[:])
}
