package mcp

import (
	"encoding/json"
	"fmt"
	"slices"

	"holdline/protocol/jsonrpc"
)

// CheckNames returns an error if a request names something by more bytes than what
// servers list may have, or bears a longer token than an id may be: names and URIs
// stand in records that all sessions share.
func (p *Params) CheckNames(msg *jsonrpc.Message) error {
	names := [...]struct {
		what string
		raw  json.RawMessage
	}{{"name", p.Name}, {"uri", p.URI}, {"ref.name", nil}, {"ref.uri", nil}}
	if msg.Method == Complete {
		ref := jsonrpc.Field(msg.Params, "ref")
		names[2].raw, names[3].raw = jsonrpc.Field(ref, "name"), jsonrpc.Field(ref, "uri")
	}
	for _, one := range names {
		if len(one.raw) <= MaxURI {
			continue
		}
		if name, ok := String(one.raw); ok && len(name) > MaxURI {
			return fmt.Errorf("params.%s has %d bytes, the most is %d", one.what, len(name), MaxURI)
		}
	}
	if n := len(p.Meta.Progress); n > jsonrpc.MaxID {
		return fmt.Errorf("params._meta.progressToken has %d bytes, the most is %d", n, jsonrpc.MaxID)
	}
	return nil
}

// CheckModern returns an error unless the params have all that a modern request must
// carry. Which version they name is for the caller to check.
func (p *Params) CheckModern() error {
	switch m := &p.Meta; {
	case m.Version == nil, m.Version[0] != '"':
		return fmt.Errorf("params._meta[%q] must be a string", MetaVersion)
	case m.Capabilities == nil || m.Capabilities[0] != '{':
		return fmt.Errorf("params._meta[%q] must be an object", MetaCapabilities)
	case m.Level != nil && !IsLevel(m.Level):
		return fmt.Errorf("params._meta[%q] must be one of %v", MetaLevel, Levels())
	}
	return nil
}

// IsLevel reports whether raw is the name of a level of log messages.
func IsLevel(raw json.RawMessage) bool {
	level, ok := String(raw)
	return ok && slices.Contains(Levels(), level)
}
