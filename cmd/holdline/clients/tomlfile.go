package clients

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlFile is the [Document] of a TOML file. It is edited by whole lines: those of an
// expression, which is the header of a table or a key with its value. Nothing is
// encoded anew, as libraries that write TOML would do, so comments and layout stay.
type tomlFile struct {
	data []byte
	key  string         // of the table of servers
	root map[string]any // what the file says
	list []expression   // in the order of the file
}

// expression is the header of a table, or a key with its value.
type expression struct {
	start, end int      // of its lines in the file, line ends and comments on them included
	header     bool     // it is the header of a table
	array      bool     // of an array of tables
	table      int      // number of keys at the beginning of path that the header of its table names
	path       []string // of keys, from the root
}

// byteOrderMark begins the files of some editors. The parser does not accept it.
var byteOrderMark = []byte("\xef\xbb\xbf")

// parseTOML reads a file. Its errors name the place and nothing else, since the
// parser's messages quote the file.
func parseTOML(data []byte, key string) (Document, error) {
	f := &tomlFile{data: data, key: key}
	if err := f.parse(); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := at.Position()
			return nil, fmt.Errorf("line %d, column %d: it is no valid TOML", line, column)
		}
		return nil, errors.New("it is no valid TOML")
	}
	return f, nil
}

// parse sets the other fields from the bytes. Call it after each edit: the offsets of
// expressions are those of the present bytes. The decoded values come from the
// library's decoder, the places of expressions from its parser, which does not decode.
func (f *tomlFile) parse() error {
	f.root, f.list = nil, nil
	text := bytes.TrimPrefix(f.data, byteOrderMark)
	if err := toml.Unmarshal(text, &f.root); err != nil {
		return err
	}
	skip := len(f.data) - len(text)
	var p unstable.Parser
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		e, x := p.Expression(), expression{}
		from, to := -1, 0
		for keys := e.Key(); keys.Next(); {
			raw := keys.Node().Raw
			if from < 0 {
				from = int(raw.Offset)
			}
			to = int(raw.Offset + raw.Length)
			x.path = append(x.path, string(keys.Node().Data))
		}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = x.path
			x.header, x.array, x.table = true, e.Kind == unstable.ArrayTable, len(x.path)
		default:
			to = int(e.Raw.Offset + e.Raw.Length)
			x.table, x.path = len(table), slices.Concat(table, x.path)
		}
		x.start, x.end = f.wholeLines(from+skip, to+skip)
		f.list = append(f.list, x)
	}
	return p.Error()
}

// wholeLines returns the bounds of the lines that hold the bytes between two offsets.
// The last line ends with its line break, if it has one.
func (f *tomlFile) wholeLines(from, to int) (start, end int) {
	start = bytes.LastIndexByte(f.data[:from], '\n') + 1
	if i := bytes.IndexByte(f.data[to:], '\n'); i >= 0 {
		return start, to + i + 1
	}
	return start, len(f.data)
}

// isUnder reports whether an expression is part of what stands at a path.
func (x *expression) isUnder(path []string) bool {
	return len(x.path) >= len(path) && slices.Equal(x.path[:len(path)], path)
}

// Home returns the path of the table of servers.
func (f *tomlFile) Home() []string { return []string{f.key} }

// Entries returns the tables of servers in the order of the file. A server that is
// written in another way, such as in an inline table, cannot be edited by lines.
func (f *tomlFile) Entries() []Entry {
	servers, _ := f.root[f.key].(map[string]any)
	names := f.keysUnder([]string{f.key})
	var inline []string
	for name := range servers {
		if !slices.Contains(names, name) {
			inline = append(inline, name)
		}
	}
	slices.Sort(inline)
	var out []Entry
	for _, name := range append(names, inline...) {
		e := Entry{Path: []string{f.key, name}}
		keys, ok := servers[name].(map[string]any)
		members, _ := jsonValue(keys).(map[string]any)
		e.setMembers(members)
		e.Order = f.keysUnder(e.Path)
		if !ok || !f.isTable(e.Path) {
			e.Odd = "it is not a table of its own, [" + f.key + "." + tomlKey(name) + "]"
		}
		out = append(out, e)
	}
	return out
}

// keysUnder returns the keys of the table at a path, in the order of the file.
func (f *tomlFile) keysUnder(path []string) []string {
	var keys []string
	n := len(path)
	for _, x := range f.list {
		if x.isUnder(path) && len(x.path) > n && !slices.Contains(keys, x.path[n]) {
			keys = append(keys, x.path[n])
		}
	}
	return keys
}

// isTable reports whether a table at a path has a header of its own. Then every part
// of it is an expression under that path, or under a header below it.
func (f *tomlFile) isTable(path []string) bool {
	has := false
	for _, x := range f.list {
		if !x.isUnder(path) {
			continue
		}
		if x.array {
			return false
		}
		has = has || x.header && len(x.path) == len(path)
	}
	return has
}

// jsonValue returns a value of TOML as encoding/json would decode it, so that entries
// of both kinds of files can be read in one way. Numbers that JSON does not have
// become strings.
func jsonValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			out[key] = jsonValue(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = jsonValue(v[i])
		}
		return out
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) { // which JSON does not have
			return fmt.Sprint(v)
		}
	}
	return decode(Encode(v))
}

// tomlText returns a string, a bool, a list of strings or an object of strings as TOML, which
// writes them as JSON does, but for objects and the character DEL.
func tomlText(v any) string {
	if object, ok := v.(map[string]string); ok {
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(object)) {
			parts = append(parts, tomlKey(key)+" = "+tomlText(object[key]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	if list, ok := v.([]any); ok {
		var parts []string
		for _, one := range list {
			parts = append(parts, tomlText(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return strings.ReplaceAll(string(Encode(v)), "\x7f", `\u007f`)
}

// bareKey matches keys that need no quotes.
var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// tomlKey returns a key as TOML, in quotes only if it needs them.
func tomlKey(key string) string {
	if bareKey.MatchString(key) {
		return key
	}
	return tomlText(key)
}

// lineEnd returns how the file ends its lines.
func (f *tomlFile) lineEnd() string {
	if n := bytes.Count(f.data, []byte("\n")); n > 0 && n == bytes.Count(f.data, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// Start writes the fields at the place of the first line that it removes, or else
// below the table's header.
func (f *tomlFile) Start(path []string, fields []Field) error {
	var b strings.Builder
	for _, x := range fields {
		b.WriteString(tomlKey(x.Key) + " = " + tomlText(x.Value) + f.lineEnd())
	}
	if _, ok := f.Text(path...); !ok {
		return f.appendLines("[" + tomlKey(path[0]) + "." + tomlKey(path[1]) + "]" + f.lineEnd() + b.String())
	}
	drop := func(x *expression) bool {
		if !x.isUnder(path) || len(x.path) == len(path) {
			return false
		}
		key := x.path[len(path)]
		return Describes(key) || slices.ContainsFunc(fields, func(o Field) bool { return o.Key == key })
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
	return f.splice(drop, at, b.String())
}

// splice removes the expressions that drop selects and inserts lines at the offset at,
// and then parses the file again. Without lines it inserts nothing. Of a header that
// is removed, the blank line before it goes as well; comments on lines of their own
// stay. The error is that of the parser: then the edit has made the file invalid.
func (f *tomlFile) splice(drop func(*expression) bool, at int, lines string) error {
	out := make([]byte, 0, len(f.data)+len(lines))
	from := 0
	insert := func(until int) {
		if at < from || at > until || lines == "" {
			return
		}
		out = append(out, f.data[from:at]...)
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, f.lineEnd()...)
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
		if end := f.lineEnd() + f.lineEnd(); x.header && bytes.HasSuffix(out, []byte(end)) {
			out = out[:len(out)-len(f.lineEnd())] // the blank line before the header
		}
		from = x.end
	}
	insert(len(f.data))
	f.data = append(out, f.data[from:]...)
	return f.parse()
}

// appendLines adds lines at the end of the file, below a blank one.
func (f *tomlFile) appendLines(lines string) error {
	out := bytes.Clone(f.data)
	if len(out) > 0 {
		if out[len(out)-1] != '\n' {
			out = append(out, f.lineEnd()...)
		}
		out = append(out, f.lineEnd()...)
	}
	f.data = append(out, lines...)
	return f.parse()
}

// Text returns the lines of the table and of the tables in it. Tables of other servers may
// stand in between; blank lines that separated the parts are kept.
func (f *tomlFile) Text(path ...string) (string, bool) {
	var b strings.Builder
	for _, x := range f.list {
		if !x.isUnder(path) {
			continue
		}
		if x.header && b.Len() > 0 && bytes.HasSuffix(f.data[:x.start], []byte(f.lineEnd()+f.lineEnd())) {
			b.WriteString(f.lineEnd())
		}
		b.Write(f.data[x.start:x.end])
	}
	return b.String(), b.Len() > 0
}

// Put replaces the lines of the table where its first one stands, or appends the text.
func (f *tomlFile) Put(text string, path ...string) error {
	i := slices.IndexFunc(f.list, func(x expression) bool { return x.isUnder(path) })
	if i < 0 {
		return f.appendLines(text)
	}
	if !strings.HasSuffix(text, "\n") && f.list[i].end < len(f.data) {
		text += f.lineEnd()
	}
	return f.splice(func(x *expression) bool { return x.isUnder(path) }, f.list[i].start, text)
}

// Remove removes the lines of the table and of the tables in it.
func (f *tomlFile) Remove(path ...string) bool {
	_, ok := f.Text(path...)
	// A file without some of its tables is as valid as it was.
	return ok && f.splice(func(x *expression) bool { return x.isUnder(path) }, -1, "") == nil
}

// Same compares values: comments, layout and the order of keys do not count.
func (f *tomlFile) Same(path []string, text string) bool {
	other := &tomlFile{data: []byte(text), key: f.key}
	if other.parse() != nil {
		return false
	}
	a, _ := f.root[f.key].(map[string]any)
	b, _ := other.root[f.key].(map[string]any)
	return a[path[1]] != nil && reflect.DeepEqual(jsonValue(a[path[1]]), jsonValue(b[path[1]]))
}

// RemoveEmptyParents does nothing: a table of servers needs no header.
func (f *tomlFile) RemoveEmptyParents([]string, Document) {}

// Bytes returns the file.
func (f *tomlFile) Bytes() []byte { return f.data }
