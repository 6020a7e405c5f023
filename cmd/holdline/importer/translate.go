package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config"
)

// server is a server as holdline's file has it, with its members in the order in
// which people write them.
type server struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Hosting hosting           `json:"holdline,omitzero"`
}

// hosting is the part of a server's settings that only holdline knows.
type hosting struct {
	Scope    string   `json:"scope,omitempty"`
	Projects []string `json:"projects,omitempty"`
	Timeout  string   `json:"timeout,omitempty"`
}

// IsZero reports whether there are no settings.
func (h hosting) IsZero() bool { return h.Scope == "" && h.Projects == nil && h.Timeout == "" }

// translation turns a client's entry into a [server].
type translation struct {
	c       *clients.Client
	o       *Options
	keys    map[string]any // of the entry
	name    string
	project string
	notes   []string // for people
	s       server
	err     error // the first reason why the server stays, a [staysError]
}

// translate returns what holdline's file is to say of an entry's server, and notes for
// people. The error says why the server stays with its client.
func translate(c *clients.Client, o *Options, e *clients.Entry) (server, []string, error) {
	if e.Odd != "" {
		return server{}, nil, stay("%s", e.Odd)
	}
	t := translation{c: c, o: o, keys: e.Keys, name: e.Name(), project: e.Project}
	for _, step := range []func(){
		t.refuseClientFeatures, t.readTransport, t.readProgram, t.readAddress, t.noteUnsetVariables, t.setHosting,
	} {
		step()
		if t.err != nil {
			return server{}, nil, t.err
		}
	}
	return t.s, t.notes, t.validate()
}

// stays records a reason why the server stays. The first one counts.
func (t *translation) stays(format string, args ...any) {
	if t.err == nil {
		t.err = stay(format, args...)
	}
}

// addNote adds a note for people. It must not contain a value of the entry.
func (t *translation) addNote(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// clientFeatures are keys that ask for what only the client can give, and why.
var clientFeatures = map[string]string{
	"auth":                     "its client logs in to it",
	"authProviderType":         "its client logs in to it",
	"oauth":                    "its client logs in to it",
	"headersHelper":            "its client makes its headers by a program",
	"envFile":                  "its variables come from a file",
	"requestInit":              "it says how requests are made",
	"sandboxEnabled":           "its client runs it in a sandbox",
	"sandbox":                  "its client runs it in a sandbox",
	"experimental_environment": "its client says where it runs",
}

// refuseClientFeatures leaves servers that are disabled, that need their client, or
// that are part of it.
func (t *translation) refuseClientFeatures() {
	if t.keys["disabled"] == true || t.keys["enabled"] == false {
		t.stays("it is disabled there")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(clientFeatures)) {
		if v, ok := t.keys[key]; ok && v != nil && v != false {
			t.stays("%s (%s)", clientFeatures[key], key)
			return
		}
	}
	for _, key := range []string{"command", "url", "httpUrl", "serverUrl", "transport"} {
		if _, ok := t.keys[key]; ok {
			return
		}
	}
	if t.c.Name == "zed" {
		t.stays("it is an extension of the client")
		return
	}
	t.stays("it has neither a command nor a url")
}

// readTransport reads the type, which clients call by three names.
func (t *translation) readTransport() {
	for _, key := range []string{"type", "transport", "transportType"} {
		switch v := t.keys[key].(type) {
		case nil:
		case string:
			t.setType(v)
		default:
			t.stays("its %s is no string", key)
		}
	}
	if t.s.Type == "" && t.keys["command"] == nil {
		if address := t.readText("httpUrl", "url", "serverUrl"); lastElement(address) == "sse" {
			t.stays(speaksSSE)
		}
	}
}

// speaksSSE is why a server of the HTTP transport of 2024-11-05 stays. Without a
// type an address that ends in "sse" is taken for one.
const speaksSSE = "it speaks the old transport sse, which holdline does not"

// setType sets the transport; a remote server without a type tells it by its answer.
func (t *translation) setType(name string) {
	switch name {
	case "", "stdio", "local":
	case "http", "streamable-http", "streamableHttp", "streamable_http", "remote":
		if name != "remote" {
			t.s.Type = config.HTTP
		}
	case "sse":
		t.stays(speaksSSE)
	default:
		t.stays("holdline does not know its type")
	}
}

// lastElement returns the last element of the path of an address.
func lastElement(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// readText returns the first of some keys that is present; it must be a string.
func (t *translation) readText(keys ...string) string {
	for _, key := range keys {
		switch v := t.keys[key].(type) {
		case nil:
		case string:
			return v
		default:
			t.stays("its %s is no string", key)
		}
	}
	return ""
}

// readProgram reads what a local server runs.
func (t *translation) readProgram() {
	keys := t.keys
	if nested, ok := keys["command"].(map[string]any); ok { // Zed's of old
		keys = map[string]any{"command": nested["path"], "args": nested["args"], "env": nested["env"]}
	}
	args := keys["args"]
	switch v := keys["command"].(type) {
	case nil:
		return
	case string:
		t.s.Command = t.expand("command", v)
	case []any:
		list := t.readList("command", v)
		if len(list) == 0 {
			t.stays("its command is empty")
			return
		}
		t.s.Command, t.s.Args = list[0], list[1:]
	default:
		t.stays("its command is no string")
		return
	}
	t.s.Args = append(t.s.Args, t.readList("args", args)...)
	t.s.Env = t.readMap("env", keys["env"])
	maps.Copy(t.s.Env, t.readMap("environment", keys["environment"]))
	t.readPassedVariables()
	t.readDirectory()
	t.resolveCommand()
}

// resolveCommand makes a command absolute unless it is looked up on the PATH.
func (t *translation) resolveCommand() {
	c := t.s.Command
	if strings.ContainsAny(c, " \t") && !strings.Contains(c, "/") {
		t.stays("its command has spaces: a program and its arguments in one string")
	}
	if !strings.Contains(c, "/") || filepath.IsAbs(c) || strings.HasPrefix(c, "~/") || strings.HasPrefix(c, "${") {
		return
	}
	if t.project == "" {
		t.stays("its command is a path from wherever its client runs")
		return
	}
	t.s.Command = filepath.Join(t.project, c)
}

// readDirectory reads where the server runs. The root of its project needs no mention:
// holdline starts it there anyway.
func (t *translation) readDirectory() {
	dir := t.readText("cwd", "workingDirectory", "working_directory")
	switch {
	case dir == "" || dir == "." || dir == "./":
		return
	case t.c.Syntax == clients.Editor && strings.TrimSuffix(dir, "/") == "${workspaceFolder}" && t.project == "":
		return
	}
	dir = t.expand("cwd", dir)
	switch {
	case filepath.IsAbs(dir) || strings.HasPrefix(dir, "~/") || strings.HasPrefix(dir, "${"):
		t.s.Cwd = dir
	case t.project != "":
		t.s.Cwd = filepath.Join(t.project, dir)
	default:
		t.stays("its cwd is a path from wherever its client runs")
	}
}

// readPassedVariables reads the names of variables that the client passes on.
func (t *translation) readPassedVariables() {
	list, _ := t.keys["env_vars"].([]any)
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			t.stays("its env_vars are not all names")
			return
		}
		if _, set := t.s.Env[name]; !set {
			t.s.Env[name] = "${" + name + ":-}" // the client passes on what is set, and starts it without
		}
	}
}

// readAddress reads where a remote server is.
func (t *translation) readAddress() {
	if t.s.Command != "" {
		return
	}
	address := t.readText("httpUrl", "url", "serverUrl")
	if file := t.c.LoggedIn(t.o.Places, t.name, address); file != "" {
		t.stays("its client has logged in to it (%s), and that login does not move along", file)
		return
	}
	t.s.URL = t.expand("url", address)
	t.s.Headers = t.readMap("headers", t.keys["headers"])
	maps.Copy(t.s.Headers, t.readMap("http_headers", t.keys["http_headers"]))
	for header, variable := range t.readMap("env_http_headers", t.keys["env_http_headers"]) {
		t.s.Headers[header] = "${" + variable + "}"
	}
	if name := t.readText("bearer_token_env_var"); name != "" {
		t.s.Headers["Authorization"] = "Bearer ${" + name + "}"
	}
	if len(t.s.Headers) == 0 {
		t.addNote("has no headers: if its client has logged in to it, that login does not move along")
	}
}

// readList returns a list of strings, with the variables in them as holdline has them.
func (t *translation) readList(key string, value any) []string {
	list, ok := value.([]any)
	if !ok && value != nil {
		t.stays("its %s are no list", key)
	}
	var out []string
	for _, v := range list {
		s, ok := scalar(v)
		if !ok {
			t.stays("its %s are not all strings", key)
			return nil
		}
		out = append(out, t.expand(key, s))
	}
	return out
}

// readMap returns an object of strings, with the variables in them as holdline has them.
func (t *translation) readMap(key string, value any) map[string]string {
	out := map[string]string{}
	m, ok := value.(map[string]any)
	if !ok && value != nil {
		t.stays("its %s is no object", key)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s, ok := scalar(m[name])
		if !ok {
			t.stays("its %s.%s is no string", key, name)
			return out
		}
		out[name] = t.expand(key+"."+name, s)
	}
	return out
}

// scalar returns a value as a string. Clients pass on numbers as they are written.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// setHosting sets which projects see the server, and how long its calls may take.
func (t *translation) setHosting() {
	h := &t.s.Hosting
	if t.o.Scope != config.ScopeProject { // which is the default
		h.Scope = t.o.Scope
	}
	h.Timeout = t.longTimeout()
	if t.project != "" {
		// A session is one of a whole work tree, and so is a server's directory.
		root := clients.ProjectRoot(t.project)
		h.Projects = []string{root}
		if root != t.project && t.s.Command != "" && t.s.Cwd == "" {
			t.s.Cwd = t.project
		}
	}
}

// longTimeout returns the client's limit of a call if it is longer than holdline's own.
// With a shorter one the client still ends its calls by itself.
func (t *translation) longTimeout() string {
	unit := time.Millisecond
	value := t.keys["timeout"]
	if t.c.TOML {
		value = t.keys["tool_timeout_sec"]
	}
	if t.c.Seconds {
		unit = time.Second
	}
	if t.c.Name == "opencode" { // its is for the list of tools
		return ""
	}
	n, ok := whole(value)
	if limit := time.Duration(n) * unit; ok && limit > 300*time.Second && limit <= 168*time.Hour {
		return limit.String()
	}
	return ""
}

// whole returns a whole number that is not negative, and whether v is one.
func whole(v any) (int, bool) {
	s, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseFloat(s.String(), 64)
	if err != nil || n < 0 || n > 1e12 {
		return 0, false
	}
	return int(n), true
}

// validate returns why holdline's own rules refuse the server.
func (t *translation) validate() error {
	_, err := t.s.settings()
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) || len(many.Unwrap()) == 0 {
		return err
	}
	if one, ok := errors.AsType[*config.Error](many.Unwrap()[0]); ok {
		return stay("holdline cannot host it: %s", strings.TrimPrefix(one.Message, "mcpServers.x."))
	}
	return stay("holdline cannot host it")
}

// settings returns how holdline reads the server.
func (s *server) settings() (config.Settings, error) {
	c, err := config.Parse("", bytes.Join([][]byte{[]byte(`{"mcpServers":{"x":`), clients.Encode(s), []byte(`}}`)}, nil))
	if err != nil {
		return config.Settings{}, err
	}
	out, _ := c.Server("x")
	return out, nil
}
