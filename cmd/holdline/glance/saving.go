package glance

import (
	"fmt"
	"math"

	"holdline/daemon/plural"
	"holdline/protocol/control"
)

// Saving is what it saves that agents share their servers, and that these run without launchers such as npx, as
// [Estimate] finds it.
type Saving struct {
	Agents    int   // that use servers which run
	Servers   int   // that run and are used
	Processes int   // that run: of servers, of their workers, proxies and the daemon
	Without   int   // that would run if each agent had started its servers
	Bytes     int64 // of memory that are saved; negative if Holdline takes more
}

// Estimate compares what runs with what would run without Holdline. Then each agent that is
// connected would have processes of its own for each local server that it uses and that runs
// now, as many and as large as those that run are on average, and their launchers, as these were when
// they ran last. Of the servers' memory only the private part counts, since pages of programs would be
// shared in any case. All that Holdline itself takes counts against it: daemon, proxies, and a worker
// for each process of a server. Consults are left out. ok is false if the memory was not measured.
func Estimate(s *control.StatusAnswer) (v Saving, ok bool) {
	agentOf := map[string]int{} // by session
	for i, a := range Agents(s.Sessions) {
		for _, one := range a.Sessions {
			if one.State == "attached" {
				agentOf[one.ID] = i
				v.Processes++
				v.Bytes -= one.MemoryBytes
			}
		}
	}
	v.Processes++ // the daemon
	v.Bytes -= s.Daemon.MemoryBytes
	for _, w := range s.Workers {
		if w.Kind == "server" {
			v.Processes += 1 + w.OSProcesses
			v.Bytes -= w.WorkerBytes
		}
	}
	used := map[int]bool{}
	without := 0.0
	for i := range s.Servers {
		one := &s.Servers[i]
		if one.Processes == 0 || one.OSProcesses == 0 {
			continue
		}
		users := map[int]bool{}
		for _, id := range one.Sessions {
			if agent, attached := agentOf[id]; attached {
				users[agent], used[agent] = true, true
			}
		}
		ok = ok || one.PrivateBytes > 0
		if len(users) > 0 {
			v.Servers++
		}
		if one.Transport != "stdio" { // an agent needs no process for it
			v.Bytes -= one.MemoryBytes
			continue
		}
		copies := float64(len(users)) / float64(one.Processes)
		without += copies * float64(one.OSProcesses+one.SparedProcesses)
		v.Bytes += int64((copies-1)*float64(one.PrivateBytes) + copies*float64(one.SparedBytes))
	}
	v.Agents, v.Without = len(used), int(math.Round(without))
	return v, ok
}

// String returns the saving in one line, or "" if nothing is saved. It names processes and memory
// only if there are fewer of them: agents with an entry for each server have a proxy for each,
// so that processes become fewer only if the servers have several, or with more agents.
func (v Saving) String() string {
	const least = 1_000_000 // bytes that are worth a word
	var what string
	switch fewer, less := v.Processes < v.Without, v.Bytes >= least; {
	case fewer && less:
		what = fmt.Sprintf("%d processes instead of %d, %s saved", v.Processes, v.Without, Bytes(v.Bytes))
	case fewer:
		what = fmt.Sprintf("%d processes instead of %d", v.Processes, v.Without)
	case less:
		what = Bytes(v.Bytes) + " saved"
	default:
		return ""
	}
	return fmt.Sprintf("%s, %s: %s", plural.Count(v.Agents, "agent"), plural.Count(v.Servers, "server"), what)
}

// Bytes returns a size for people.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 10e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0f kB", math.Ceil(float64(n)/1e3))
}
