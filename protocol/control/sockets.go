package control

// DisconnectParams of [Disconnect].
type DisconnectParams struct {
	Session int64  `json:"session,omitempty"` // number of a session; 0 for none
	Socket  string `json:"socket,omitempty"`  // of the configuration; "" for none
}

// DisconnectAnswer of [Disconnect].
type DisconnectAnswer struct {
	Sessions int `json:"sessions"` // that have ended
}

// ForwardParams of [Forward]: a command forwards a socket of the configuration to another machine.
type ForwardParams struct {
	Socket string `json:"socket"`
	Host   string `json:"host"`
}

// Socket describes a socket of the configuration, at which guests connect.
type Socket struct {
	Name     string   `json:"name"`
	Path     string   `json:"path"`
	Identity string   `json:"identity"`
	Disabled bool     `json:"disabled,omitempty"`
	Trouble  string   `json:"trouble,omitempty"` // why nobody can connect, for people
	Hosts    []string `json:"hosts,omitempty"`   // machines to which a command forwards it
}

// Guests returns how many sessions of guests a socket has.
func (s *StatusAnswer) Guests(socket string) (n int) {
	for i := range s.Sessions {
		if s.Sessions[i].Socket == socket {
			n++
		}
	}
	return n
}

// State returns a word for the socket: open, disabled or failed.
func (s *Socket) State() string {
	switch {
	case s.Disabled:
		return "disabled"
	case s.Trouble != "":
		return "failed"
	}
	return "open"
}
