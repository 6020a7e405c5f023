package clients

import (
	"bytes"
	"cmp"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"testing"
)

// TestSnippets checks that the entry that import writes for holdline's own tools equals the
// client's snippet, which packagers copy, and that each snippet belongs to a client.
func TestSnippets(t *testing.T) {
	dir := os.DirFS("../../../contrib/clients")
	names, err := fs.Glob(dir, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table {
		snippet := map[string]string{
			"claude": "claude-code.json", "codex": "codex.toml", "gemini": "gemini-cli.json",
		}[c.Name]
		snippet = cmp.Or(snippet, c.Name+".json")
		text, err := fs.ReadFile(dir, snippet)
		if err != nil {
			t.Fatal(err)
		}
		want, err := c.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Parse(nil)
		if err != nil {
			t.Fatal(err)
		}
		at := []string{c.Key, OwnEntry}
		if err := got.Start(at, c.OwnFields("holdline")); err != nil {
			t.Fatalf("%s: no entry, %v", c.Name, err)
		}
		if w, _ := want.Text(at...); !got.Same(at, w) || w == "" {
			g, _ := got.Text(at...)
			t.Errorf("%s: import writes\n%s\nthe snippet is\n%s", c.Name, g, w)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == snippet })
	}
	if len(names) > 0 {
		t.Errorf("snippets %q are no client's", names)
	}
}

// FuzzEdits edits arbitrary files. An unedited file is written byte for byte, an entry that
// is replaced and restored has its old meaning, one that is added and removed leaves all
// else unchanged, and the file is valid after each step.
func FuzzEdits(f *testing.F) {
	for _, seed := range []string{
		`{"mcpServers": {"a": {"command": "x"}}}`,
		"{\r\n\t// c\r\n\t\"mcpServers\": {\"a\": {\"url\": 1, \"k\": [1,],}, /* d */},}\r\n",
		"\xef\xbb\xbf{\"projects\": {\"/p\": {\"mcpServers\": {\"a\": {}, \"b\": {}}}}, \"n\": 1e99}", " \n", "//{",
		`{"mcpServers": {"a": {"args": []}, "a": {}}}`,
	} {
		f.Add(seed, false)
	}
	for _, seed := range []string{
		"[mcp_servers.a]\ncommand = \"x\"\n",
		"x = 1 # y\r\n[mcp_servers.'a b']\r\nurl = '''\r\nz'''\r\n\r\n[mcp_servers.'a b'.http_headers]\r\nA = 1 # b",
		"[mcp_servers.b]\nargs = [\n  'x', # y\n]\n# c\nenv.A = 1\n" +
			"[t]\n[mcp_servers.b.env.C]\nz = 2\n" +
			"[[n]]\n[mcp_servers.c]",
		"[mcp_servers.a]\nx = nan\ny = 1979-05-27", "mcp_servers = {a = {}}", "\xef\xbb\xbf[mcp_servers]\na.b = 1",
	} {
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, toml bool) {
		c := &table[0]
		if toml {
			c = &table[1]
		}
		parse := func(data []byte) Document {
			doc, err := c.Parse(data)
			if err != nil {
				t.Fatalf("%v:\n%s", err, data)
			}
			return doc
		}
		doc, err := c.Parse([]byte(text))
		if err != nil {
			t.Skip(err)
		}
		// A file without a value, for example with comments alone, is read as an empty
		// object.
		was := said(doc)
		blank := !toml && reflect.DeepEqual(was, map[string]any{})
		if got := doc.Bytes(); string(got) != text && !blank {
			t.Fatalf("written again:\n%q\nwas\n%q", got, text)
		}
		fields := c.StartingFields("/opt/bin/holdline", "--server", "x")
		for _, e := range doc.Entries() {
			if e.Odd != "" {
				continue
			}
			old, _ := doc.Text(e.Path...)
			if err := doc.Start(e.Path, fields); err != nil {
				t.Fatal(err)
			}
			doc = parse(doc.Bytes())
			for _, now := range doc.Entries() {
				if name, ok := now.StartsHoldline(); reflect.DeepEqual(now.Path, e.Path) && (!ok || name != "x") {
					t.Fatalf("%q does not start holdline:\n%s", e.Path, doc.Bytes())
				}
			}
			if err := doc.Put(old, e.Path...); err != nil {
				t.Fatal(err)
			}
			doc = parse(doc.Bytes())
			if got := said(doc); !reflect.DeepEqual(got, was) {
				t.Fatalf("%q put back:\n%s\nwas\n%s", e.Path, doc.Bytes(), text)
			}
		}
		path := []string{c.Key, "new.one"}
		if _, there := doc.Text(path...); there || doc.Start(path, fields) != nil {
			return
		}
		doc = parse(doc.Bytes())
		doc.Remove(path...)
		if got := said(parse(doc.Bytes())); !reflect.DeepEqual(without(got, c.Key), without(was, c.Key)) {
			t.Fatalf("added and removed:\n%s\nwas\n%s", doc.Bytes(), text)
		}
	})
}

// said returns the meaning of a file, independent of its spelling.
func said(doc Document) any {
	if f, ok := doc.(*tomlFile); ok {
		return jsonValue(f.root)
	}
	return decode(bytes.TrimPrefix(doc.Bytes(), []byte("\xef\xbb\xbf")))
}

// without returns the meaning of a file without an empty object under key.
func without(v any, key string) any {
	m, ok := v.(map[string]any)
	if inner, is := m[key].(map[string]any); ok && is && len(inner) == 0 {
		delete(m, key)
	}
	return v
}

// TestParseErrors checks that the error about a file that cannot be read names the place and
// neither the path, which callers name, nor any text of the file.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ client, text, want string }{
		{"cursor", "{\n\"a\": secret}", "line 2, column 6: it is no valid JSON"},
		{"cursor", "[]", "the file wants an object"},
		{"codex", "a = 1\nb = [secret\n", "line 2, column 6: it is no valid TOML"},
	} {
		_, err := ByName(c.client).Parse([]byte(c.text))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %q: %v, want %q", c.client, c.text, err, c.want)
		}
	}
}

// TestStartsHoldline checks which entries count as holdline's own, and for which server.
func TestStartsHoldline(t *testing.T) {
	for _, c := range []struct{ entry, want string }{
		{`{"command": "/usr/bin/holdline", "args": ["mcp-stdio"]}`, "all"},
		{`{"command": ["holdline-1.2", "mcp-stdio", "--server=a"]}`, "a"},
		{`{"command": "holdline", "args": ["--socket", "/x", "mcp-stdio", "--server", "a"]}`, "a"},
		{`{"command": "env", "args": ["A=1", "/opt/my programs/holdline", "mcp-stdio", "--server", "a"]}`, "a"},
		{`{"command": "sh", "args": ["-c", "exec '/opt/holdline' mcp-stdio --server 'a'"]}`, "a"},
		{`{"command": "/usr/libexec/holdline-stdio", "args": ["--server", "a"]}`, "a"},
		{`{"command": "holdline", "args": ["status"]}`, "no"},
		{`{"command": "npx", "args": ["files", "/home/me/holdline"]}`, "no"},
		{`{"url": "https://holdline/mcp-stdio"}`, "no"},
	} {
		doc, err := ByName("cursor").Parse([]byte(`{"mcpServers": {"x": ` + c.entry + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := doc.Entries()[0].StartsHoldline()
		if got = cmp.Or(got, "all"); !ok {
			got = "no"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.entry, got, c.want)
		}
	}
}
