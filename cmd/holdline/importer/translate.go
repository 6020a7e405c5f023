package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/clienttable"
	"holdline/daemon/config"
	"holdline/protocol/project"
)

// server is a server as holdline's file has it.
type server struct {
	Type    string
	Command string
	Args    []string
	Env     map[string]string
	Cwd     string
	URL     string
	Headers map[string]string
	OAuth   map[string]any
	Hosting hosting

	passed map[string]string // variables that its client passes on of its own environment, see [server.written]

	scopeWhy string // why it has its scope, for people

	logIn bool // its client has logged in to it, which somebody has to do again
}

// fields returns the members of the server's entry, in the order in which people write
// them.
func (s *server) fields() []clients.Field {
	all := []clients.Field{
		{Key: "type", Value: s.Type},
		{Key: "command", Value: s.Command},
		{Key: "args", Value: s.Args},
		{Key: "env", Value: s.Env},
		{Key: "cwd", Value: s.Cwd},
		{Key: "url", Value: s.URL},
		{Key: "headers", Value: s.Headers},
		{Key: "oauth", Value: s.OAuth},
		{Key: "holdline", Value: s.Hosting},
	}
	return slices.DeleteFunc(all, func(f clients.Field) bool {
		v := reflect.ValueOf(f.Value)
		return v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0
	})
}

// hosting is the part of a server's settings that only holdline knows.
type hosting struct {
	Scope        string   `json:"scope,omitempty"`
	Projects     []string `json:"projects,omitempty"`
	Timeout      string   `json:"timeout,omitempty"`
	StartTimeout string   `json:"start_timeout,omitempty"`
}

// translation turns a client's entry into a [server]. Its methods read one aspect of the
// entry each. The first problem is kept in err, so that the methods need no error results:
// with an error the server stays, whatever else was read.
type translation struct {
	c       *clients.Client
	o       *Options
	keys    map[string]any // of the entry
	name    string
	project string
	notes   []string // for people
	left    []string // names of variables that the client passes on, and that are not kept
	s       server
	err     error // the first reason why the server stays, a [staysError]
}

// translate returns what holdline's file is to say of an entry's server, and notes for
// people.
//
// left are names of variables that the client passes on to it, and that are not kept.
//
// The error says why the server stays with its client. It does if holdline cannot host
// the server as its client does: if the server needs something of the client, such as
// a sandbox, or if its entry has a variable that only the client knows.
func translate(c *clients.Client, o *Options, e *clients.Entry) (s server, notes, left []string, err error) {
	if e.Odd != "" {
		return server{}, nil, nil, stay("%s", e.Odd)
	}
	t := translation{c: c, o: o, keys: e.Keys, name: e.Name(), project: e.Project}
	for _, step := range []func(){
		t.refuseClientFeatures, t.readTransport, t.readProgram, t.readAddress, t.noteUnsetVariables, t.setHosting,
		t.setPassed,
	} {
		step()
		if t.err != nil {
			return server{}, nil, nil, t.err
		}
	}
	return t.s, t.notes, t.left, t.validate()
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
	switch {
	case t.keys["command"] != nil || t.keys["url"] != nil:
	case t.c.Bare != "":
		t.stays("it is %s", t.c.Bare)
	default:
		t.stays("it has neither a command nor a url")
	}
}

// speaksSSE is why a server of the HTTP transport of 2024-11-05 stays. Without a
// type an address that ends in "sse" is taken for one.
const speaksSSE = "it speaks the old transport sse, which Holdline does not"

// readTransport reads the type. A remote server without one shows its transport by its
// answer.
func (t *translation) readTransport() {
	switch t.readText("type") {
	case "http", "streamable-http", "streamableHttp", "streamable_http":
		t.s.Type = config.HTTP
		return
	case "sse":
		t.stays(speaksSSE)
	case "", "stdio", "local", "remote":
	default:
		t.stays("Holdline does not know its type")
	}
	if t.keys["command"] == nil && lastElement(t.readText("url")) == "sse" {
		t.stays(speaksSSE)
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

// readText returns the string of a key; "" if the entry does not have the key.
func (t *translation) readText(key string) string {
	s, ok := t.keys[key].(string)
	if !ok && t.keys[key] != nil {
		t.stays("its %s is not a string", key)
	}
	return s
}

// readProgram reads what a local server runs.
func (t *translation) readProgram() {
	switch v := t.keys["command"].(type) {
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
		t.stays("its command is not a string")
		return
	}
	t.s.Args = append(t.s.Args, t.readList("args", t.keys["args"])...)
	t.s.Env = t.readMap("env")
	t.readPassedVariables()
	t.readDirectory()
	t.resolveCommand()
}

// resolveCommand makes a command absolute unless it is looked up on the PATH. A
// relative path is resolved by the project's directory. Without a project it depends
// on where the client runs, which holdline does not know.
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
	dir := t.readText("cwd")
	switch {
	case dir == "" || dir == "." || dir == "./":
		return
	case t.c.Syntax == clienttable.Editor && strings.TrimSuffix(dir, "/") == "${workspaceFolder}" && t.project == "":
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

// readPassedVariables reads the names of variables that the client passes on to the
// server, if they are set. A value that the entry itself sets counts more. Codex may
// write a name as a table, which says on which machine the variable is.
func (t *translation) readPassedVariables() {
	list, _ := t.keys["env_vars"].([]any)
	for _, v := range list {
		table, _ := v.(map[string]any)
		name, ok := v.(string)
		if where, _ := table["source"].(string); where == "" || where == "local" {
			name, ok = cmp.Or(name, firstString(table["name"])), ok || table["name"] != nil
		}
		if !ok {
			t.stays("not all of its env_vars are names of variables on this machine")
			return
		}
		if _, set := t.s.Env[name]; !set {
			t.s.Env[name] = optional(name)
		}
	}
}

// firstString returns v if it is a string, else "".
func firstString(v any) string {
	s, _ := v.(string)
	return s
}

// optional returns how holdline's file names a variable without which the server starts,
// too.
func optional(name string) string { return "${" + name + ":-}" }

// readAddress reads where a remote server is, its headers and how people log in to it. A login
// of the client is not read, since it belongs to the client: two programs that renew one login
// lose it. Not every login can be seen, so a server without headers gets a note.
func (t *translation) readAddress() {
	if t.s.Command != "" {
		return
	}
	address := t.readText("url")
	t.s.logIn = t.c.LoggedIn(t.o.Places, t.name, address) != ""
	t.readOAuth()
	t.s.URL = t.expand("url", address)
	t.s.Headers = t.readMap("headers")
	for header, variable := range t.readMap("env_http_headers") {
		t.s.Headers[header] = optional(variable) // Codex leaves out a header whose variable is not set
	}
	if name := t.readText("bearer_token_env_var"); name != "" {
		t.s.Headers["Authorization"] = "Bearer ${" + name + "}"
	}
	if len(t.s.Headers) == 0 && t.o.Try == nil && !t.s.logIn { // a try shows whether it needs a login
		t.addNote("has no headers: if its client has logged in to it, log in once: holdline servers login %s", t.name)
	}
}

// readOAuth reads how people log in to the server. It stays if that says what Holdline's own file
// cannot say.
func (t *translation) readOAuth() {
	table, ok := t.keys["oauth"].(map[string]any)
	if v := t.keys["oauth"]; !ok && v != nil && v != false {
		t.stays("its oauth is not an object")
		return
	}
	t.s.OAuth = map[string]any{}
	t.readCodexOAuth()
	known := map[string]bool{}
	for field := range reflect.TypeFor[config.OAuth]().Fields() {
		known[field.Tag.Get("json")] = true
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		value := table[key]
		if !known[key] {
			t.stays("Holdline does not know its oauth.%s", key)
			return
		}
		if s, isText := value.(string); isText {
			value = t.expand("oauth."+key, s)
		}
		t.s.OAuth[key] = value
	}
	if ok || len(t.s.OAuth) > 0 {
		t.s.logIn = t.s.logIn || t.s.OAuth["grant"] == nil // else no person logs in
	}
}

// readCodexOAuth reads the keys by which Codex says in the entry itself what to ask for at a login.
func (t *translation) readCodexOAuth() {
	if scopes := t.readList("scopes", t.keys["scopes"]); len(scopes) > 0 {
		t.s.OAuth["scopes"] = scopes
	}
	if resource := t.readText("oauth_resource"); resource != "" {
		t.s.OAuth["resource"] = t.expand("oauth_resource", resource)
	}
}

// readList returns a list of strings, with the variables in them as holdline has them.
func (t *translation) readList(key string, value any) []string {
	list, ok := value.([]any)
	if !ok && value != nil {
		t.stays("its %s is not a list", key)
	}
	var out []string
	for _, v := range list {
		s, ok := scalar(v)
		if !ok {
			t.stays("not all of its %s are strings", key)
			return nil
		}
		out = append(out, t.expand(key, s))
	}
	return out
}

// readMap returns an object of strings, with the variables in them as holdline has them.
func (t *translation) readMap(key string) map[string]string {
	out := map[string]string{}
	m, ok := t.keys[key].(map[string]any)
	if !ok && t.keys[key] != nil {
		t.stays("its %s is not an object", key)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s, ok := scalar(m[name])
		if !ok {
			t.stays("its %s.%s is not a string", key, name)
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

// setHosting sets which projects see the server, and how long its calls may take. A
// server that was for one directory of a git work tree is seen in the whole of it, and
// still runs in that directory.
func (t *translation) setHosting() {
	h := &t.s.Hosting
	h.Timeout, h.StartTimeout = t.longLimits()
	if t.project != "" {
		// A session is one of a whole work tree, and so is a server's directory.
		root := project.Root(t.project)
		h.Projects = []string{root}
		if root != t.project && t.s.Command != "" && t.s.Cwd == "" {
			t.s.Cwd = t.project
		}
	}
}

// validate returns why holdline's own rules refuse the server, or nil. Of several
// mistakes it names the first.
func (t *translation) validate() error {
	_, err := t.s.settings()
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) || len(many.Unwrap()) == 0 {
		return err
	}
	if one, ok := errors.AsType[*config.Error](many.Unwrap()[0]); ok {
		return stay("Holdline cannot host it: %s", strings.TrimPrefix(one.Message, "mcpServers.x."))
	}
	return stay("Holdline cannot host it")
}

// settings returns how holdline reads the server. The error has the mistakes that the
// daemon would report, for a server of the name x.
func (s *server) settings() (config.Settings, error) {
	c, err := config.Parse("", fmt.Appendf(nil, `{"mcpServers":{"x":%s}}`, clients.Object(s.fields())))
	if err != nil {
		return config.Settings{}, err
	}
	out, _ := c.Server("x")
	return out, nil
}
