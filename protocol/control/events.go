package control

// EventKind says what an [Event] is about.
type EventKind string

// The kinds of events.
const (
	Started    EventKind = "start"   // the daemon has started
	Crashed    EventKind = "crash"   // a server ended by itself, or did not start
	Served     EventKind = "ready"   // a server is up
	Ejected    EventKind = "eject"   // a server failed too often and is given up
	Stopped    EventKind = "stop"    // the user has stopped a server
	Changed    EventKind = "changed" // tools of a server are not what they were
	Upgraded   EventKind = "upgrade" // the daemon runs another program, or refuses to
	Configured EventKind = "config"  // the configuration was read, or refused
	Refused    EventKind = "budget"  // a consult was refused because of a budget
	Asked      EventKind = "asked"   // a consult was asked for
	Answered   EventKind = "answer"  // a consult has ended
)

// Event is something that has happened, for people who watch.
type Event struct {
	N       int64     `json:"n"` // counts from 1 in each daemon
	AtMS    int64     `json:"at_unix_ms"`
	Kind    EventKind `json:"kind"`
	Subject string    `json:"subject"` // server or consult; "" for the daemon
	Text    string    `json:"text"`    // one line for people
	Bad     bool      `json:"bad,omitempty"`

	Background bool `json:"background,omitempty"` // of an answer: no client waits for it
}

// EventsParams of [Events].
type EventsParams struct {
	After int64 `json:"after,omitempty"` // number of the last event that the client has
}
