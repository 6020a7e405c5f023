package jsonedit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// tree is the file as it is spelled, for changes that leave the rest alone.
type tree struct {
	root hujson.Value
	unit string // of indentation
	flat bool   // what is added stays on its line
}

// object is one of a tree's.
type object struct {
	*hujson.Object

	indent string // of the line with its closing brace
	unit   string
	flat   bool
}

// emptyFile is what nothing becomes before it is changed.
const emptyFile = "{}\n"

// SaysNothing reports whether data is nothing but space and comments: a file all of
// which was commented out is an empty one.
func SaysNothing(data []byte) bool {
	for {
		data = bytes.TrimSpace(data)
		switch {
		case len(data) == 0:
			return true
		case bytes.HasPrefix(data, []byte("//")):
			_, data, _ = bytes.Cut(data, lineFeed)
		case bytes.HasPrefix(data, []byte("/*")):
			_, rest, ended := bytes.Cut(data[2:], []byte("*/"))
			if !ended {
				return false
			}
			data = rest
		default:
			return false
		}
	}
}

// parseTree reads a file. One that says nothing becomes an empty object, with its
// comments before it.
func parseTree(data []byte) (*tree, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		data = []byte(emptyFile)
	case SaysNothing(data):
		data = slices.Concat(bytes.TrimSuffix(data, lineFeed), lineFeed, []byte(emptyFile))
	}
	root, err := hujson.Parse(data)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, unit: "  "}
	if o, ok := root.Value.(*hujson.Object); ok && len(o.Members) > 0 {
		if indent, ok := lineIndent(o.Members[0].Name.BeforeExtra); ok && indent != "" {
			t.unit = indent
		}
	}
	return t, nil
}

// inner is the object under a key, made if need be.
func (o object) inner(key string) (object, error) {
	i := o.find(key)
	if i < 0 {
		if err := o.addMember(key, []byte("{}")); err != nil {
			return object{}, err
		}
		i = len(o.Members) - 1
	}
	return o.member(i), nil
}

// find is the index of a member, or -1.
func (o object) find(key string) int {
	for i := range o.Members {
		if name, ok := o.Members[i].Name.Value.(hujson.Literal); ok && name.String() == key {
			return i
		}
	}
	return -1
}

// member is the object that is the value of member i. Of another value it is
// an empty one, changes to which are lost; files that have one are not valid.
func (o object) member(i int) object {
	inner, ok := o.Members[i].Value.Value.(*hujson.Object)
	if !ok {
		inner = &hujson.Object{}
	}
	return object{inner, o.memberIndent(), o.unit, o.flat}
}

// memberIndent is the indentation of the members' lines.
func (o object) memberIndent() string {
	for _, m := range slices.Backward(o.Members) {
		if indent, ok := lineIndent(m.Name.BeforeExtra); ok {
			return indent
		}
	}
	return o.indent + o.unit
}

// lineIndent is the space at the end of extra behind its last line break;
// false if there is no line break, or more than space behind it.
func lineIndent(extra hujson.Extra) (string, bool) {
	at := bytes.LastIndexByte(extra, '\n')
	if at < 0 {
		return "", false
	}
	indent := string(extra[at+1:])
	return indent, strings.Trim(indent, " \t") == ""
}

// value is JSON text, with comments or not, as a value of a member of o.
func (o object) value(text []byte) (hujson.ValueTrimmed, error) {
	plain, err := hujson.Standardize(bytes.Clone(text))
	if err != nil {
		return nil, err
	}
	var packed, out bytes.Buffer
	if err := json.Compact(&packed, plain); err != nil {
		return nil, err
	}
	if o.flat || len(o.Members) > 0 && !o.lines() {
		if err := json.Indent(&out, packed.Bytes(), "", ""); err != nil {
			return nil, err
		}
		// No string of JSON has a line break in it.
		v, err := hujson.Parse(bytes.ReplaceAll(bytes.ReplaceAll(out.Bytes(), []byte(",\n"), []byte(", ")), []byte("\n"), nil))
		return v.Value, err
	}
	if err := json.Indent(&out, packed.Bytes(), o.memberIndent(), o.unit); err != nil {
		return nil, err
	}
	v, err := hujson.Parse(out.Bytes())
	return v.Value, err
}

// set replaces the value of member i.
func (o object) set(i int, text []byte) error {
	v, err := o.value(text)
	if err != nil {
		return err
	}
	o.Members[i].Value.Value = v
	return nil
}

// addMember appends a member. Comments behind the last one stay behind that.
func (o object) addMember(key string, text []byte) error {
	v, err := o.value(text)
	if err != nil {
		return err
	}
	o.append(key, v)
	return nil
}

// append adds a member at the end, on a line of its own if the others have one.
func (o object) append(key string, v hujson.ValueTrimmed) {
	m := hujson.ObjectMember{
		Name:  hujson.Value{Value: hujson.String(key)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: v},
	}
	tail := o.AfterExtra
	n := len(o.Members)
	if n > 0 {
		o.setComma(&m.Value, o.Members[n-1].Value.AfterExtra != nil)
	}
	if (n > 0 || o.flat) && !o.lines() {
		m.Name.BeforeExtra = hujson.Extra(" ")
	} else {
		m.Name.BeforeExtra = append(bytes.TrimRight(bytes.Clone(tail), " \t\r\n"), "\n"+o.memberIndent()...)
		o.AfterExtra = hujson.Extra("\n" + o.closing(tail))
	}
	o.Members = append(o.Members, m)
}

// lines reports whether the object is spread over several lines.
func (o object) lines() bool {
	for i := range o.Members {
		if bytes.IndexByte(o.Members[i].Name.BeforeExtra, '\n') >= 0 {
			return true
		}
	}
	return bytes.IndexByte(o.AfterExtra, '\n') >= 0
}

// closing is the indentation of the closing brace, before which tail stands.
func (o object) closing(tail hujson.Extra) string {
	if indent, ok := lineIndent(tail); ok {
		return indent
	}
	return o.indent
}

// remove takes member i out, and with it the comments on its own lines and
// those above it.
func (o object) remove(i int) {
	gone, last := o.Members[i], i == len(o.Members)-1
	next := &o.AfterExtra
	if !last {
		next = &o.Members[i+1].Name.BeforeExtra
	}
	before, _ := firstLine(gone.Name.BeforeExtra)
	own, after := firstLine(*next)
	switch {
	case len(after) > 0: // the next one stands on a line of its own
		*next = append(bytes.Clone(before), after...)
	case len(before) < len(gone.Name.BeforeExtra): // the one that goes did
		*next = append(bytes.Clone(gone.Name.BeforeExtra), bytes.TrimLeft(own, " \t")...)
	case !last:
		*next = append(bytes.Clone(gone.Name.BeforeExtra), bytes.TrimLeft(own, " \t")...)
	}
	if last && i > 0 {
		o.setComma(&o.Members[i-1].Value, gone.Value.AfterExtra != nil)
	}
	o.Members = append(o.Members[:i], o.Members[i+1:]...)
	if len(o.Members) == 0 && len(bytes.TrimSpace(o.AfterExtra)) == 0 {
		o.AfterExtra = nil
	}
}

// setComma puts a comma behind v, which is the last value, or takes it away.
func (o object) setComma(v *hujson.Value, comma bool) {
	switch {
	case comma && v.AfterExtra == nil:
		v.AfterExtra = hujson.Extra{}
	case !comma && v.AfterExtra != nil:
		o.AfterExtra = append(bytes.Clone(v.AfterExtra), o.AfterExtra...)
		v.AfterExtra = nil
	}
}

// firstLine splits extra before its first line break that is not in a block
// comment.
func firstLine(extra hujson.Extra) (line, rest hujson.Extra) {
	for i := 0; i < len(extra); i++ {
		switch {
		case extra[i] == '\n':
			return extra[:i:i], extra[i:]
		case bytes.HasPrefix(extra[i:], []byte("//")):
			end := bytes.IndexByte(extra[i:], '\n')
			if end < 0 {
				return extra, nil
			}
			return extra[: i+end : i+end], extra[i+end:]
		case bytes.HasPrefix(extra[i:], []byte("/*")):
			end := bytes.Index(extra[i+2:], []byte("*/"))
			if end < 0 {
				return extra, nil
			}
			i += 2 + end + 1
		}
	}
	return extra, nil
}
