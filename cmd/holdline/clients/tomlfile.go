package clients

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlFile is a file of TOML. It is edited by whole lines: those of an
// expression, which is a table's header or a key with its value.
type tomlFile struct {
	data []byte
	key  string // of the table of servers
	all  map[string]any
	list []expression
}

// expression is one of a file.
type expression struct {
	start, end int      // of its lines, line ends and comments on them included
	header     bool     // of a table
	odd        bool     // of an array of tables
	table      int      // how many keys of path its table's header names
	path       []string // of keys, from the root
}

// parseTOML reads a file. Errors name the place alone: the parser's own words
// may show what stands there.
func parseTOML(name string, data []byte, key string) (document, error) {
	f := &tomlFile{data: data, key: key}
	if err := f.read(); err != nil {
		line := 0
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ = at.Position()
		}
		return nil, fmt.Errorf("%s:%d: is no valid TOML", name, line)
	}
	return f, nil
}

// read makes of the bytes what else the file holds.
func (f *tomlFile) read() error {
	f.all, f.list = nil, nil
	if err := toml.Unmarshal(bytes.TrimPrefix(f.data, []byte("\xef\xbb\xbf")), &f.all); err != nil {
		return err
	}
	skip := len(f.data) - len(bytes.TrimPrefix(f.data, []byte("\xef\xbb\xbf")))
	var p unstable.Parser
	p.Reset(f.data[skip:])
	var table []string
	for p.NextExpression() {
		e, x := p.Expression(), expression{}
		at, until := -1, 0
		for keys := e.Key(); keys.Next(); {
			raw := keys.Node().Raw
			if at < 0 {
				at = int(raw.Offset)
			}
			until = int(raw.Offset + raw.Length)
			x.path = append(x.path, string(keys.Node().Data))
		}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = x.path
			x.header, x.odd, x.table = true, e.Kind == unstable.ArrayTable, len(x.path)
		default:
			until = int(e.Raw.Offset + e.Raw.Length)
			x.table, x.path = len(table), slices.Concat(table, x.path)
		}
		x.start, x.end = f.lines(at+skip, until+skip)
		f.list = append(f.list, x)
	}
	return p.Error()
}

// lines are the bounds of the lines that hold what stands from at to until.
func (f *tomlFile) lines(at, until int) (start, end int) {
	start = bytes.LastIndexByte(f.data[:at], '\n') + 1
	if i := bytes.IndexByte(f.data[until:], '\n'); i >= 0 {
		return start, until + i + 1
	}
	return start, len(f.data)
}

// under tells whether an expression belongs to what stands at a path.
func (x *expression) under(path []string) bool {
	return len(x.path) >= len(path) && slices.Equal(x.path[:len(path)], path)
}

func (f *tomlFile) entries() []entry {
	servers, _ := f.all[f.key].(map[string]any)
	var out []entry
	for _, name := range f.names() {
		e := entry{path: []string{f.key, name}}
		keys, ok := servers[name].(map[string]any)
		e.keys, _ = plain(keys).(map[string]any)
		if !ok || !f.simple(e.path) {
			e.odd = "it is not a table of its own, [" + f.key + "." + bare(name) + "]"
		}
		out = append(out, e)
	}
	return out
}

// names are those of the servers, in the order of the file.
func (f *tomlFile) names() []string {
	servers, _ := f.all[f.key].(map[string]any)
	var names []string
	for _, x := range f.list {
		if len(x.path) > 1 && x.path[0] == f.key && !slices.Contains(names, x.path[1]) {
			names = append(names, x.path[1])
		}
	}
	var rest []string // of an inline table
	for name := range servers {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(names, rest...)
}

// simple tells whether what stands at a path is a table with a header of its
// own: nothing of it can stand elsewhere then.
func (f *tomlFile) simple(path []string) bool {
	has := false
	for _, x := range f.list {
		if !x.under(path) {
			continue
		}
		if x.odd {
			return false
		}
		has = has || x.header && len(x.path) == len(path)
	}
	return has
}

// plain is a value of TOML as one of JSON, as far as there are such.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			out[key] = plain(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	case string, bool, nil:
		return v
	}
	return decode(encode(v))
}

func (f *tomlFile) fields(path []string) []field {
	var out []field
	var keys any = f.all
	for _, key := range path {
		m, _ := keys.(map[string]any)
		keys = m[key]
	}
	m, _ := keys.(map[string]any)
	for _, x := range f.list {
		if n := len(path); x.under(path) && len(x.path) > n && !slices.ContainsFunc(out, func(o field) bool { return o.key == x.path[n] }) {
			out = append(out, field{x.path[n], plain(m[x.path[n]])})
		}
	}
	return out
}

// assignments are the lines that give fields their values.
func (f *tomlFile) assignments(fields []field) string {
	var b strings.Builder
	for _, x := range fields {
		b.WriteString(bare(x.key) + " = " + tomlValue(x.value) + f.newline())
	}
	return b.String()
}

// tomlValue is a string, a bool or a list of strings as TOML, which spells them
// as JSON does, but for the character DEL.
func tomlValue(v any) string {
	if list, ok := v.([]any); ok {
		var parts []string
		for _, one := range list {
			parts = append(parts, tomlValue(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return strings.ReplaceAll(string(encode(v)), "\x7f", `\u007f`)
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// bare is a key, quoted if need be.
func bare(key string) string {
	if bareKey.MatchString(key) {
		return key
	}
	return tomlValue(key)
}

// newline is how the file's lines end.
func (f *tomlFile) newline() string {
	if n := bytes.Count(f.data, []byte("\n")); n > 0 && n == bytes.Count(f.data, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

func (f *tomlFile) start(path []string, fields []field) error {
	lines := f.assignments(fields)
	if _, ok := f.text(path); !ok {
		return f.append("[" + bare(path[0]) + "." + bare(path[1]) + "]" + f.newline() + lines)
	}
	drop := func(x *expression) bool {
		return x.under(path) && len(x.path) > len(path) &&
			(slices.Contains(describing, x.path[len(path)]) || slices.ContainsFunc(fields, func(o field) bool { return o.key == x.path[len(path)] }))
	}
	at := -1
	for _, x := range f.list {
		if x.header && slices.Equal(x.path, path) && at < 0 {
			at = x.end
		}
		if drop(&x) && x.table == len(path) && !x.header {
			at = x.start
			break
		}
	}
	return f.splice(drop, at, lines)
}

// splice takes expressions out and puts lines in at an offset.
func (f *tomlFile) splice(drop func(*expression) bool, at int, lines string) error {
	out := make([]byte, 0, len(f.data)+len(lines))
	from := 0
	insert := func(until int) {
		if at < from || at > until || lines == "" {
			return
		}
		out = append(out, f.data[from:at]...)
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, f.newline()...)
		}
		out = append(out, lines...)
		from, lines = at, ""
	}
	for i := range f.list {
		x := &f.list[i]
		if !drop(x) {
			continue
		}
		insert(x.start)
		out = append(out, f.data[from:x.start]...)
		if x.header {
			out = f.unspaced(out)
		}
		from = x.end
	}
	insert(len(f.data))
	f.data = append(out, f.data[from:]...)
	return f.read()
}

// unspaced is text without the blank line at its end, which stood before a
// header that goes.
func (f *tomlFile) unspaced(text []byte) []byte {
	if end := f.newline() + f.newline(); bytes.HasSuffix(text, []byte(end)) {
		return text[:len(text)-len(f.newline())]
	}
	return text
}

// append puts lines at the end, behind a blank one.
func (f *tomlFile) append(lines string) error {
	var out []byte
	out = append(out, f.data...)
	if len(out) > 0 {
		if out[len(out)-1] != '\n' {
			out = append(out, f.newline()...)
		}
		out = append(out, f.newline()...)
	}
	f.data = append(out, lines...)
	return f.read()
}

func (f *tomlFile) text(path []string) (string, bool) {
	var b strings.Builder
	for _, x := range f.list {
		if !x.under(path) {
			continue
		}
		if x.header && b.Len() > 0 && bytes.HasSuffix(f.data[:x.start], []byte(f.newline()+f.newline())) {
			b.WriteString(f.newline())
		}
		b.Write(f.data[x.start:x.end])
	}
	return b.String(), b.Len() > 0
}

func (f *tomlFile) put(path []string, text string) error {
	if _, ok := f.text(path); !ok {
		return f.append(text)
	}
	i := slices.IndexFunc(f.list, func(x expression) bool { return x.under(path) })
	if !strings.HasSuffix(text, "\n") && f.list[i].end < len(f.data) {
		text += f.newline()
	}
	at := f.list[i].start
	return f.splice(func(x *expression) bool { return x.under(path) }, at, text)
}

func (f *tomlFile) remove(path []string) {
	// What is left is what was valid before without some of its tables.
	_ = f.splice(func(x *expression) bool { return x.under(path) }, -1, "")
}

func (f *tomlFile) same(path []string, text string) bool {
	other, err := parseTOML("", []byte(text), f.key)
	if err != nil {
		return false
	}
	o, _ := other.(*tomlFile)
	a, _ := f.all[f.key].(map[string]any)
	b, _ := o.all[f.key].(map[string]any)
	return a[path[1]] != nil && reflect.DeepEqual(a[path[1]], b[path[1]])
}

func (f *tomlFile) bytes() []byte { return f.data }
