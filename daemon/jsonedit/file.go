// Package jsonedit changes JSON files, with comments and trailing commas or without, as
// they are spelled: what is not changed stays as it is, byte for byte.
//
// The parser (hujson) keeps white space and comments and knows the offset of each value.
// An edit replaces the bytes between two offsets and parses the text again, so nothing is
// encoded anew but what is added. What is added is laid out as the file is: by its
// indentation, on one line if the file is one line, and with its line ends.
package jsonedit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// File is a JSON file, with comments and trailing commas or without, that is
// changed as it is spelled: what is not changed stays as it is, byte for byte.
// It is for configurations of other programs, of which only a part is known.
//
// Each change replaces some bytes and parses the text again. A path is a list of keys.
type File struct {
	bom     []byte // byte order mark, or nil
	data    []byte // what follows it
	root    hujson.Value
	lineEnd string // of all its lines
	unit    string // of indentation
	flat    bool   // it is one line, and stays so
}

// maxDepth bounds how deep the values of a [File] may nest.
const maxDepth = 1000

// byteOrderMark begins the files of some editors. The parser does not accept it.
var byteOrderMark = []byte("\xef\xbb\xbf")

// ErrNoObject is returned by the methods of [File] that find something else
// where an object is wanted.
var ErrNoObject = errors.New("wants an object")

// Parse reads a file's bytes. Nothing at all, or only space and comments, is
// an empty object. The error of what is no JSON is an [*Error] with its place, in which
// name stands for the file.
func Parse(name string, data []byte) (*File, error) {
	f := &File{lineEnd: "\n", unit: "  "}
	if text, ok := bytes.CutPrefix(data, byteOrderMark); ok {
		f.bom, data = byteOrderMark, text
	}
	if n := bytes.Count(data, []byte("\n")); n > 0 && n == bytes.Count(data, []byte("\r\n")) {
		f.lineEnd = "\r\n"
	}
	if TooDeep(data, maxDepth) >= 0 {
		return nil, &Error{File: name, Message: fmt.Sprintf("values nest more than %d deep", maxDepth)}
	}
	if SaysNothing(data) {
		if data = bytes.TrimRight(data, space); len(data) > 0 {
			data = append(bytes.Clone(data), f.lineEnd...)
		}
		data = append(bytes.Clone(data), "{}"+f.lineEnd...)
	}
	if err := f.replace(0, 0, string(data)); err != nil {
		return nil, SyntaxError(name, err)
	}
	o, ok := f.root.Value.(*hujson.Object)
	if !ok {
		return nil, &Error{File: name, Message: "the file " + ErrNoObject.Error()}
	}
	if len(o.Members) > 0 {
		f.flat = !bytes.Contains(bytes.TrimSpace(data), []byte("\n"))
		if indent, ok := lineIndent(o.Members[0].Name.BeforeExtra); ok { // else there is a comment in it
			f.unit = cmp.Or(indent, f.unit)
		}
	}
	return f, nil
}

// replace replaces the bytes between two offsets and parses the result. All offsets
// that were read before are void then. After an error the file is unusable.
func (f *File) replace(from, to int, text string) (err error) {
	f.data = slices.Concat(f.data[:from], []byte(text), f.data[to:])
	f.root, err = hujson.Parse(EndLine(f.data))
	return err
}

// Bytes returns the file as it is now.
func (f *File) Bytes() []byte { return slices.Concat(f.bom, f.data) }

// escape writes a key as an element of a JSON pointer (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// find returns the value at a path, or nil.
func (f *File) find(path []string) *hujson.Value {
	var pointer strings.Builder
	for _, key := range path {
		pointer.WriteString("/" + escape.Replace(key))
	}
	return f.root.Find(pointer.String())
}

// Keys returns the keys of the object at a path, in its order; one that stands twice
// is there twice. They are nil if no object is there.
func (f *File) Keys(path ...string) []string {
	v := f.find(path)
	if v == nil {
		return nil
	}
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	keys := make([]string, 0, len(o.Members))
	for i := range o.Members {
		keys = append(keys, keyOf(&o.Members[i]))
	}
	return keys
}

// keyOf returns the key of a member, which the parser lets only be a string.
func keyOf(m *hujson.ObjectMember) string {
	name, _ := m.Name.Value.(hujson.Literal)
	return name.String()
}

// Text returns the text of the value at a path, as the file has it, and whether there is
// one.
func (f *File) Text(path ...string) (text string, ok bool) {
	v := f.find(path)
	if v == nil {
		return "", false
	}
	return string(f.data[v.StartOffset:v.EndOffset]), true
}

// Set makes the value at a path that of a JSON text, which is laid out as the
// file is. Objects on the way are created.
func (f *File) Set(text string, path ...string) error {
	plain, err := hujson.Standardize([]byte(text))
	if err != nil {
		return SyntaxError("the value", err)
	}
	return f.putText(string(plain), true, path)
}

// Put sets the value at a path as [File.Set] does, but keeps the text of the value as
// it is, with its comments and layout.
func (f *File) Put(text string, path ...string) error {
	if _, err := hujson.Parse([]byte(text)); err != nil {
		return SyntaxError("the value", err)
	}
	return f.putText(text, false, path)
}

// putText makes the value at a path that of a JSON text.
func (f *File) putText(text string, layOut bool, path []string) error {
	p, err := f.locate(path)
	if err != nil {
		return err
	}
	if len(p.missing) > 0 {
		if err := f.Set("{}", path[:len(path)-len(p.missing)]...); err != nil {
			return err
		}
		return f.putText(text, layOut, path)
	}
	if layOut {
		text, err = f.layOut(text, p)
	}
	if err != nil {
		return err
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", f.lineEnd)
	if p.at >= 0 {
		old := &p.members[p.at].Value
		return f.replace(old.StartOffset, old.EndOffset, text)
	}
	return f.insert(string(hujson.String(p.key))+": "+text, p)
}

// place is where a path leads: to a member of an object, which need not exist.
type place struct {
	*object

	key     string
	at      int      // index of the member, or -1
	missing []string // keys that follow key if it does not exist
}

// object is an object of the file.
type object struct {
	members []hujson.ObjectMember
	start   int    // offset behind its last member, or behind its opening brace
	end     int    // offset of its closing brace
	indent  string // of the line with that
	inner   string // of the lines of its members
}

// locate returns the place to which a path leads. It goes down as far as there are
// objects: if a key on the way does not exist, the place is that of this key, with the
// rest of the path as missing. The error wraps [ErrNoObject] if another value is in
// the way.
func (f *File) locate(path []string) (*place, error) {
	if len(path) == 0 {
		return nil, ErrNoObject
	}
	v, indent := &f.root, ""
	for n, key := range path {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s %w", path[n-1], ErrNoObject)
		}
		p := &place{key: key, object: &object{
			members: o.Members, end: v.EndOffset - 1, indent: indent, inner: indent + f.unit,
		}}
		p.start = p.end - len(o.AfterExtra)
		for _, m := range o.Members {
			if own, ok := lineIndent(m.Name.BeforeExtra); ok {
				p.inner = own
			}
		}
		p.at = slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool { return keyOf(&m) == key })
		if p.at < 0 || n == len(path)-1 {
			p.missing = path[n+1:]
			return p, nil
		}
		v, indent = &o.Members[p.at].Value, p.inner
	}
	return nil, ErrNoObject
}

// lineIndent returns the space behind the last line break of extra, and whether there is
// a line break with nothing but space behind it.
func lineIndent(extra []byte) (string, bool) {
	at := bytes.LastIndexByte(extra, '\n')
	indent := string(extra[at+1:])
	return indent, at >= 0 && strings.Trim(indent, " \t") == ""
}

// hasLines reports whether an object is, or is to be, spread over several lines.
func (f *File) hasLines(o *object) bool {
	if len(o.members) == 0 && !f.flat || bytes.IndexByte(f.data[o.start:o.end], '\n') >= 0 {
		return true
	}
	return slices.ContainsFunc(o.members, func(m hujson.ObjectMember) bool {
		return bytes.IndexByte(m.Name.BeforeExtra, '\n') >= 0
	})
}

// layOut returns JSON without comments as the value of a member, laid out as the file is.
func (f *File) layOut(text string, p *place) (string, error) {
	var packed, out bytes.Buffer
	if err := json.Compact(&packed, []byte(text)); err != nil {
		return "", err
	}
	if f.flat || !f.hasLines(p.object) {
		err := json.Indent(&out, packed.Bytes(), "", "")
		// No string of JSON has a line break in it.
		return strings.ReplaceAll(strings.ReplaceAll(out.String(), ",\n", ", "), "\n", ""), err
	}
	err := json.Indent(&out, packed.Bytes(), p.inner, f.unit)
	return out.String(), err
}

// insert inserts the text of a member at the end of the object of p, on a line of its
// own if the others have one. Comments behind the last member stay behind that. A
// comma at the end of the object stays one.
func (f *File) insert(member string, p *place) error {
	comma := ""
	if n := len(p.members); n > 0 && p.members[n-1].Value.AfterExtra == nil {
		comma = ","
	} else if n > 0 {
		member += ","
	}
	if !f.hasLines(p.object) {
		return f.replace(p.start, p.start, comma+" "+member)
	}
	tail := f.data[p.start:p.end]
	closing, ok := lineIndent(tail)
	if !ok {
		closing = p.indent
	}
	tail = bytes.TrimRight(tail, space)
	return f.replace(p.start, p.end, comma+string(tail)+f.lineEnd+p.inner+member+f.lineEnd+closing)
}

// Remove removes the member at a path, with the comments on its own lines and those
// above it, and with the comma that is needed no longer. It reports whether there is
// one. An object without members becomes {} if nothing but space is left in it.
func (f *File) Remove(path ...string) bool {
	p, err := f.locate(path)
	if err != nil || p.at < 0 || len(p.missing) > 0 {
		return false
	}
	gone, isLast := p.members[p.at], p.at == len(p.members)-1
	before := gone.Name.BeforeExtra
	name, start, next, end := gone.Name.StartOffset, gone.Name.StartOffset-len(before), p.start, p.end
	if !isLast {
		following := p.members[p.at+1].Name
		end = following.StartOffset
		next = end - len(following.BeforeExtra)
	}
	own := firstLine(f.data[next:end])
	from, to := name, next+own-len(bytes.TrimLeft(f.data[next:next+own], " \t"))
	switch first := firstLine(before); {
	case next+own < end: // the next one stands on a line of its own
		from, to = start+first, next+own
	case isLast && first == len(before): // all stands on one line
		from, to = start, next
	}
	kept := string(f.data[start:from])
	if isLast && p.at > 0 && gone.Value.AfterExtra == nil {
		start-- // the comma behind the one before it
	}
	if len(p.members) == 1 && len(bytes.TrimSpace([]byte(kept))) == 0 && len(bytes.TrimSpace(f.data[to:end])) == 0 {
		kept, to = "", end
	}
	return f.replace(start, to, kept) == nil
}
