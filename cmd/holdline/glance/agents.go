package glance

import (
	"cmp"
	"slices"

	"holdline/daemon/spelling"
	"holdline/protocol/control"
)

// An Agent is a client process. Most have a session for each server that they use.
type Agent struct {
	Sessions []control.Session // in the order of the status; one at least
	PID      int               // of the client; if that is not known, of its proxy
	InFlight int
	Calls    int64
	SinceMS  int64 // age of the oldest session
	Lost     int   // sessions whose proxy is gone, and may come back
}

// Agents groups sessions by their client processes, in the order of their first sessions. A
// session whose client process is not known is an agent by itself.
func Agents(sessions []control.Session) []Agent {
	var list []Agent
	at := map[int]int{} // index in list by the pid of the client
	for _, s := range sessions {
		i, known := at[s.ClientPID]
		if !known || s.ClientPID == 0 {
			i = len(list)
			at[s.ClientPID] = i
			list = append(list, Agent{PID: cmp.Or(s.ClientPID, s.PID)})
		}
		a := &list[i]
		a.Sessions = append(a.Sessions, s)
		a.InFlight, a.Calls, a.SinceMS = a.InFlight+s.InFlight, a.Calls+s.Calls, max(a.SinceMS, s.SinceMS)
		if s.State != "attached" {
			a.Lost++
		}
	}
	return list
}

// each returns the distinct values of the sessions of an agent, sorted.
func (a *Agent) each(value func(*control.Session) string) []string {
	var all []string
	for i := range a.Sessions {
		all = append(all, value(&a.Sessions[i]))
	}
	slices.SortFunc(all, spelling.Compare)
	return slices.Compact(all)
}

// Identities returns the identities of the sessions, sorted.
func (a *Agent) Identities() []string {
	return a.each(func(s *control.Session) string { return cmp.Or(s.Identity, "-") })
}

// Clients returns the names and versions of the client program, sorted.
func (a *Agent) Clients() []string {
	return a.each(func(s *control.Session) string { return cmp.Or(s.Client, "-") })
}

// Servers returns for which servers the sessions are, sorted; "all" is all of them.
func (a *Agent) Servers() []string {
	return a.each(func(s *control.Session) string { return s.Uses("all") })
}
