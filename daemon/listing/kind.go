package listing

import "holdline/protocol/mcp"

// Limits of one list of a server. What is beyond them is left out, and `holdline servers`
// shows that.
const (
	MaxPages   = 64
	MaxEntries = 10_000
	MaxBytes   = 16 << 20
)

// A Kind is a sort of thing that servers list. It is an index into [Lists].
type Kind int

// The kinds. Kinds is their number.
const (
	Tools Kind = iota
	Prompts
	Resources
	Templates
	Kinds
)

// Protocol has the names that MCP uses for a kind.
type Protocol struct {
	List       string // method that lists the kind
	Member     string // of the list's result
	Capability string // of a server that has the kind
	Changed    string // notification that the list has changed
	Use        string // method that uses one entry
	Key        string // member of a listing that names the entry
}

// protocols has the row of each kind. Templates share the capability, notification
// and use of resources.
var protocols = [Kinds]Protocol{
	Tools:     {mcp.ToolsList, "tools", "tools", mcp.ToolsChanged, mcp.ToolsCall, "name"},
	Prompts:   {mcp.PromptsList, "prompts", "prompts", mcp.PromptsChanged, mcp.PromptsGet, "name"},
	Resources: {mcp.ResourcesList, "resources", "resources", mcp.ResourcesChanged, mcp.ResourcesRead, "uri"},
	Templates: {
		mcp.TemplatesList, "resourceTemplates", "resources", mcp.ResourcesChanged, mcp.ResourcesRead,
		"uriTemplate",
	},
}

// MCP returns how MCP spells the kind.
func (k Kind) MCP() Protocol { return protocols[k] }

// prefixed reports whether sessions of several servers see the kind under a name
// that begins with the server's. Resources keep their URIs.
func (k Kind) prefixed() bool { return k == Tools || k == Prompts }
