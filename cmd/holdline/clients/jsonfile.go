package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/tailscale/hujson"

	"holdline/daemon/config"
)

// jsonFile is a file of JSON, with comments or without.
type jsonFile struct {
	file *config.Text
	c    *client
}

func parseJSON(name string, data []byte, c *client) (document, error) {
	x, err := config.ParseText(name, data)
	if at, ok := errors.AsType[*config.Error](err); ok && at.Line > 0 {
		return nil, fmt.Errorf("%s:%d:%d: is no valid JSON", name, at.Line, at.Column) // its words show what stands there
	}
	if err != nil {
		return nil, err
	}
	return &jsonFile{x, c}, nil
}

func (f *jsonFile) entries() []entry {
	out := f.list([]string{f.c.key}, "")
	if f.c.name != "claude" {
		return out
	}
	for _, dir := range f.file.Keys("projects") {
		if filepath.IsAbs(dir) {
			out = append(out, f.list([]string{"projects", dir, f.c.key}, dir)...)
		}
	}
	return out
}

// list are the entries of the object at a path.
func (f *jsonFile) list(at []string, project string) []entry {
	var out []entry
	keys := f.file.Keys(at...)
	for i, name := range keys {
		e := entry{path: append(slices.Clone(at), name), project: project}
		if slices.Contains(keys[:i], name) {
			continue
		}
		if slices.Contains(keys[i+1:], name) {
			e.odd = "the name stands there twice"
		}
		text, _ := f.file.Value(e.path...)
		if v, ok := decode(text).(map[string]any); ok {
			e.keys = v
		} else {
			e.odd = "it is no object"
		}
		out = append(out, e)
	}
	return out
}

// decode is the value of a JSON text; nil if it is none.
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

func (f *jsonFile) fields(path []string) []field {
	var out []field
	for _, key := range f.file.Keys(path...) {
		text, _ := f.file.Value(append(slices.Clone(path), key)...)
		out = append(out, field{key, decode(text)})
	}
	return out
}

func (f *jsonFile) start(path []string, fields []field) error {
	keys := f.file.Keys(path...)
	if keys == nil {
		return f.file.Set(object(fields), path...)
	}
	for _, key := range keys {
		stays := slices.ContainsFunc(fields, func(x field) bool { return x.key == key })
		if !stays && slices.Contains(describing, key) {
			f.file.Remove(append(slices.Clone(path), key)...)
		}
	}
	for _, x := range fields {
		at := append(slices.Clone(path), x.key)
		if old, ok := f.file.Value(at...); ok && reflect.DeepEqual(decode(old), x.value) {
			continue
		}
		if err := f.file.Set(encode(x.value), at...); err != nil {
			return err
		}
	}
	return nil
}

// object is the JSON object of fields.
func object(fields []field) []byte {
	b := []byte{'{'}
	for i, x := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, encode(x.key)...), ':'), encode(x.value)...)
	}
	return append(b, '}')
}

func (f *jsonFile) text(path []string) (string, bool) {
	b, ok := f.file.Value(path...)
	return string(b), ok
}

func (f *jsonFile) put(path []string, text string) error { return f.file.Put([]byte(text), path...) }

func (f *jsonFile) remove(path []string) { f.file.Remove(path...) }

func (f *jsonFile) same(path []string, text string) bool {
	now, ok := f.file.Value(path...)
	return ok && reflect.DeepEqual(decode(now), decode([]byte(text)))
}

func (f *jsonFile) bytes() []byte { return f.file.Bytes() }
