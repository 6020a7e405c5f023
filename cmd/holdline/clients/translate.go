package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/config"
)

// server is what holdline's file is to say of a server, in the order in which
// people write it.
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

type hosting struct {
	Scope    string   `json:"scope,omitempty"`
	Projects []string `json:"projects,omitempty"`
	Timeout  string   `json:"timeout,omitempty"`
}

// IsZero tells whether nothing is said.
func (h hosting) IsZero() bool {
	return h.Scope == "" && h.Projects == nil && h.Timeout == ""
}

// stays is why a server is left where it is.
type stays struct{ why string }

func (s *stays) Error() string { return s.why }

func stay(format string, args ...any) error { return &stays{fmt.Sprintf(format, args...)} }

// translation makes of a client's entry what holdline's file says. Its errors
// are of type [stays].
type translation struct {
	c       *client
	o       *Options
	keys    map[string]any
	name    string
	project string
	notes   []string
	s       server
	err     error // the first
}

// translate makes of an entry what holdline's file is to say, and what is to
// be told of it. The error says why it stays.
func translate(c *client, o *Options, e *entry) (server, []string, error) {
	if e.odd != "" {
		return server{}, nil, stay("%s", e.odd)
	}
	t := translation{c: c, o: o, keys: e.keys, name: e.name(), project: e.project}
	for _, step := range []func(){t.refuse, t.transport, t.program, t.address, t.variables, t.hosting} {
		step()
		if t.err != nil {
			return server{}, nil, t.err
		}
	}
	return t.s, t.notes, t.valid()
}

func (t *translation) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *translation) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// binding are keys whose meaning only the client can give.
var binding = map[string]string{
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

// refuse leaves what is switched off, what its client does for it, and what is
// no server of its own.
func (t *translation) refuse() {
	if t.keys["disabled"] == true || t.keys["enabled"] == false {
		t.fail(stay("it is disabled there"))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(binding)) {
		if v, ok := t.keys[key]; ok && v != nil && v != false {
			t.fail(stay("%s (%s)", binding[key], key))
			return
		}
	}
	for _, key := range []string{"command", "url", "httpUrl", "serverUrl", "transport"} {
		if _, ok := t.keys[key]; ok {
			return
		}
	}
	if t.c.name == "zed" {
		t.fail(stay("it is an extension of the client"))
		return
	}
	t.fail(stay("it has neither a command nor a url"))
}

// transport reads the type, under whatever name.
func (t *translation) transport() {
	for _, key := range []string{"type", "transport", "transportType"} {
		switch v := t.keys[key].(type) {
		case nil:
		case string:
			t.typed(v)
		default:
			t.fail(stay("its %s is no string", key))
		}
	}
	if t.s.Type == "" && t.keys["command"] == nil {
		if address := t.first("httpUrl", "url", "serverUrl"); lastElement(address) == "sse" {
			t.fail(stay(speaksSSE))
		}
	}
}

// speaksSSE is why a server of the HTTP transport of 2024-11-05 stays. Without a
// type an address that ends in "sse" is taken for one.
const speaksSSE = "it speaks the old transport sse, which holdline does not"

func (t *translation) typed(name string) {
	switch name {
	case "", "stdio", "local":
	case "http", "streamable-http", "streamableHttp", "streamable_http", "remote":
		if name != "remote" {
			t.s.Type = config.HTTP
		}
	case "sse":
		t.fail(stay(speaksSSE))
	default:
		t.fail(stay("holdline does not know its type"))
	}
}

func lastElement(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return path.Base(u.Path)
}

// first is the first of some keys that is there and a string.
func (t *translation) first(keys ...string) string {
	for _, key := range keys {
		switch v := t.keys[key].(type) {
		case nil:
		case string:
			return v
		default:
			t.fail(stay("its %s is no string", key))
		}
	}
	return ""
}

// program reads what a local server runs.
func (t *translation) program() {
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
		list := t.strings("command", v)
		if len(list) == 0 {
			t.fail(stay("its command is empty"))
			return
		}
		t.s.Command, t.s.Args = list[0], list[1:]
	default:
		t.fail(stay("its command is no string"))
		return
	}
	t.s.Args = append(t.s.Args, t.strings("args", args)...)
	t.s.Env = t.pairs("env", keys["env"])
	maps.Copy(t.s.Env, t.pairs("environment", keys["environment"]))
	t.passed()
	t.directory()
	t.place()
}

// place makes a command absolute, or says why it cannot be.
func (t *translation) place() {
	c := t.s.Command
	if strings.ContainsAny(c, " \t") && !strings.Contains(c, "/") {
		t.fail(stay("its command has spaces: a program and its arguments in one string"))
	}
	if !strings.Contains(c, "/") || filepath.IsAbs(c) || strings.HasPrefix(c, "~/") || strings.HasPrefix(c, "${") {
		return
	}
	if t.project == "" {
		t.fail(stay("its command is a path from wherever its client runs"))
		return
	}
	t.s.Command = filepath.Join(t.project, c)
}

// directory reads where it runs. Its project's root, in which holdline starts
// it anyway, need not be said.
func (t *translation) directory() {
	dir := t.first("cwd", "workingDirectory", "working_directory")
	switch {
	case dir == "" || dir == "." || dir == "./":
		return
	case t.c.dialect == editor && strings.TrimSuffix(dir, "/") == "${workspaceFolder}" && t.project == "":
		return
	}
	dir = t.expand("cwd", dir)
	switch {
	case filepath.IsAbs(dir) || strings.HasPrefix(dir, "~/") || strings.HasPrefix(dir, "${"):
		t.s.Cwd = dir
	case t.project != "":
		t.s.Cwd = filepath.Join(t.project, dir)
	default:
		t.fail(stay("its cwd is a path from wherever its client runs"))
	}
}

// passed reads the names of variables that are passed on.
func (t *translation) passed() {
	list, _ := t.keys["env_vars"].([]any)
	for _, v := range list {
		name, ok := v.(string)
		if !ok {
			t.fail(stay("its env_vars are not all names"))
			return
		}
		if _, set := t.s.Env[name]; !set {
			t.s.Env[name] = "${" + name + ":-}" // the client passes on what is set, and starts it without
		}
	}
}

// address reads where a remote server is.
func (t *translation) address() {
	if t.s.Command != "" {
		return
	}
	address := t.first("httpUrl", "url", "serverUrl")
	if file := t.c.loggedIn(t.o, t.name, address); file != "" {
		t.fail(stay("its client has logged in to it (%s), and that login does not move along", file))
		return
	}
	t.s.URL = t.expand("url", address)
	t.s.Headers = t.pairs("headers", t.keys["headers"])
	maps.Copy(t.s.Headers, t.pairs("http_headers", t.keys["http_headers"]))
	for header, variable := range t.pairs("env_http_headers", t.keys["env_http_headers"]) {
		t.s.Headers[header] = "${" + variable + "}"
	}
	if name := t.first("bearer_token_env_var"); name != "" {
		t.s.Headers["Authorization"] = "Bearer ${" + name + "}"
	}
	if len(t.s.Headers) == 0 {
		t.note("has no headers: if its client has logged in to it, that login does not move along")
	}
}

func (t *translation) strings(key string, value any) []string {
	list, ok := value.([]any)
	if !ok && value != nil {
		t.fail(stay("its %s are no list", key))
	}
	var out []string
	for _, v := range list {
		s, ok := scalar(v)
		if !ok {
			t.fail(stay("its %s are not all strings", key))
			return nil
		}
		out = append(out, t.expand(key, s))
	}
	return out
}

func (t *translation) pairs(key string, value any) map[string]string {
	out := map[string]string{}
	m, ok := value.(map[string]any)
	if !ok && value != nil {
		t.fail(stay("its %s is no object", key))
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		s, ok := scalar(m[name])
		if !ok {
			t.fail(stay("its %s.%s is no string", key, name))
			return out
		}
		out[name] = t.expand(key+"."+name, s)
	}
	return out
}

// scalar is a value as a string: clients take numbers for what they look like.
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

var (
	dollarName = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
	braced     = regexp.MustCompile(`\$\{([^{}]*)\}`)
	bracketed  = regexp.MustCompile(`\{(env|file):([^{}]*)\}`)
	variable   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand writes the variables in a string as holdline spells them.
func (t *translation) expand(key, s string) string {
	switch t.c.dialect {
	case literal:
		return escape(s)
	case shell, dollar:
		return t.shell(key, s)
	case editor:
		return braced.ReplaceAllStringFunc(s, func(m string) string { return t.editor(key, m[2:len(m)-1]) })
	case brackets:
		return bracketed.ReplaceAllStringFunc(escape(s), func(m string) string {
			parts := bracketed.FindStringSubmatch(m)
			if parts[1] == "env" && variable.MatchString(parts[2]) {
				return "${" + parts[2] + "}"
			}
			t.fail(stay("its %s has {%s:…}, which only its client knows", key, parts[1]))
			return m
		})
	}
	return s
}

func escape(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// shell leaves ${NAME} as it is: it is spelled so here, too.
func (t *translation) shell(key, s string) string {
	if strings.Contains(s, "CLAUDE_PROJECT_DIR") {
		if t.project == "" {
			t.fail(stay("its %s has ${CLAUDE_PROJECT_DIR}, which only its client knows", key))
			return s
		}
		s = regexp.MustCompile(`\$\{CLAUDE_PROJECT_DIR(:-[^}]*)?\}`).ReplaceAllLiteralString(s, escape(t.project))
	}
	if strings.Contains(s, "${CLAUDE_PLUGIN_ROOT") {
		t.fail(stay("its %s has ${CLAUDE_PLUGIN_ROOT}, which only its client knows", key))
	}
	if t.c.dialect == dollar {
		s = dollarName.ReplaceAllString(s, "$${$1}")
	}
	if _, err := config.Expand(s, func(string) (string, bool) { return "", true }); err != nil {
		t.fail(stay("its %s has a ${…} that holdline does not know", key))
	}
	return s
}

// editor writes one variable of an editor as holdline spells it.
func (t *translation) editor(key, name string) string {
	kind, rest, _ := strings.Cut(name, ":")
	switch {
	case kind == "env" && variable.MatchString(rest):
		return "${" + rest + "}"
	case name == "userHome":
		return "${HOME}"
	case name == "/" || name == "pathSeparator":
		return "/"
	case name == "workspaceFolder" && t.project != "":
		return escape(t.project)
	case name == "workspaceFolderBasename" && t.project != "":
		return escape(filepath.Base(t.project))
	}
	shown := kind
	if !variable.MatchString(kind) {
		shown = "…"
	} else if kind != name {
		shown += ":…"
	}
	t.fail(stay("its %s has ${%s}, which only its client knows", key, shown))
	return ""
}

// variables names those that are not set here.
func (t *translation) variables() {
	lookup := config.Lookup(t.o.Environ)
	var unset []string
	for _, s := range slices.Concat([]string{t.s.Command, t.s.Cwd, t.s.URL}, t.s.Args, slices.Collect(maps.Values(t.s.Env)), slices.Collect(maps.Values(t.s.Headers))) {
		for {
			_, err := config.Expand(s, func(name string) (string, bool) {
				value, ok := lookup(name)
				return value, ok || slices.Contains(unset, name)
			})
			one, ok := errors.AsType[*config.UnsetError](err)
			if !ok {
				break
			}
			unset = append(unset, one.Name)
		}
	}
	slices.Sort(unset)
	if unset = slices.Compact(unset); len(unset) > 0 {
		t.note("needs %s, which this shell has not: set it in %s or for your login shell", strings.Join(unset, ", "),
			filepath.Join(filepath.Dir(t.o.Config), "env"))
	}
}

// hosting says where the server is seen and how long its calls may take.
func (t *translation) hosting() {
	h := &t.s.Hosting
	if t.o.Scope != config.ScopeProject { // which is the default
		h.Scope = t.o.Scope
	}
	h.Timeout = t.patience()
	if t.project != "" {
		// A session is one of a whole work tree, and so is a server's directory.
		root := projectRoot(t.project)
		h.Projects = []string{root}
		if root != t.project && t.s.Command != "" && t.s.Cwd == "" {
			t.s.Cwd = t.project
		}
	}
}

// patience is a client's limit of a call if it is longer than holdline's own;
// a shorter one goes on being the client's business.
func (t *translation) patience() string {
	unit := time.Millisecond
	value := t.keys["timeout"]
	if t.c.toml {
		value = t.keys["tool_timeout_sec"]
	}
	if t.c.seconds {
		unit = time.Second
	}
	if t.c.name == "opencode" { // its is for the list of tools
		return ""
	}
	n, ok := whole(value)
	if limit := time.Duration(n) * unit; ok && limit > 300*time.Second && limit <= 168*time.Hour {
		return limit.String()
	}
	return ""
}

// whole is a whole number that is not negative.
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

// valid is what holdline's own rules say of the server.
func (t *translation) valid() error {
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

// settings are what holdline makes of the server.
func (s *server) settings() (config.Settings, error) {
	c, err := config.Parse("", bytes.Join([][]byte{[]byte(`{"mcpServers":{"x":`), encode(s), []byte(`}}`)}, nil))
	if err != nil {
		return config.Settings{}, err
	}
	out, _ := c.Server("x")
	return out, nil
}
