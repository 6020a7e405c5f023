// Package jsonedit changes JSON files, with comments and trailing commas or without, as
// they are spelled: what is not changed stays as it is, byte for byte.
package jsonedit

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tailscale/hujson"
)

// Text is a JSON file, with comments and trailing commas or without, that is
// changed as it is spelled: what is not changed stays as it is, byte for byte.
// It is for configurations of other programs, of which only a part is known.
type Text struct {
	t    *tree
	bom  bool // it begins with a byte order mark
	crlf bool // all its lines end with \r\n
}

// maxTextDepth bounds how deep the values of a [Text] may nest.
const maxTextDepth = 1000

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	lineFeed      = []byte("\n")
	crlf          = []byte("\r\n")
)

// ErrNoObject is returned by the methods of [Text] that find something else
// where an object is wanted.
var ErrNoObject = errors.New("wants an object")

// Parse reads a file's bytes. Nothing at all, or only space and comments, is
// an empty object. The error of what is no JSON is an [*Error] with its place, in which
// name stands for the file.
func Parse(name string, data []byte) (*Text, error) {
	x := &Text{bom: bytes.HasPrefix(data, byteOrderMark)}
	data = bytes.TrimPrefix(data, byteOrderMark)
	if n := bytes.Count(data, lineFeed); n > 0 && n == bytes.Count(data, crlf) {
		x.crlf = true
		data = bytes.ReplaceAll(data, crlf, lineFeed)
	}
	if TooDeep(data, maxTextDepth) >= 0 {
		return nil, &Error{File: name, Message: fmt.Sprintf("values nest more than %d deep", maxTextDepth)}
	}
	t, err := parseTree(data)
	if err != nil {
		return nil, SyntaxError(name, err)
	}
	o, ok := t.root.Value.(*hujson.Object)
	if !ok {
		return nil, &Error{File: name, Message: "the file " + ErrNoObject.Error()}
	}
	t.flat = len(o.Members) > 0 && !bytes.Contains(bytes.TrimSpace(data), lineFeed)
	x.t = t
	return x, nil
}

// Bytes is the file as it is now.
func (x *Text) Bytes() []byte {
	out := x.t.root.Pack()
	if x.crlf {
		out = bytes.ReplaceAll(out, lineFeed, crlf)
	}
	if x.bom {
		out = append(bytes.Clone(byteOrderMark), out...)
	}
	return out
}

// Keys are those of the object at a path, in its order; one that stands twice
// is there twice. They are nil if no object is there.
func (x *Text) Keys(path ...string) []string {
	v := x.at(path)
	if v == nil {
		return nil
	}
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	keys := make([]string, 0, len(o.Members))
	for i := range o.Members {
		if name, ok := o.Members[i].Name.Value.(hujson.Literal); ok {
			keys = append(keys, name.String())
		}
	}
	return keys
}

// Value is the text of the value at a path, as it stands in the file but with
// plain line ends; false if there is none.
func (x *Text) Value(path ...string) ([]byte, bool) {
	v := x.at(path)
	if v == nil {
		return nil, false
	}
	return hujson.Value{Value: v.Value}.Pack(), true
}

// at is the value at a path; nil if there is none.
func (x *Text) at(path []string) *hujson.Value {
	v := &x.t.root
	for _, key := range path {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil
		}
		i := object{Object: o}.find(key)
		if i < 0 {
			return nil
		}
		v = &o.Members[i].Value
	}
	return v
}

// Set makes the value at a path that of a JSON text, which is laid out as the
// file is. Objects on the way are made.
func (x *Text) Set(value []byte, path ...string) error {
	return x.change(path, func(o object, key string, at int) error {
		if at < 0 {
			return o.addMember(key, value)
		}
		return o.set(at, value)
	})
}

// Put is [Text.Set] that leaves the value's text as it is, comments and all.
func (x *Text) Put(value []byte, path ...string) error {
	v, err := hujson.Parse(value)
	if err != nil {
		return SyntaxError("the value", err)
	}
	return x.change(path, func(o object, key string, at int) error {
		if at < 0 {
			o.append(key, v.Value)
		} else {
			o.Members[at].Value.Value = v.Value
		}
		return nil
	})
}

// change calls `change` with the object in which the last key of path is, that key and
// the index of its member, or -1. It makes the objects on the way.
func (x *Text) change(path []string, change func(o object, key string, at int) error) error {
	root, ok := x.t.root.Value.(*hujson.Object)
	if !ok || len(path) == 0 {
		return ErrNoObject
	}
	o, last := object{root, "", x.t.unit, x.t.flat}, len(path)-1
	for _, key := range path[:last] {
		if i := o.find(key); i >= 0 && o.Members[i].Value.Value.Kind() != '{' {
			return fmt.Errorf("%s %w", key, ErrNoObject)
		}
		var err error
		if o, err = o.inner(key); err != nil {
			return err
		}
	}
	return change(o, path[last], o.find(path[last]))
}

// Remove takes the member at a path out; false if there is none.
func (x *Text) Remove(path ...string) bool {
	if x.at(path) == nil || len(path) == 0 {
		return false
	}
	err := x.change(path, func(o object, _ string, at int) error {
		o.remove(at)
		return nil
	})
	return err == nil
}
