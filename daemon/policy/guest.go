package policy

import (
	"fmt"

	"holdline/daemon/config"
	"holdline/daemon/tool"
)

// guestLists returns the lists of the socket of a guest. They let nothing pass that they do not
// name, holdline's own tools included. A socket that is disabled, or gone from the configuration,
// lets nothing pass.
func (r Rules) guestLists(who tool.Who) lists {
	s, there := r.current().Sockets[who.Guest]
	l := lists{listsKey{"sockets.", who.Guest}, !there || s.Disabled, s.Servers, s.Allow, s.Deny}
	if l.servers == nil {
		l.servers = []string{}
	}
	if l.allow == nil {
		l.allow = []string{}
	}
	return l
}

// shutOut returns why a guest may use nothing of a server, whatever the lists say; "" if the lists
// decide, as for all others.
//
// A guest writes to its project. A server that runs there may execute what the guest wrote,
// such as a program in node_modules/.bin, so it must be confined. A guest without a project here
// uses servers that run in none.
func (r Rules) shutOut(who tool.Who, server string) string {
	if who.Guest == "" {
		return ""
	}
	s, there := r.current().Server(server)
	switch {
	case !there, s.Scope == config.ScopeShared, s.URL != "": // a remote one runs nothing here
		return ""
	case who.Homeless:
		return fmt.Sprintf("its scope is %s, and sockets.%s.paths has no project for the guest's directory",
			s.Scope, who.Guest)
	case s.Confine == config.ConfineOff:
		return fmt.Sprintf(`it runs in the project of a guest, so it needs "confine": %q`, config.ConfineProject)
	}
	return ""
}
