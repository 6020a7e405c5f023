package tool

// Rules are what the configuration says of who may use what. Something of a
// hosted server (a tool, a prompt, a resource, a template of resources) is asked
// for by the names that the server itself has for it: one, and for a resource that
// may be made of templates those of the templates behind it. Without a server the name
// is that of one of holdline's own tools.
type Rules interface {
	// May reports whether an identity may see and use it.
	May(identity, server string, names ...string) bool
	// Check returns nil if it may, else the fault denied, which names the rule.
	Check(identity, server string, names ...string) error
	// Reaches reports whether an identity may use anything of a server.
	Reaches(identity, server string) bool
	// CheckShown is Check for a tool of which only a name is known: the one that
	// sessions see, or, with a server, perhaps that server's own. It returns nil if
	// the name leaves open which rules hold.
	CheckShown(identity, server, shown string) error
	// Searches reports whether an identity finds the tools of hosted servers by
	// words instead of in its list of tools.
	Searches(identity string) bool
}
