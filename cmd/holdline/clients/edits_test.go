package clients

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzEdits edits whatever a file holds: what is read is written again byte for
// byte, an entry that is replaced and put back says what it said, one that is
// added and removed leaves all else as it was, and every step is a valid file.
func FuzzEdits(f *testing.F) {
	for _, seed := range []string{
		`{"mcpServers": {"a": {"command": "x"}}}`, "{\r\n\t// c\r\n\t\"mcpServers\": {\"a\": {\"url\": 1, \"k\": [1,],}, /* d */},}\r\n",
		"\xef\xbb\xbf{\"projects\": {\"/p\": {\"mcpServers\": {\"a\": {}, \"b\": {}}}}, \"n\": 1e99}", " \n", "//{", `{"mcpServers": {"a": {"args": []}, "a": {}}}`,
	} {
		f.Add(seed, false)
	}
	for _, seed := range []string{
		"[mcp_servers.a]\ncommand = \"x\"\n", "x = 1 # y\r\n[mcp_servers.'a b']\r\nurl = '''\r\nz'''\r\n\r\n[mcp_servers.'a b'.http_headers]\r\nA = 1 # b",
		"[mcp_servers.b]\nargs = [\n  'x', # y\n]\n# c\nenv.A = 1\n[t]\n[mcp_servers.b.env.C]\nz = 2\n[[n]]\n[mcp_servers.c]", "mcp_servers = {a = {}}", "\xef\xbb\xbf[mcp_servers]\na.b = 1",
	} {
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, toml bool) {
		c := &table()[0]
		if toml {
			c = &table()[1]
		}
		parse := func(data []byte) document {
			doc, err := c.parse("f", data)
			if err != nil {
				t.Fatalf("%v:\n%s", err, data)
			}
			return doc
		}
		doc, err := c.parse("f", []byte(text))
		if err != nil {
			t.Skip(err)
		}
		// A file without a value, be it of comments alone, is read as one with an empty object.
		was := said(doc)
		blank := !toml && reflect.DeepEqual(was, map[string]any{})
		if got := doc.bytes(); string(got) != text && !blank {
			t.Fatalf("written again:\n%q\nwas\n%q", got, text)
		}
		fields, err := c.starting(command, "--server", "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.entries() {
			if e.odd != "" {
				continue
			}
			old, _ := doc.text(e.path)
			if err := doc.start(e.path, fields); err != nil {
				t.Fatal(err)
			}
			doc = parse(doc.bytes())
			for _, now := range doc.entries() {
				if name, ok := ours(now.keys); reflect.DeepEqual(now.path, e.path) && (!ok || name != "x") {
					t.Fatalf("%q does not start holdline:\n%s", e.path, doc.bytes())
				}
			}
			if err := doc.put(e.path, old); err != nil {
				t.Fatal(err)
			}
			doc = parse(doc.bytes())
			if got := said(doc); !reflect.DeepEqual(got, was) {
				t.Fatalf("%q put back:\n%s\nwas\n%s", e.path, doc.bytes(), text)
			}
		}
		path := []string{c.key, "new.one"}
		if _, there := doc.text(path); there || doc.start(path, fields) != nil {
			return
		}
		doc = parse(doc.bytes())
		doc.remove(path)
		if got := said(parse(doc.bytes())); !reflect.DeepEqual(without(got, c.key), without(was, c.key)) {
			t.Fatalf("added and removed:\n%s\nwas\n%s", doc.bytes(), text)
		}
	})
}

// said is what a file says, whatever its spelling.
func said(doc document) any {
	if f, ok := doc.(*tomlFile); ok {
		return plain(f.all)
	}
	return decode(bytes.TrimPrefix(doc.bytes(), []byte("\xef\xbb\xbf")))
}

// without is what a file says, but for an empty object under a key.
func without(v any, key string) any {
	m, ok := v.(map[string]any)
	if inner, is := m[key].(map[string]any); ok && is && len(inner) == 0 {
		delete(m, key)
	}
	return v
}
