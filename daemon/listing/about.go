package listing

import (
	"encoding/json"
	"fmt"

	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Has reports whether a server has a capability, by the result of its handshake.
func Has(about json.RawMessage, capability string) bool {
	has := jsonrpc.Field(jsonrpc.Field(about, "capabilities"), capability)
	return has != nil && string(has) != "null"
}

// Subscribable reports whether a server notifies of changed resources, by the
// result of its handshake.
func Subscribable(about json.RawMessage) bool {
	capability := jsonrpc.Field(jsonrpc.Field(about, "capabilities"), "resources")
	return string(jsonrpc.Field(capability, "subscribe")) == "true"
}

// Describe returns what a session for one server learns about it, from the result of
// the server's handshake. Parts that clients could refuse are replaced or left out:
// an Info that nests too deep or is too long, and capabilities that Holdline does not
// pass on. Instructions are clipped.
func Describe(server string, about json.RawMessage) tool.About {
	a := tool.About{Capabilities: jsonrpc.Field(about, "capabilities"), Info: jsonrpc.Field(about, "serverInfo")}
	if a.Info == nil { // a modern server may say it beside the result
		a.Info = jsonrpc.Field(jsonrpc.Field(about, "_meta"), mcp.MetaServer)
	}
	if a.Info == nil || jsonrpc.DeeperThan(a.Info, maxDepth) || len(a.Info) > maxListing {
		a.Info = unknownVersion(server)
	}
	a.Capabilities = forward(a.Capabilities)
	instructions, _ := clipText(jsonrpc.Field(about, "instructions"), maxDescription)
	a.Instructions, _ = mcp.String(instructions)
	return a
}

// DescribeStarting returns what a session learns about a server that is not up yet.
// It promises everything that a server may offer: a client asks only for what was
// promised at the handshake, and cannot be told later that there is more.
func DescribeStarting(server string) tool.About {
	return tool.About{
		Capabilities: json.RawMessage(`{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
			`"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}`),
		Info: unknownVersion(server),
		Instructions: "The MCP server " + server + " was still starting when this session began. " +
			"Its tools appear when it is up.",
	}
}

// unknownVersion returns the serverInfo of a server that has not said what it
// is. Clients want a version that is not empty.
func unknownVersion(server string) json.RawMessage {
	return fmt.Appendf(nil, `{"name":%q,"version":"unknown"}`, server)
}

// forward returns those of a server's capabilities that Holdline passes on. The
// daemon itself notifies of changed lists, so listChanged is always promised, and so are
// tools: some servers have them and declare nothing. Capabilities that are no object, or too large,
// are replaced by tools alone.
func forward(capabilities json.RawMessage) json.RawMessage {
	onlyTools := json.RawMessage(`{"tools":{"listChanged":true}}`)
	if len(capabilities) == 0 || capabilities[0] != '{' || len(capabilities) > maxListing ||
		jsonrpc.DeeperThan(capabilities, maxDepth) {
		return onlyTools
	}
	hasTools := false
	out, err := jsonrpc.Rewrite(capabilities, func(key string, value []byte) []byte {
		if string(value) == "null" {
			return nil
		}
		hasTools = hasTools || key == "tools"
		switch key {
		case "tools", "prompts":
			return []byte(`{"listChanged":true}`)
		case "resources":
			if string(jsonrpc.Field(value, "subscribe")) == "true" {
				return []byte(`{"subscribe":true,"listChanged":true}`)
			}
			return []byte(`{"listChanged":true}`)
		case "completions", "experimental", "logging":
			return value
		}
		return nil
	})
	if err != nil {
		return onlyTools
	}
	if !hasTools {
		out = jsonrpc.Prepend(out, `"tools":{"listChanged":true}`)
	}
	return out
}
