package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/plural"
	"holdline/daemon/redact"
	"holdline/daemon/spelling"
	"holdline/protocol/jsonrpc"
)

// A Key names a value of the configuration by the keys that lead to it. As a text it has
// dots between them, as in consult.timeout; a name with a dot in it stands in double quotes,
// as in mcpServers."my.server".command.
type Key []string

// ParseKey returns the key that a text names. It refuses keys that no configuration has, and
// says which one may be meant.
func ParseKey(text string) (Key, error) {
	var k Key
	for rest := text; ; {
		var name string
		if quoted, err := strconv.QuotedPrefix(rest); err == nil && strings.HasPrefix(rest, `"`) {
			name, _ = strconv.Unquote(quoted)
			rest = rest[len(quoted):]
		} else {
			end := strings.IndexByte(rest+".", '.')
			name, rest = rest[:end], rest[end:]
		}
		k = append(k, name)
		if rest == "" {
			break
		}
		if !strings.HasPrefix(rest, ".") {
			return nil, fmt.Errorf("%s: behind a name in quotes a dot is missing", text)
		}
		rest = rest[1:]
	}
	_, err := k.look()
	return k, err
}

// String returns the key as a text.
func (k Key) String() string {
	var b strings.Builder
	for i, name := range k {
		if i > 0 {
			b.WriteByte('.')
		}
		if name == "" || strings.ContainsAny(name, `."`) {
			name = strconv.Quote(name)
		}
		b.WriteString(name)
	}
	return b.String()
}

// look returns the type of the key's value. The error says which key may be meant if there is
// no such key.
func (k Key) look() (reflect.Type, error) {
	t := reflect.TypeFor[Config]()
	for i, name := range k {
		switch {
		case t.Kind() == reflect.Map:
			t = t.Elem()
		case t.Kind() == reflect.Struct && table[t] != nil:
			at := field(t, name)
			if at < 0 {
				words := fmt.Sprintf("there is no key %s", k[:i+1])
				if near := spelling.Nearest(name, keys(t)); near != "" {
					words += fmt.Sprintf("; did you mean %s?", append(slices.Clone(k[:i]), near))
				}
				return nil, errors.New(words)
			}
			t = t.Field(at).Type
		default:
			return nil, fmt.Errorf("%s has no keys below it", k[:i])
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t, nil
}

// Encode returns the JSON text of a value of the key that a user has written on the command
// line. Texts, durations and levels are taken as they are; a list is JSON, or has commas
// between its elements; an object is JSON.
func (k Key) Encode(value string) (string, error) {
	t, err := k.look()
	if err != nil {
		return "", err
	}
	quote := func(v any) (string, error) {
		b, err := jsonrpc.Marshal(v) // people read the file, so it has no escapes for HTML
		return string(b), err
	}
	object := strings.HasPrefix(strings.TrimSpace(value), "{")
	switch {
	case t == reflect.TypeFor[time.Duration](), t == reflect.TypeFor[slog.Level](), t == reflect.TypeFor[plural.Size](),
		t.Kind() == reflect.String,
		(t == reflect.TypeFor[Contracts]() || t == reflect.TypeFor[Variable]()) && !object:
		return quote(value)
	case t == reflect.TypeFor[Notify]() && (value == "true" || value == "false"):
		return value, nil
	case t.Kind() == reflect.Slice && !strings.HasPrefix(strings.TrimSpace(value), "["):
		list := []string{}
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.TrimSpace(one); one != "" {
				list = append(list, one)
			}
		}
		if t.Elem().Kind() == reflect.Int {
			return "[" + strings.Join(list, ",") + "]", nil // the check of the file says what is no number
		}
		return quote(list)
	case (t.Kind() == reflect.Struct || t.Kind() == reflect.Map) && !object:
		return "", fmt.Errorf("%s: wants a JSON object, such as '{\"key\": \"value\"}'", k)
	case t.Kind() == reflect.Bool && value != "true" && value != "false":
		return "", fmt.Errorf("%s: wants true or false", k)
	case t.Kind() == reflect.Int || t.Kind() == reflect.Float64:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return "", fmt.Errorf("%s: wants a number", k)
		}
	}
	return value, nil
}

// ErrNoServer is wrapped by the error about a server that the file does not name.
var ErrNoServer = errors.New("is not configured")

// NoServer returns the error about a server that c does not name, with the one that may be
// meant, or the command that lists those that there are. It wraps [ErrNoServer].
func NoServer(name string, c *Config) error {
	if near := spelling.Nearest(name, sorted(c.Servers)); near != "" {
		return fmt.Errorf("server %s %w; did you mean %s?", name, ErrNoServer, near)
	}
	return fmt.Errorf("server %s %w; those that are: holdline servers list", name, ErrNoServer)
}

// Value returns the value of a key that is in force by c, as plain data for JSON: durations
// and levels are texts as in the file. Secrets are hidden. known is false for a name that c
// does not have, such as that of a server.
func (c Config) Value(k Key) (value any, known bool) {
	// Only secrets of the type redact.Secret hide themselves, so the others are hidden before anything
	// is looked up: the key may be that of a server, or of anything above or below one.
	shown := make(map[string]Server, len(c.Servers))
	for name, s := range c.Servers {
		settings, _ := c.Server(name)
		s.Holdline, s.Args, s.URL = settings.Hosting, redact.Args(s.Args), redact.URL(s.URL)
		s.Env = hide(s.Env, Variable.shown)
		shown[name] = s
	}
	c.Servers, c.Commands = shown, hide(c.Commands, Command.shown)
	c.Consult.CodexConfig = redact.Args(c.Consult.CodexConfig)
	v := reflect.ValueOf(c)
	for _, name := range k {
		switch {
		case v.Kind() == reflect.Map:
			v = v.MapIndex(reflect.ValueOf(name))
		case v.Kind() == reflect.Struct && field(v.Type(), name) >= 0:
			v = v.Field(field(v.Type(), name))
		default:
			return nil, false
		}
		if !v.IsValid() {
			return nil, false
		}
	}
	return plain(v), true
}

// hide returns a copy of m with each of its values as f returns it.
func hide[V any](m map[string]V, f func(V) V) map[string]V {
	out := maps.Clone(m)
	for name, v := range out {
		out[name] = f(v)
	}
	return out
}

// plain returns a value of the configuration as plain data for JSON. What has no value is
// left out of objects.
func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case plural.Size:
		return x.String()
	case slog.Level:
		return strings.ToLower(x.String())
	case redact.Secret:
		return x.String()
	case Variable:
		if x.Command.Argv == nil {
			return x.Text.String()
		}
		return plain(v.FieldByName("Command"))
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			if one := v.Field(i); !one.IsZero() {
				out[v.Type().Field(i).Tag.Get("json")] = plain(one)
			}
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for _, name := range v.MapKeys() {
			out[name.String()] = plain(v.MapIndex(name))
		}
		return out
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = plain(v.Index(i))
		}
		return out
	default:
		return v.Interface()
	}
}

// KnownKey is a key that a configuration can have, for completion.
type KnownKey struct {
	Key    Key
	Help   string
	Values []string // that it can have; nil if these are not a few words
}

// Keys returns the keys that c can have, with the names of servers and identities that it has.
func (c Config) Keys() []KnownKey {
	var all []KnownKey
	var add func(at Key, t reflect.Type)
	add = func(at Key, t reflect.Type) {
		for _, r := range table[t] {
			k := append(slices.Clone(at), r.name)
			f := t.Field(field(t, r.name)).Type
			one := KnownKey{Key: k, Help: r.help}
			switch {
			case strings.Contains(r.check, " | "):
				one.Values = strings.Split(r.check, " | ")
			case f.Kind() == reflect.Bool, f == reflect.TypeFor[*bool]():
				one.Values = []string{"true", "false"}
			case f == reflect.TypeFor[Notify]():
				one.Values = append([]string{"true", "false"}, notifyKinds...)
			}
			all = append(all, one)
			switch f {
			case reflect.TypeFor[map[string]Server]():
				for _, name := range sorted(c.Servers) {
					add(append(slices.Clone(k), name), f.Elem())
				}
			case reflect.TypeFor[map[string]Identity]():
				for _, name := range sorted(c.Identities) {
					add(append(slices.Clone(k), name), f.Elem())
				}
			case reflect.TypeFor[map[string]View]():
				for _, name := range sorted(c.Views) {
					add(append(slices.Clone(k), name), f.Elem())
				}
			case reflect.TypeFor[map[string]Command]():
				for _, name := range sorted(c.Commands) {
					add(append(slices.Clone(k), name), f.Elem())
				}
			default:
				add(k, f) // nothing for a type without a table
			}
		}
	}
	add(nil, reflect.TypeFor[Config]())
	return all
}
