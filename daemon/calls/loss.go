package calls

// A Loss is a worker's directory whose records cannot be believed: calls may have been made of which
// nothing tells.
type Loss struct {
	ID      string `json:"id"`                // of the worker
	Server  string `json:"server,omitempty"`  // "" if it is not known
	Project string `json:"project,omitempty"` // key of the project whose sessions used it; "" for all projects
	Session string `json:"session,omitempty"` // hash of the session that used it; "" for all sessions
	Why     string `json:"why"`               // names the file
}

// AnyServer stands for a server whose name is not known. No server has that name.
const AnyServer = "*"

// Concerns reports whether a call of a server, from that project and session, may be among those
// whose records are lost. A loss whose server is not known concerns every server.
func (l *Loss) Concerns(server, project, session string) bool {
	return (l.Server == "" || server == AnyServer || l.Server == server) && (l.Project == "" || l.Project == project) &&
		(l.Session == "" || l.Session == session)
}
