package tool

import "cmp"

// Who is whom [Rules] are asked about: a session, as far as rules depend on it.
type Who struct {
	Identity string
	View     string // that the session has chosen; "" for none
	Guest    string // socket of the configuration by which it came; "" for the daemon's own
	Homeless bool   // a guest whose working directory is in no project here
}

// Who returns whom the rules are asked about for the caller.
func (c *Caller) Who() Who { return Who{c.Identity, c.View, c.Guest, c.Guest != "" && c.Root == ""} }

// String returns the session for people.
func (w Who) String() string {
	name := cmp.Or(w.Identity, "a client without a name")
	if w.View != "" {
		name += " with view " + w.View
	}
	if w.Guest != "" {
		name += " at socket " + w.Guest
	}
	return name
}

// Rules say who may use what, by the configuration. A tool, a prompt, a resource
// or a template of a hosted server is named as the server itself names it. A resource that
// may be made of templates has their names as further names. Without a server the name is
// that of one of holdline's own tools.
type Rules interface {
	// May reports whether a session may see and use it.
	May(who Who, server string, names ...string) bool
	// Check returns nil if it may, else the fault denied, which names the rule.
	Check(who Who, server string, names ...string) error
	// CheckURI returns nil if a session may ask a server for a resource that it has not listed by
	// this spelling of its URI, else a fault that names the right one. Check decides then.
	CheckURI(who Who, server, uri string) error
	// Reaches reports whether a session may use anything of a server.
	Reaches(who Who, server string) bool
	// CheckShown is Check for a tool of which only one name is known: the one that
	// sessions see or, with a server, perhaps the server's own. It returns nil if it
	// depends on the other name which rules hold.
	CheckShown(who Who, server, shown string) error
	// Searches reports whether a session finds the tools of hosted servers by a
	// search, instead of getting a list.
	Searches(who Who) bool
	// Renamed returns the name under which a session sees a tool of a server, if its view
	// gives it another one; else "".
	Renamed(who Who, server, own string) string
	// Original returns the tool's name without a view, SERVER__NAME, of one that the view
	// has renamed. Other names stay.
	Original(who Who, name string) string
	// Version is a value that is another one as soon as the rules have changed.
	Version() any
}
