package mcp

import (
	"encoding/json"
	"fmt"

	"holdline/protocol/jsonrpc"
)

// An Object is a kind of object in messages of MCP by whose members Holdline decides: which tool is
// called, who is asked, what goes where. Who writes a message could choose keys that Holdline does
// not know, and that the program behind Holdline takes for known ones, since it ignores case. So
// [Object.Check] refuses them.
//
// The objects here are all that there are: a parser of another one belongs here first. They are
// plain data, so that a proxy starts with nothing to do.
type Object struct {
	Name string // for people
	Keys jsonrpc.Keys
	In   []Member // objects in this one
	self string   // a member that is a map of objects of this kind; "" is none
}

// A Member is an object in another one, or a list or a map of such objects.
type Member struct {
	Key string
	Of  *Object
	Map bool // the keys are names that somebody has given: only the values are objects
}

// Check returns an error if the object, or one in it, has a key that programs may read in two ways.
// What is no object is left to those that read it.
func (o *Object) Check(raw []byte) error {
	return o.Fields(raw, func(string, []byte) error { return nil })
}

// Fields is [jsonrpc.Keys.Fields], with all checks of [Object.Check].
func (o *Object) Fields(raw []byte, f func(key string, value []byte) error) error {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return o.Keys.Fields(raw, func(key string, value []byte) error {
		if err := f(key, value); err != nil {
			return err
		}
		return o.within(key, value)
	})
}

// within checks the objects in the value of a member.
func (o *Object) within(key string, value []byte) error {
	if o.self != "" && key == o.self {
		return named(key, each(value, o))
	}
	for i := range o.In {
		switch in := &o.In[i]; {
		case in.Key != key:
		case in.Map:
			return named(key, each(value, in.Of))
		default:
			return named(key, in.Of.checkAll(value))
		}
	}
	return nil
}

// named returns an error of an object in a member with the member's name.
func named(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// each checks the values of a map.
func each(raw []byte, of *Object) error {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return jsonrpc.Fields(raw, func(_ string, value []byte) error { return of.Check(value) })
}

// checkAll checks an object, or each one of a list.
func (o *Object) checkAll(raw []byte) error {
	if len(raw) == 0 || raw[0] != '[' {
		return o.Check(raw)
	}
	return jsonrpc.Elements(raw, o.Check)
}

// Objects of both sides.
var (
	// MetaObject is _meta, wherever it stands.
	MetaObject = Object{
		Name: "_meta",
		Keys: jsonrpc.Keys{Known: []string{
			MetaProgress, MetaVersion, MetaCapabilities, MetaClient, MetaServer, MetaSubscription, MetaLevel, MetaRepeats,
			MetaEffect,
		}},
		In: []Member{
			{Key: MetaClient, Of: &ImplementationObject},
			{Key: MetaServer, Of: &ImplementationObject},
			{Key: MetaCapabilities, Of: &CapabilitiesObject},
			{Key: MetaEffect, Of: &effectObject},
		},
	}
	// ImplementationObject is clientInfo or serverInfo.
	ImplementationObject = Object{
		Name: "clientInfo or serverInfo",
		Keys: jsonrpc.Keys{Known: []string{"name", "title", "version"}},
	}
	// CapabilitiesObject is what a client or a server declares.
	CapabilitiesObject = Object{
		Name: "capabilities",
		Keys: jsonrpc.Keys{Known: []string{
			"roots", "sampling", "elicitation", "extensions", "experimental", "tasks", // of a client
			"tools", "prompts", "resources", "completions", "logging",
		}},
		In: []Member{
			{Key: "roots", Of: &capabilityObject},
			{Key: "tools", Of: &capabilityObject},
			{Key: "prompts", Of: &capabilityObject},
			{Key: "resources", Of: &capabilityObject},
			{Key: "elicitation", Of: &elicitationObject},
			{Key: "extensions", Of: &extensionsObject},
		},
	}
	capabilityObject  = Object{Name: "a capability", Keys: jsonrpc.Keys{Known: []string{"listChanged", "subscribe"}}}
	elicitationObject = Object{Name: "capabilities.elicitation", Keys: jsonrpc.Keys{Known: []string{"url", "form"}}}
	extensionsObject  = Object{Name: "capabilities.extensions", Keys: jsonrpc.Keys{Known: []string{Tasks}}}

	// effectObject says whether a call may run again, and recoveryObject how.
	effectObject = Object{
		Name: "_meta[" + MetaEffect + "]",
		Keys: jsonrpc.Keys{Known: []string{"recovery"}},
		In:   []Member{{Key: "recovery", Of: &recoveryObject}},
	}
	recoveryObject = Object{Name: "recovery", Keys: jsonrpc.Keys{Known: []string{"kind"}}}
)

// Objects of requests and notifications, of either side.
var (
	// ParamsObject is the params of all methods.
	ParamsObject = Object{
		Name: "params",
		Keys: jsonrpc.Keys{Known: []string{
			"name", "arguments", "_meta", "cursor", "level", "uri", "ref", "requestId",
			"argument", "context", "protocolVersion", "clientInfo", "capabilities", "notifications",
			"taskId", "inputResponses", "requestState", "task",
			"progressToken", "progress", "total", "message",
			"mode", "url", "elicitationId", "requestedSchema",
			"status", "statusMessage", "inputRequests", "resultType",
		}},
		In: []Member{
			{Key: "_meta", Of: &MetaObject},
			{Key: "ref", Of: &RefObject},
			{Key: "argument", Of: &CompletedArgumentObject},
			{Key: "context", Of: &ContextObject},
			{Key: "clientInfo", Of: &ImplementationObject},
			{Key: "capabilities", Of: &CapabilitiesObject},
			{Key: "notifications", Of: &NotificationsObject},
			{Key: "inputResponses", Of: &ResponseObject, Map: true},
		},
	}
	// RefObject is what is completed.
	RefObject = Object{Name: "params.ref", Keys: jsonrpc.Keys{Known: []string{"type", "name", "uri"}}}
	// CompletedArgumentObject is the argument of which values are asked for, and what is known of its value.
	CompletedArgumentObject = Object{Name: "params.argument", Keys: jsonrpc.Keys{Known: []string{"name", "value"}}}
	// ContextObject has the values of other arguments.
	ContextObject = Object{Name: "params.context", Keys: jsonrpc.Keys{Known: []string{"arguments"}}}
	// NotificationsObject is what a subscription is for.
	NotificationsObject = Object{
		Name: "params.notifications",
		Keys: jsonrpc.Keys{Known: []string{
			"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds",
		}},
	}
	// ResponseObject is a client's answer to what a server has asked.
	ResponseObject = Object{
		Name: "an input response",
		Keys: jsonrpc.Keys{Known: []string{"action", "content", "roots", "_meta"}},
	}
)

// Objects of results. What Holdline decides nothing by may stand in them as it likes.
var (
	// ResultObject is the result of a request that Holdline takes to a server.
	ResultObject = Object{
		Name: "result",
		Keys: jsonrpc.Keys{Loose: true, Known: []string{"resultType", "inputRequests", "requestState", "task"}},
		In: []Member{
			{Key: "inputRequests", Of: &RequestObject, Map: true},
		},
	}
	// KeptObject is the same result, as the cache of answers reads it.
	KeptObject = Object{
		Name: "result, for the cache",
		Keys: jsonrpc.Keys{Loose: true, Known: []string{"resultType", "isError", "ttlMs", "cacheScope"}},
	}
	// RequestObject is what a server asks in its result.
	RequestObject = Object{
		Name: "an input request", Keys: jsonrpc.Keys{Loose: true, Known: []string{"method", "params"}},
		In: []Member{{Key: "params", Of: &ParamsObject}},
	}
	// CompletedObject is the result of a completion, from which values are left out.
	CompletedObject = Object{
		Name: "result of a completion", Keys: jsonrpc.Keys{Loose: true, Known: []string{"completion"}},
		In: []Member{{Key: "completion", Of: &valuesObject}},
	}
	valuesObject = Object{Name: "completion", Keys: jsonrpc.Keys{Loose: true, Known: []string{"values", "total"}}}
	// AboutObject is the result of initialize and of server/discover.
	AboutObject = Object{
		Name: "the server's description",
		Keys: jsonrpc.Keys{Loose: true, Known: []string{
			"protocolVersion", "supportedVersions", "capabilities", "serverInfo",
			"instructions", "_meta", "resultType",
		}},
		In: []Member{
			{Key: "capabilities", Of: &CapabilitiesObject},
			{Key: "serverInfo", Of: &ImplementationObject},
			{Key: "_meta", Of: &MetaObject},
		},
	}
	// ListObject is a page of a list. Its entries are checked one by one: a wrong one is left out.
	ListObject = Object{
		Name: "a list",
		Keys: jsonrpc.Keys{Loose: true, Known: []string{
			"tools", "prompts", "resources",
			"resourceTemplates", "nextCursor", "resultType",
		}},
	}
	// ErrorObject is an error of JSON-RPC.
	ErrorObject = Object{Name: "error", Keys: jsonrpc.Keys{Loose: true, Known: []string{"code", "message", "data"}}}
)

// Objects of what a server lists.
var (
	// EntryObject is a tool, a prompt, a resource or a template of resources.
	EntryObject = Object{
		Name: "a listed entry",
		Keys: jsonrpc.Keys{Known: []string{
			"name", "title", "description", "uri", "uriTemplate", "mimeType", "size",
			"inputSchema", "outputSchema", "annotations", "execution", "_meta", "icons", "arguments",
		}},
		In: []Member{
			{Key: "inputSchema", Of: &SchemaObject},
			{Key: "outputSchema", Of: &SchemaObject},
			{Key: "annotations", Of: &AnnotationsObject},
			{Key: "execution", Of: &ExecutionObject},
			{Key: "icons", Of: &IconObject},
			{Key: "arguments", Of: &ArgumentObject},
			{Key: "_meta", Of: &MetaObject},
		},
	}
	// AnnotationsObject says what a tool does, or for whom a resource is.
	AnnotationsObject = Object{
		Name: "annotations",
		Keys: jsonrpc.Keys{Known: []string{
			"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
			"audience", "priority", "lastModified", "holdline",
		}},
	}
	// ExecutionObject says whether calls of a tool become tasks.
	ExecutionObject = Object{Name: "execution", Keys: jsonrpc.Keys{Known: []string{"taskSupport"}}}
	// IconObject is a picture of an entry.
	IconObject = Object{Name: "an icon", Keys: jsonrpc.Keys{Known: []string{"src", "mimeType", "sizes", "theme"}}}
	// ArgumentObject describes an argument of a prompt.
	ArgumentObject = Object{
		Name: "an argument of a prompt",
		Keys: jsonrpc.Keys{Known: []string{"name", "description", "required"}},
	}
	// SchemaObject is a schema of a tool, or of one of its arguments.
	SchemaObject = Object{
		Name: "a schema",
		Keys: jsonrpc.Keys{Known: []string{"type", "properties", "required", "description", SchemaHeader}},
		self: "properties",
	}
)

// Objects returns all of them.
func Objects() []*Object {
	return []*Object{
		&MetaObject, &ImplementationObject, &CapabilitiesObject, &capabilityObject, &elicitationObject, &extensionsObject,
		&effectObject, &recoveryObject, &ParamsObject, &RefObject, &CompletedArgumentObject, &ContextObject, &NotificationsObject,
		&ResponseObject, &ResultObject, &CompletedObject, &valuesObject, &KeptObject, &RequestObject, &AboutObject, &ListObject, &ErrorObject, &EntryObject,
		&AnnotationsObject, &ExecutionObject, &IconObject, &ArgumentObject, &SchemaObject,
	}
}

// CheckResult returns an error if the result of a request of a method has a key that programs may
// read in two ways, and by which Holdline decides.
func CheckResult(method string, result json.RawMessage) error {
	switch method {
	case Initialize, Discover:
		return AboutObject.Check(result)
	case ToolsList, PromptsList, ResourcesList, TemplatesList:
		return ListObject.Check(result)
	}
	return ResultObject.Check(result)
}
