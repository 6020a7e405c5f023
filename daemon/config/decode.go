package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"holdline/daemon/config/foreign"
	"holdline/daemon/jsonedit"
	"holdline/daemon/plural"
	"holdline/daemon/redact"
	"holdline/daemon/spelling"
)

// maxDepth bounds how deep values may nest, maxErrors how many mistakes one reading reports.
const (
	maxDepth  = 32
	maxErrors = 20
)

// byteOrderMark begins the files of some editors.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Error is a mistake in the file, with its place.
type Error = jsonedit.Error

// Parse reads the bytes of a file; name stands for it in errors. Empty input,
// or only comments, is an empty file. All mistakes are reported, as joined [*Error] values.
func Parse(name string, data []byte) (Config, error) {
	return parse(&decoder{file: name, data: data, at: map[string]int{}})
}

// ParseForUse is [Parse] for those who use the file. A mistake in the entry of one server costs that
// server alone: the configuration has it, with what is wrong (see [Settings.Unusable]), and switched off.
// All other mistakes are errors.
func ParseForUse(name string, data []byte) (Config, error) {
	return parse(&decoder{file: name, data: data, at: map[string]int{}, wrongIn: map[string][]*Error{}})
}

// CheckEdit returns what is wrong with a file, whose bytes are after, that an edit has made from before.
// Servers that were left out before may stay so, or the others could not be edited.
func CheckEdit(name string, before, after []byte) error {
	_, err := Parse(name, after)
	if err == nil {
		return nil
	}
	was, errBefore := ParseForUse(name, before)
	now, errAfter := ParseForUse(name, after)
	if errBefore != nil || errAfter != nil {
		return err
	}
	for server, s := range now.Servers {
		if s.wrong != "" && was.Servers[server].wrong == "" {
			return err
		}
	}
	return nil
}

// parse reads the bytes of the decoder's file.
func parse(d *decoder) (Config, error) {
	d.data = bytes.TrimPrefix(d.data, byteOrderMark)
	name, data, c := d.file, d.data, Default()
	switch {
	case len(data) > MaxFile:
		return Config{}, &Error{File: name, Message: fmt.Sprintf("has more than %d bytes", MaxFile)}
	case !utf8.Valid(data):
		d.fail(invalidAt(data), "is not valid UTF-8")
		return Config{}, d.err()
	case jsonedit.SaysNothing(data):
		return c, nil
	}
	if at := jsonedit.TooDeep(data, maxDepth); at >= 0 {
		d.fail(at, "values nest more than %d deep", maxDepth)
		return Config{}, d.err()
	}
	root, err := hujson.Parse(jsonedit.EndLine(data))
	if err != nil {
		return Config{}, jsonedit.SyntaxError(name, err)
	}
	d.value(&root, reflect.ValueOf(&c).Elem(), "")
	if len(d.errs) == 0 {
		d.check(&c)
	}
	if err := d.err(); err != nil {
		return Config{}, err
	}
	d.leaveOut(&c)
	return c, nil
}

// leaveOut marks the servers whose entries have mistakes. They stay in the configuration, so that views
// and sockets may name them, and so that nothing that belongs to them, such as a login, is taken for left over.
func (d *decoder) leaveOut(c *Config) {
	for name, errs := range d.wrongIn {
		s := c.Servers[name]
		s.Enabled, s.wrong = new(bool), joined(errs).Error()
		c.Servers[name] = s
	}
}

// decoder fills a [Config] from a syntax tree. It records mistakes instead of returning them.
type decoder struct {
	file string
	data []byte
	errs []*Error
	at   map[string]int // offset of each value by its path, for check
	rows []func()       // checks of the values by their rows of the table

	server  *string             // whose entry is read or checked; nil elsewhere
	wrongIn map[string][]*Error // mistakes in the entries of servers; nil if these are as all others
}

// in calls f, whose mistakes are those of the entry of a server; nil stands for none.
func (d *decoder) in(server *string, f func()) {
	outer := d.server
	d.server = server
	f()
	d.server = outer
}

// err joins the mistakes in the order of the file.
func (d *decoder) err() error { return joined(d.errs) }

// joined returns mistakes as one error, in the order of the file.
func joined(all []*Error) error {
	slices.SortStableFunc(all, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(all))
	for i, e := range all {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// fail records a mistake at an offset of the file. Beyond maxErrors it does nothing.
func (d *decoder) fail(offset int, format string, args ...any) {
	list := d.errs
	if d.server != nil && d.wrongIn != nil {
		list = d.wrongIn[*d.server]
	}
	if len(list) >= maxErrors {
		return
	}
	before := d.data[:min(offset, len(d.data))]
	line, start := 1, 0
	for i, c := range before {
		if c == '\n' {
			line, start = line+1, i+1
		}
	}
	list = append(list, &Error{
		File: d.file, Line: line, Column: utf8.RuneCount(before[start:]) + 1,
		Message: fmt.Sprintf(format, args...),
	})
	if d.server != nil && d.wrongIn != nil {
		d.wrongIn[*d.server] = list
		return
	}
	d.errs = list
}

// value decodes v into the settable dst. path is the keys that led here; the offset of
// v is recorded under it, for the errors of later checks. Mistakes are recorded, and
// decoding goes on with the next value, so that one reading reports them all.
func (d *decoder) value(v *hujson.Value, dst reflect.Value, path string) {
	d.at[path] = v.StartOffset
	switch p := dst.Addr().Interface().(type) {
	case *time.Duration:
		if s, ok := d.text(v, path, `a duration such as "30s"`); ok {
			n, err := time.ParseDuration(s)
			if err != nil || n < 0 {
				d.fail(v.StartOffset, `%s: wants a duration such as "30s" or "15m"`, path)
			}
			*p = n
		}
		return
	case *plural.Size:
		if s, ok := d.text(v, path, `a size such as "512MiB"`); ok {
			var err error
			if *p, err = plural.ParseSize(s); err != nil {
				d.fail(v.StartOffset, "%s: %v", path, err)
			}
		}
		return
	case *slog.Level:
		if s, ok := d.text(v, path, "a level"); ok {
			if p.UnmarshalText([]byte(s)) != nil || s != strings.ToLower(p.String()) {
				d.fail(v.StartOffset, "%s: wants one of debug, info, warn, error", path)
			}
		}
		return
	case *Notify:
		if k := v.Value.Kind(); k == 't' || k == 'f' {
			if k == 't' {
				*p = slices.Clone(notifyKinds)
			}
			return
		}
	case *Variable:
		if v.Value.Kind() == '{' {
			p.Command.Argv = []string{} // so it is none without its key, too
			d.value(v, reflect.ValueOf(&p.Command).Elem(), path)
		} else if s, ok := d.text(v, path, `a string, or {"command": [...]}`); ok {
			p.Text = redact.Secret(s)
		}
		return
	case *OAuth:
		if v.Value.Kind() == 'f' { // as other clients say that nobody logs in: with an Authorization header nobody does
			return
		}
	case *Contracts:
		if v.Value.Kind() == '"' {
			s, _ := d.text(v, path, "")
			*p = Contracts{"*": s}
			return
		}
	case *Network:
		if s, ok := v.Value.(hujson.Literal); ok && s.Kind() == '"' && s.String() == "none" {
			*p = Network{}
			return
		}
		if v.Value.Kind() != '[' {
			d.fail(v.StartOffset, `%s: wants "none", or a list of TCP ports`, path)
			return
		}
	}
	switch dst.Kind() {
	case reflect.Struct:
		d.object(v, path, func(m *hujson.ObjectMember, key, inner string) {
			if i := field(dst.Type(), key); i >= 0 {
				d.value(&m.Value, dst.Field(i), inner)
				server := d.server
				d.rows = append(d.rows, func() {
					d.in(server, func() { d.checkRow(rowOf(dst.Type(), key), dst.Field(i), inner) })
				})
				return
			}
			hint, tolerated := "", false
			if dst.Type() == reflect.TypeFor[Server]() {
				hint, tolerated = foreign.Key(key, &m.Value, field(hosting, key) >= 0)
			} else if dst.Type() == reflect.TypeFor[Config]() {
				hint = foreign.TopKey(key)
			}
			switch {
			case tolerated:
				return
			case hint != "":
				d.fail(m.Name.StartOffset, "%s: holdline has no such key: %s", clipName(inner), hint)
				return
			}
			if near := spelling.Nearest(key, keys(dst.Type())); near != "" {
				hint = " (did you mean " + near + "?)"
			}
			d.fail(m.Name.StartOffset, "unknown key %q%s", clipName(inner), hint)
		})
	case reflect.Map:
		dst.Set(reflect.MakeMap(dst.Type()))
		d.object(v, path, func(m *hujson.ObjectMember, key, inner string) {
			elem := reflect.New(dst.Type().Elem()).Elem()
			d.at[inner+"\x00"] = m.Name.StartOffset // the name itself
			server := d.server
			if elem.Type() == reflect.TypeFor[Server]() {
				server = &key
			}
			d.in(server, func() { d.value(&m.Value, elem, inner) })
			dst.SetMapIndex(reflect.ValueOf(key), elem)
		})
	case reflect.Slice:
		array, ok := v.Value.(*hujson.Array)
		if !ok {
			d.fail(v.StartOffset, "%s: wants an array, not %s", path, kind(v))
			return
		}
		dst.Set(reflect.MakeSlice(dst.Type(), len(array.Elements), len(array.Elements)))
		for i := range array.Elements {
			d.value(&array.Elements[i], dst.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
	case reflect.Pointer:
		dst.Set(reflect.New(dst.Type().Elem()))
		d.value(v, dst.Elem(), path)
	case reflect.String:
		if v.Value.Kind() == '[' && strings.HasPrefix(path, "mcpServers.") && strings.HasSuffix(path, ".command") {
			d.fail(v.StartOffset, "%s: wants a string: write its first word, and the others into args", path)
			return
		}
		if s, ok := d.text(v, path, "a string"); ok {
			dst.SetString(s)
		}
	case reflect.Bool:
		if k := v.Value.Kind(); k != 't' && k != 'f' {
			d.fail(v.StartOffset, "%s: wants true or false, not %s", path, kind(v))
			return
		}
		dst.SetBool(v.Value.Kind() == 't')
	case reflect.Int:
		if lit, ok := d.number(v, path, "a whole number"); ok {
			n, err := strconv.Atoi(lit)
			if err != nil {
				d.fail(v.StartOffset, "%s: wants a whole number, not %s", path, clipName(lit))
			}
			dst.SetInt(int64(n))
		}
	case reflect.Float64:
		if lit, ok := d.number(v, path, "a number"); ok {
			n, err := strconv.ParseFloat(lit, 64)
			if err != nil {
				d.fail(v.StartOffset, "%s: is out of range", path)
			}
			dst.SetFloat(n)
		}
	default: // a field of Config that this function does not know
		d.fail(v.StartOffset, "%s: cannot be read", path)
	}
}

// object calls f for each member of an object, with its key and its path. It refuses
// keys that are there twice, since JSON does not say which one counts.
func (d *decoder) object(v *hujson.Value, path string, f func(m *hujson.ObjectMember, key, inner string)) {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		what := path
		if what == "" {
			what = "the file"
		}
		d.fail(v.StartOffset, "%s: wants an object, not %s", what, kind(v))
		return
	}
	seen := make(map[string]bool, len(obj.Members))
	for i := range obj.Members {
		m := &obj.Members[i]
		name, ok := m.Name.Value.(hujson.Literal)
		if !ok {
			continue // the parser lets only strings be names
		}
		key := name.String()
		inner := key
		if path != "" {
			inner = path + "." + key
		}
		if seen[key] {
			d.fail(m.Name.StartOffset, "duplicate key %q", clipName(inner))
			continue
		}
		seen[key] = true
		f(m, key, inner)
	}
}

// text returns the string v; if v is none it records that `want` is wanted.
func (d *decoder) text(v *hujson.Value, path, want string) (string, bool) {
	lit, ok := v.Value.(hujson.Literal)
	if !ok || lit.Kind() != '"' {
		d.fail(v.StartOffset, "%s: wants %s, not %s", path, want, kind(v))
		return "", false
	}
	s := lit.String()
	if strings.Contains(s, "\x00") { // which no argument, path or variable of a process can have
		d.fail(v.StartOffset, "%s: has a NUL character", clipName(path))
	}
	return s, true
}

// number returns the number v as it is spelled; if v is none it records that `want` is wanted.
func (d *decoder) number(v *hujson.Value, path, want string) (string, bool) {
	lit, ok := v.Value.(hujson.Literal)
	if !ok || lit.Kind() != '0' {
		d.fail(v.StartOffset, "%s: wants %s, not %s", path, want, kind(v))
		return "", false
	}
	return string(lit), true
}

// kind names what a value is, without showing it: it may be a secret.
func kind(v *hujson.Value) string {
	switch v.Value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// field returns the index of the struct's field with that key, or -1.
func field(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("json"); name == key && name != "" {
			return i
		}
	}
	return -1
}

// keys returns the keys of the struct's fields.
func keys(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		if name := f.Tag.Get("json"); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// clipName bounds a name of the file that is repeated in an error.
func clipName(s string) string {
	const limit = 80
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit]) + "..."
}

// invalidAt returns the offset of the first byte that is not UTF-8.
func invalidAt(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// sorted returns the keys of a map in a fixed order, so that errors have one, too.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
