package tool

// Rules say which identity may use what, by the configuration. A tool, a prompt, a resource
// or a template of a hosted server is named as the server itself names it. A resource that
// may be made of templates has their names as further names. Without a server the name is
// that of one of holdline's own tools.
type Rules interface {
	// May reports whether an identity may see and use it.
	May(identity, server string, names ...string) bool
	// Check returns nil if it may, else the fault denied, which names the rule.
	Check(identity, server string, names ...string) error
	// Reaches reports whether an identity may use anything of a server.
	Reaches(identity, server string) bool
	// CheckShown is Check for a tool of which only one name is known: the one that
	// sessions see or, with a server, perhaps the server's own. It returns nil if it
	// depends on the other name which rules hold.
	CheckShown(identity, server, shown string) error
	// Searches reports whether an identity finds the tools of hosted servers by a
	// search, instead of getting a list.
	Searches(identity string) bool
	// Version is a value that is another one as soon as the rules have changed.
	Version() any
}
