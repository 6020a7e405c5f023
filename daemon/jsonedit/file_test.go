package jsonedit

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func parsed(t *testing.T, text string) *File {
	t.Helper()
	x, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestEdits checks that edits keep all other text of a file as it is spelled.
func TestEdits(t *testing.T) {
	set := func(value string, path ...string) func(*File) error {
		return func(x *File) error { return x.Set(value, path...) }
	}
	remove := func(path ...string) func(*File) error {
		return func(x *File) error {
			if !x.Remove(path...) {
				return errors.New("not there")
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		before, after string
		change        func(*File) error
	}{
		"nothing": {"", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n", set("1", "a", "b")},
		"lines": {
			"{\n\t\"a\": 1, // one\n}", "{\n\t\"a\": 1, // one\n\t\"b\": [\n\t\t2\n\t],\n}", set("[2]", "b"),
		},
		"one line":      {`{"a":1}`, `{"a":1, "b": [2, 3]}`, set("[2, 3]", "b")},
		"one line, new": {`{"a":{}}`, `{"a":{ "b": {"c": 1}}}`, set(`{"c": 1}`, "a", "b")},
		"inner line": {
			"{\n  \"a\": {\"b\": 1}\n}\n", "{\n  \"a\": {\"b\": 1, \"c\": [2]}\n}\n", set("[2]", "a", "c"),
		},
		"line ends":       {"{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\r\n  \"b\": 2\r\n}\r\n", set("2", "b")},
		"byte order mark": {"\xef\xbb\xbf{\"a\": 1}", "\xef\xbb\xbf{\"a\": 2}", set("2", "a")},
		"comments stay": {
			"{\n  // x\n  \"a\": /* y */ 1 // z\n}", "{\n  // x\n  \"a\": /* y */ 2 // z\n}", set("2", "a"),
		},
		"removed": {"{\n  \"a\": 1,\n  \"b\": 2\n}\n", "{\n  \"a\": 1\n}\n", remove("b")},
		"verbatim": {
			`{"a": 1}`,
			`{"a": {/* c */ "b": 1,}}`,
			func(x *File) error { return x.Put(`{/* c */ "b": 1,}`, "a") },
		},
		"verbatim and new": {
			`{}`, "{\n  \"a\": [1, /* c */ 2]\n}", func(x *File) error { return x.Put(`[1, /* c */ 2]`, "a") },
		},
		"verbatim, deeper": {
			`{}`, "{\n  \"a\": {\n    \"b\": [1, /* c */ 2]\n  }\n}",
			func(x *File) error { return x.Put(`[1, /* c */ 2]`, "a", "b") },
		},
		"not there":        {`{"a": 1}`, "", remove("b")},
		"no object":        {`{"a": 1}`, "", set("2", "a", "b")},
		"value is no JSON": {`{"a": 1}`, "", set("{", "a")},
		"text is no JSON":  {`{"a": 1}`, "", func(x *File) error { return x.Put("{", "a") }},
		"nowhere":          {`{"a": 1}`, "", set("1")},
		"mixed line ends":  {"{\r\n  \"a\": 1\n}", "{\r\n  \"a\": 1,\n  \"b\": 2\n}", set("2", "b")},
		"space at the end": {"{\"a\": 1}  \n\n", "{\"a\": 2}  \n\n", set("2", "a")},
		"a key with a dot": {`{"a.b": {"c": 1}}`, `{"a.b": {"c": 2}}`, set("2", "a.b", "c")},
		"a comment before the first key": {
			"{\n  /* c */ \"a\": {}\n}", "{\n  /* c */ \"a\": {},\n  \"b\": {\n    \"c\": 1\n  }\n}", set("1", "b", "c"),
		},
		"a comment of two lines before the first key": {
			"{\n  /* c\n  d */ \"a\": {}\n}", "{\n  /* c\n  d */ \"a\": {},\n  \"b\": 2\n}", set("2", "b"),
		},
		"empty object kept": {"{\n  \"a\": {\n    \"b\": 1\n  }\n}", "{\n  \"a\": {}\n}", remove("a", "b")},
	} {
		x := parsed(t, tt.before)
		err := tt.change(x)
		if tt.after == "" {
			if got := string(x.Bytes()); err == nil || got != tt.before {
				t.Errorf("%s: %v, the file is %q", name, err, got)
			}
			continue
		}
		if got := string(x.Bytes()); got != tt.after || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.after)
		}
	}
}

// TestReads checks which keys and texts of a file are returned, and that invalid files are
// refused.
func TestReads(t *testing.T) {
	x := parsed(t, "{\r\n \"a\": {\"b\": 1, \"c\": [ /* x */\r\n 2 ], \"b\": 3}}")
	if got := x.Keys("a"); !slices.Equal(got, []string{"b", "c", "b"}) {
		t.Errorf("Keys = %q", got)
	}
	if got := x.Keys("a", "c"); got != nil {
		t.Errorf("Keys of an array = %q", got)
	}
	if got, ok := x.Text("a", "c"); got != "[ /* x */\r\n 2 ]" || !ok {
		t.Errorf("Text = %q, %v", got, ok)
	}
	if _, ok := x.Text("a", "d"); ok {
		t.Error("Text made one up")
	}
	for _, bad := range []string{"{", "[]", "1", strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)} {
		if _, err := Parse("f", []byte(bad)); err == nil {
			t.Errorf("Parse takes %.20q", bad)
		}
	}
}
