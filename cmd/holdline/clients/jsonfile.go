package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"holdline/daemon/config"
	"holdline/daemon/jsonedit"
)

// jsonFile is the [Document] of a JSON file, with comments and trailing commas or
// without.
type jsonFile struct {
	*jsonedit.File

	c *Client
}

// parseJSON reads a file. Its errors name the place and nothing else: the messages of the
// parser quote the file.
func parseJSON(data []byte, c *Client) (Document, error) {
	x, err := jsonedit.Parse("", data)
	at, ok := errors.AsType[*config.Error](err)
	switch {
	case ok && at.Line > 0:
		return nil, fmt.Errorf("line %d, column %d: it is no valid JSON", at.Line, at.Column)
	case ok: // it is valid, and no object, or it nests too deep
		return nil, errors.New(at.Message)
	case err != nil:
		return nil, err
	case !utf8.Valid(data): // its texts would change in the journal and in holdline's file
		return nil, errors.New("it is not valid UTF-8")
	}
	keys := x.Keys()
	if i := slices.Index(keys, c.Key); slices.Contains(keys[i+1:], c.Key) { // of which its client uses the last
		return nil, errors.New(c.Key + " is there twice")
	}
	return &jsonFile{x, c}, nil
}

// isNewer reports whether the file has servers as newer versions of the client write them. An entry that only
// has the name of their object has a member that is none itself.
func (f *jsonFile) isNewer() bool {
	if f.c.Newer == "" {
		return false
	}
	text, _ := f.Text(f.c.Key, f.c.Newer)
	servers, ok := decode([]byte(text)).(map[string]any)
	for _, v := range servers {
		_, isEntry := v.(map[string]any)
		ok = ok && isEntry
	}
	return ok
}

// Home returns the path of the object of servers for all projects.
func (f *jsonFile) Home() []string {
	if f.isNewer() {
		return []string{f.c.Key, f.c.Newer}
	}
	return []string{f.c.Key}
}

// Entries returns the servers for all projects, then those of single projects, if the
// client has such in the same file. If it has servers in an older and in a newer form, those in
// the newer form come first: the client uses them rather than others of their names.
func (f *jsonFile) Entries() []Entry {
	out := f.entriesAt([]string{f.c.Key}, "")
	if f.isNewer() {
		newer := f.entriesAt(f.Home(), "")
		out = slices.DeleteFunc(out, func(e Entry) bool { return e.Name() == f.c.Newer })
		for i := range out {
			if slices.ContainsFunc(newer, func(e Entry) bool { return e.Name() == out[i].Name() }) {
				out[i].Odd = "its client uses the entry of the same name in " + f.c.Key + "." + f.c.Newer
			}
		}
		out = append(newer, out...)
	}
	if f.c.Nested == "" {
		return out
	}
	for _, dir := range f.Keys(f.c.Nested) {
		if filepath.IsAbs(dir) {
			out = append(out, f.entriesAt([]string{f.c.Nested, dir, f.c.Key}, dir)...)
		}
	}
	return out
}

// entriesAt returns the members of the object at a path as servers of project.
func (f *jsonFile) entriesAt(at []string, project string) []Entry {
	var out []Entry
	keys := f.Keys(at...)
	for i, name := range keys {
		if slices.Contains(keys[:i], name) {
			continue
		}
		e := Entry{Path: append(slices.Clone(at), name), Project: project}
		if slices.Contains(keys[i+1:], name) {
			e.Odd = "the name is there twice"
		}
		text, _ := f.Text(e.Path...)
		if v, ok := decode([]byte(text)).(map[string]any); ok {
			e.Order = f.Keys(e.Path...)
			e.setMembers(v)
			for n, key := range e.Order {
				if slices.Contains(e.Order[:n], key) {
					e.Odd = "its " + key + " is there twice"
				}
			}
		} else {
			e.Odd = "it is not an object"
		}
		out = append(out, e)
	}
	return out
}

// decode returns the value of a JSON text, with comments or without; nil if the text
// is not valid.
func decode(text []byte) any {
	plain, err := hujson.Standardize(bytes.Clone(text))
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// Start sets the members that differ and leaves the others at their places. Members
// that describe another server are removed. An entry that does not exist is added at
// the end of its object.
func (f *jsonFile) Start(path []string, fields []Field) error {
	keys := f.Keys(path...)
	if keys == nil {
		return f.Set(string(Object(fields)), path...)
	}
	for _, key := range keys {
		if Describes(key) && !slices.ContainsFunc(fields, func(x Field) bool { return x.Key == key }) {
			f.Remove(append(slices.Clone(path), key)...)
		}
	}
	for _, x := range fields {
		at := append(slices.Clone(path), x.Key)
		if old, ok := f.Text(at...); ok && sameJSON(old, string(Encode(x.Value))) {
			continue
		}
		if err := f.Set(string(Encode(x.Value)), at...); err != nil {
			return err
		}
	}
	return nil
}

// Object returns the JSON object of fields, in their order.
func Object(fields []Field) []byte {
	b := []byte{'{'}
	for i, x := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, Encode(x.Key)...), ':'), Encode(x.Value)...)
	}
	return append(b, '}')
}

// Same compares values: comments, white space and the order of keys do not count.
func (f *jsonFile) Same(path []string, text string) bool {
	now, ok := f.Text(path...)
	return ok && sameJSON(now, text)
}

// RemoveEmptyParents stops at the first object that has a member, or that before has.
func (f *jsonFile) RemoveEmptyParents(path []string, before Document) {
	for at := path[:len(path)-1]; len(at) > 0; at = at[:len(at)-1] {
		_, existed := before.Text(at...)
		if keys := f.Keys(at...); keys == nil || len(keys) > 0 || existed {
			return
		}
		f.Remove(at...)
	}
}
