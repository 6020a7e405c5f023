package clients

import (
	"cmp"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"holdline/protocol/jsonrpc"
)

// Document is a client's configuration file, of which the entries of servers are
// edited. A path is the list of keys from the root of the file to an entry.
type Document interface {
	// Entries returns the servers of all places in the file at which the client looks.
	Entries() []Entry
	// Home returns the path of the object, or table, into which new entries go.
	Home() []string
	// Start makes the entry at a path, which is created if need be, start what fields
	// say. It removes the keys that describe another server and keeps the client's own.
	Start(path []string, fields []Field) error
	// Text returns the entry at a path as the file writes it, and whether it exists.
	Text(path ...string) (text string, ok bool)
	// Put makes the entry at a path what Text has returned before.
	Put(text string, path ...string) error
	// Remove removes the entry at a path, and reports whether it existed.
	Remove(path ...string) bool
	// Same reports whether the entry at a path means the same as text.
	Same(path []string, text string) bool
	// RemoveEmptyParents removes the empty objects above path that before does not have.
	RemoveEmptyParents(path []string, before Document)
	// Bytes returns the file with all edits.
	Bytes() []byte
}

// Entry is one server in a client's file.
type Entry struct {
	Path    []string       // the last key is the server's name
	Keys    map[string]any // values as encoding/json decodes them, numbers as json.Number; see [aliases]
	Order   []string       // of the members, by the names that the file has
	Project string         // directory in which the client uses it; "" for all
	Odd     string         // why it cannot be edited, or ""
}

// Name returns the name of the server.
func (e *Entry) Name() string { return e.Path[len(e.Path)-1] }

// Find returns the entry at a path, or nil if doc has none. The entry is a copy:
// changing it does not change doc.
func Find(doc Document, path []string) *Entry {
	for _, e := range doc.Entries() {
		if slices.Equal(e.Path, path) {
			return &e
		}
	}
	return nil
}

// aliases are the names of some clients for what Entry.Keys has under one name.
var aliases = map[string]string{
	"environment": "env", "http_headers": "headers", "httpUrl": "url", "serverUrl": "url", "transport": "type",
	"transportType": "type", "workingDirectory": "cwd", "working_directory": "cwd",
}

// setMembers sets Keys from the members of the entry, under the names of [aliases]. If
// two members say different things under one name, it sets Odd: which of them the
// client uses is not known.
func (e *Entry) setMembers(members map[string]any) {
	e.Keys = map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		key := cmp.Or(aliases[name], name)
		if old := e.Keys[key]; old != nil && members[name] != nil && !reflect.DeepEqual(old, members[name]) {
			e.Odd = "it says its " + key + " in two different ways"
		}
		if e.Keys[key] == nil {
			e.Keys[key] = members[name]
		}
	}
	if nested, ok := e.Keys["command"].(map[string]any); ok { // as Zed wrote it once
		e.Keys["command"], e.Keys["args"], e.Keys["env"] = nested["path"], nested["args"], nested["env"]
	}
}

// CommandLine returns the program that an entry starts and its arguments; the
// program is "" if the entry starts none.
func (e *Entry) CommandLine() (program string, args []string) {
	words := stringsOf(e.Keys["command"])
	if len(words) == 0 {
		return "", nil
	}
	return words[0], append(words[1:], stringsOf(e.Keys["args"])...)
}

// stringsOf returns a string, or a list of strings, as a list. Other elements are "".
func stringsOf(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		out := make([]string, len(v))
		for i := range v {
			out[i], _ = v[i].(string)
		}
		return out
	}
	return nil
}

// StartsHoldline reports whether the entry starts holdline's proxy, and for which of
// its servers; "" is all of them. A program counts as holdline if its name begins so,
// wherever it lies, and whatever starts it: env, a shell with -c, or a program that keeps
// it to some limits.
func (e *Entry) StartsHoldline() (server string, ok bool) {
	program, args := e.CommandLine()
	var words []string
	for _, word := range append([]string{program}, args...) {
		words = append(words, strings.Fields(word)...) // a shell has a whole line as one argument
	}
	at := slices.IndexFunc(words, func(word string) bool {
		return strings.HasPrefix(filepath.Base(strings.Trim(word, `"'`)), "holdline")
	})
	if at < 0 {
		return "", false
	}
	// The program that is the proxy alone needs no command.
	proxy := strings.HasPrefix(filepath.Base(strings.Trim(words[at], `"'`)), "holdline-stdio")
	words = words[at+1:]
	if !proxy && !slices.Contains(words, "mcp-stdio") {
		return "", false
	}
	return strings.Trim(FlagValue(words, "--server"), `"'`), true
}

// FlagValue returns the last value of a flag among the arguments of a program; "" if it is not given.
func FlagValue(args []string, flag string) (value string) {
	for i, arg := range args {
		if text, long := strings.CutPrefix(arg, flag+"="); long {
			value = text
		} else if arg == flag && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// describing are the keys of an entry that say what the server is. Once holdline
// starts the server, its client does not need them. All other keys are the client's
// own and stay.
var describing = []string{
	"args", "bearer_token_env_var", "command", "cwd", "env", "env_http_headers", "env_vars", "headers", "oauth",
	"oauth_resource", "scopes", "source", "type", "url",
}

// Describes reports whether a key says what the server is, in contrast to keys that
// are the client's own.
func Describes(key string) bool { return slices.Contains(describing, cmp.Or(aliases[key], key)) }

// Encode returns a value of a file, or what is to become one, as JSON. It panics for a
// value that has no JSON.
func Encode(v any) []byte {
	b, err := jsonrpc.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// sameJSON reports whether two JSON texts mean the same.
func sameJSON(a, b string) bool { return reflect.DeepEqual(decode([]byte(a)), decode([]byte(b))) }
