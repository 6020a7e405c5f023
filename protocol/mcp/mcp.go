// Package mcp names the methods, versions and fields of the Model Context
// Protocol that holdline itself has to understand. What it only passes on has
// no type here.
//
// Two eras exist: "legacy" versions, with a handshake, and "modern" ones,
// where every request carries its version in params._meta (2026-07-28).
package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"

	"holdline/protocol/jsonrpc"
)

// Modern is the modern version.
const Modern = "2026-07-28"

// batches is the version that requires batches of messages: it is spoken with servers only.
const batches = "2025-03-26"

// Legacy lists the legacy versions, newest first.
func Legacy() []string {
	return []string{"2025-11-25", "2025-06-18", batches, "2024-11-05"}
}

// Supported lists all versions, newest first.
func Supported() []string { return append([]string{Modern}, Legacy()...) }

// OtherVersions returns which of all versions a server names in its refusal of the version asked, in the order of
// all. If it names none and yet blames the version, those behind asked count as named.
func OtherVersions(refusal []byte, all []string, asked string) []string {
	named := slices.DeleteFunc(slices.Clone(all), func(version string) bool {
		return version == asked || !bytes.Contains(refusal, []byte(version))
	})
	at := slices.Index(all, asked)
	if len(named) == 0 && at >= 0 && bytes.Contains(bytes.ToLower(refusal), []byte("version")) {
		return all[at+1:]
	}
	return named
}

// Negotiate returns the legacy version to answer a client that asks for one: the client's
// own if it is known here, else the newest. Who asks for the one with batches gets the one before
// it: what is kept of a client's requests goes by its lines. The client then decides whether it goes on.
func Negotiate(asked string) string {
	if asked == batches {
		all := Legacy()
		return all[slices.Index(all, batches)+1]
	}
	if slices.Contains(Legacy(), asked) {
		return asked
	}
	return Legacy()[0]
}

// Methods.
const (
	Initialize       = "initialize"
	Initialized      = "notifications/initialized"
	Ping             = "ping"
	Discover         = "server/discover"
	ToolsList        = "tools/list"
	ToolsCall        = "tools/call"
	SetLevel         = "logging/setLevel"
	Listen           = "subscriptions/listen"
	Acknowledged     = "notifications/subscriptions/acknowledged"
	RootsList        = "roots/list"
	PromptsList      = "prompts/list"
	PromptsGet       = "prompts/get"
	ResourcesList    = "resources/list"
	TemplatesList    = "resources/templates/list"
	ResourcesRead    = "resources/read"
	Complete         = "completion/complete"
	PromptsChanged   = "notifications/prompts/list_changed"
	ResourcesChanged = "notifications/resources/list_changed"
	ToolsChanged     = "notifications/tools/list_changed"
	RootsChanged     = "notifications/roots/list_changed"
	CancelledNote    = "notifications/cancelled"
	ProgressNote     = "notifications/progress"
	Subscribe        = "resources/subscribe"
	Unsubscribe      = "resources/unsubscribe"
	ResourceUpdated  = "notifications/resources/updated"
	LogMessage       = "notifications/message"
)

// Keys of _meta.
const (
	MetaVersion      = "io.modelcontextprotocol/protocolVersion"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaClient       = "io.modelcontextprotocol/clientInfo"
	MetaServer       = "io.modelcontextprotocol/serverInfo"
	MetaProgress     = "progressToken"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
	MetaLevel        = "io.modelcontextprotocol/logLevel"
	// MetaRepeats marks a tool call to the process that stands for a remote server: it may
	// be made twice. That process takes the mark out.
	MetaRepeats = "holdline/repeats"
	// MetaEffect is the key in a tool's listing under which a server made with libmcp says whether a
	// call may run again.
	MetaEffect = "io.libmcp/effect"
)

// SchemaHeader is the key in the schema of an argument that says in which header of HTTP the
// argument is repeated.
const SchemaHeader = "x-mcp-header"

// MaxURI is the most bytes of a URI, and of a server's own name for what it
// lists: both stand in each record of a call.
const MaxURI = 8 << 10

// CodeVersion is the modern error for a version that the server lacks.
const CodeVersion = -32022

// Levels returns the names of the levels of log messages (RFC 5424), the most verbose first.
func Levels() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// Covers reports whether a client that wants log messages from level on gets one of the level
// message. It is false if either is none of [Levels].
func Covers(level, message string) bool {
	from, of := slices.Index(Levels(), level), slices.Index(Levels(), message)
	return from >= 0 && of >= from
}

// Verbose returns the more verbose of two levels. "" is less verbose than any level.
func Verbose(a, b string) string {
	if a == "" || Covers(b, a) {
		return b
	}
	return a
}

// OfResource returns the params of a request or a notification about one resource.
func OfResource(uri string) json.RawMessage {
	b, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil { // strings encode
		return json.RawMessage(`{}`)
	}
	return b
}

// Implementation names a client or a server program, with its version. It is clientInfo or
// serverInfo on the wire.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// String returns the name and the version, for people; "" without a name.
func (i Implementation) String() string {
	switch {
	case i.Name == "":
		return ""
	case i.Version == "":
		return i.Name
	}
	return i.Name + " " + i.Version
}

// Meta is what holdline reads of a request's params._meta. Fields are nil where absent, and
// not checked: see [Params.CheckModern].
type Meta struct {
	Version      json.RawMessage // MetaVersion; not nil in modern requests
	Capabilities json.RawMessage // MetaCapabilities, of the client
	Client       json.RawMessage // MetaClient: an [Implementation]
	Progress     json.RawMessage // the progress token; nil if the client wants no progress
	Level        json.RawMessage // MetaLevel, of log messages
}

// Params is what holdline reads of a request's params, in one pass. Fields are nil where
// absent. They alias the bytes that [ParseParams] got, and may be of any JSON type.
type Params struct {
	Meta      Meta
	Name      json.RawMessage // of a tool or a prompt
	Arguments json.RawMessage // of a tool or a prompt
	Cursor    json.RawMessage // of a list: where the page begins
	Level     json.RawMessage // of logging/setLevel
	URI       json.RawMessage // of a resource
	RequestID json.RawMessage // of notifications/cancelled
	Version   json.RawMessage // protocolVersion of initialize
	Client    json.RawMessage // clientInfo of initialize
	// Capabilities of initialize.
	Capabilities  json.RawMessage
	Notifications json.RawMessage // of subscriptions/listen
	// Nulls says that a member is null that may be absent: [WithoutNulls] takes it out.
	Nulls bool
}

// WithoutNulls returns params without the members that are null, of those that a request may lack. Some
// clients write all members that a request can have, and not all servers take that.
func WithoutNulls(params json.RawMessage) (json.RawMessage, error) {
	return jsonrpc.Rewrite(params, func(key string, value []byte) []byte {
		if isOptional(key) && string(value) == "null" {
			return nil
		}
		return value
	})
}

// isOptional reports whether a member of params may be absent whatever the method is.
func isOptional(key string) bool { return key == "_meta" || key == "arguments" || key == "cursor" }

// ParseParams reads params, which may be nil. A member that may be absent is so if it is null. Keys count by exact case. A key that programs may read
// in two ways is an error (see [Object]), and so are params or a _meta that is no object.
func ParseParams(params json.RawMessage) (Params, error) {
	var p Params
	if params == nil {
		return p, nil
	}
	var meta json.RawMessage
	err := ParamsObject.Keys.Fields(params, func(key string, value []byte) error {
		if isOptional(key) && string(value) == "null" {
			p.Nulls = true
			return nil
		}
		switch key {
		case "_meta":
			meta = value
			return nil // it is read below
		case "name":
			p.Name = value
		case "arguments":
			p.Arguments = value
		case "cursor":
			p.Cursor = value
		case "level":
			p.Level = value
		case "uri":
			p.URI = value
		case "requestId":
			p.RequestID = value
		case "protocolVersion":
			p.Version = value
		case "clientInfo":
			p.Client = value
		case "capabilities":
			p.Capabilities = value
		case "notifications":
			p.Notifications = value
		}
		return ParamsObject.within(key, value)
	})
	if err != nil || meta == nil {
		return p, err
	}
	if meta[0] != '{' {
		return p, errors.New("_meta: not an object")
	}
	err = MetaObject.Fields(meta, func(key string, value []byte) error {
		switch key {
		case MetaVersion:
			p.Meta.Version = value
		case MetaCapabilities:
			p.Meta.Capabilities = value
		case MetaClient:
			p.Meta.Client = value
		case MetaProgress:
			if string(value) != "null" {
				p.Meta.Progress = value
			}
		case MetaLevel:
			p.Meta.Level = value
		}
		return nil
	})
	return p, named("_meta", err)
}

// String returns the string that raw spells; false if raw is no JSON string, or nil.
func String(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	if n := len(raw); n >= 2 && raw[n-1] == '"' && jsonrpc.Plain([]byte(raw[1:n-1])) {
		return string(raw[1 : n-1]), true
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}
