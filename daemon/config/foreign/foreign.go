// Package foreign knows the keys that other clients put into the object of a server.
package foreign

import (
	"slices"

	"github.com/tailscale/hujson"
)

// tolerated are keys that other clients put into a server's object and that mean
// nothing here: texts that are shown to people, limits of the client's own, which
// calls the client asks its user about, and how the client makes or shows the server. They are
// ignored, so that an entry can be copied as it is.
var tolerated = []string{
	"$schema", "$typeName", "_comment", "alwaysAllow", "alwaysLoad", "autoApprove", "autoStart", "autostart", "comment",
	"default_tools_approval_mode", "description", "dev", "displayName", "display_name", "gallery", "icon", "iconUrl", "id",
	"init_timeout", "initTimeout", "installSource", "logoUrl", "longRunning", "metadata", "name", "note", "provider",
	"providerUrl", "reference", "registry", "required", "source", "startup_timeout_ms", "startup_timeout_sec",
	"supports_parallel_tool_calls", "tags", "timeout", "title", "tool_timeout_sec", "trust", "version", "watchPaths",
}

// renamed are keys of other clients that holdline must not ignore, since the server
// would run otherwise than its user wants, with what to write instead.
var renamed = map[string]string{ //nolint:gosec // names of keys, not credentials
	"auth":                     "write oauth",
	"authProviderType":         "write oauth",
	"endpoint":                 "write url",
	"env_vars":                 `write "env": {"NAME": "${NAME:-}"}`,
	"experimental_environment": `write "holdline": {"host": ...}`,
	"headersHelper":            `write the program into commands, and "headers": {"NAME": "${cmd:THAT}"}`,
	"oauth_resource":           `write "oauth": {"resource": ...}`,
	"sandbox":                  `write "holdline": {"confine": "project"}`,
	"sandboxEnabled":           `write "holdline": {"confine": "project"}`,
	"scopes":                   `write "oauth": {"scopes": [...]}`,
	"serverURL":                "write url",
	"uri":                      "write url",
	"bearer_token_env_var":     `write "headers": {"Authorization": "Bearer ${NAME}"}`,
	"disabled_tools":           `write "holdline": {"deny": [...]}`,
	"disabledTools":            `write "holdline": {"deny": [...]}`,
	"enabled_tools":            `write "holdline": {"allow": [...]}`,
	"env_http_headers":         `write "headers": {"NAME": "${VARIABLE}"}`,
	"environment":              "write env",
	"envFile":                  "write each of its variables into env, as ${NAME}, and the file's path into env_file",
	"excludeTools":             `write "holdline": {"deny": [...]}`,
	"http_headers":             "write headers",
	"httpUrl":                  "write url",
	"includeTools":             `write "holdline": {"allow": [...]}`,
	"baseUrl":                  "write url",
	"isActive":                 "write enabled",
	"is_active":                "write enabled",
	"requestInit":              "write headers",
	"serverUrl":                "write url",
	"tools":                    `write "holdline": {"allow": [...]}`,
	"transport":                "write type",
	"transportType":            "write type",
	"working_directory":        "write cwd",
	"workingDirectory":         "write cwd",
}

// Key reports whether a key of other clients is tolerated in the object of a server. If it is
// not, hint says what to write instead, or is "" if no client is known to have it. v is the
// key's value. hosting reports whether the object "holdline" has the key.
func Key(key string, v *hujson.Value, hosting bool) (hint string, ok bool) {
	// Other clients' timeouts are numbers; a duration is meant for us.
	if slices.Contains(tolerated, key) && (key != "timeout" || v.Value.Kind() != '"') {
		return "", true
	}
	if key == "tools" && isAll(v) || (key == "sandbox" || key == "sandboxEnabled") && v.Value.Kind() == 'f' {
		return "", true
	}
	if hint := renamed[key]; hint != "" {
		return hint, false
	}
	if hosting {
		return `write "holdline": {"` + key + `": ...}`, false
	}
	return "", false
}

// TopKey returns what to write instead of a key under which another client has all of its servers; "" for others.
func TopKey(key string) string {
	switch key {
	case "servers", "mcp", "mcp_servers", "context_servers", "mcp-servers", "mcpservers":
		return "write mcpServers"
	}
	return ""
}

// isAll reports whether v is the list of names that means all tools.
func isAll(v *hujson.Value) bool {
	list, ok := v.Value.(*hujson.Array)
	if !ok || len(list.Elements) != 1 {
		return false
	}
	name, ok := list.Elements[0].Value.(hujson.Literal)
	return ok && name.Kind() == '"' && name.String() == "*"
}
