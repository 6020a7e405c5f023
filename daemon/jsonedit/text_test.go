package jsonedit

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func parsedText(t *testing.T, text string) *Text {
	t.Helper()
	x, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestText checks that edits keep all other text of a file as it is spelled.
func TestText(t *testing.T) {
	set := func(value string, path ...string) func(*Text) error {
		return func(x *Text) error { return x.Set([]byte(value), path...) }
	}
	remove := func(path ...string) func(*Text) error {
		return func(x *Text) error {
			if !x.Remove(path...) {
				return errors.New("not there")
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		before, after string
		change        func(*Text) error
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
			func(x *Text) error { return x.Put([]byte(`{/* c */ "b": 1,}`), "a") },
		},
		"verbatim and new": {
			`{}`, "{\n  \"a\": [1, /* c */ 2]\n}", func(x *Text) error { return x.Put([]byte(`[1, /* c */ 2]`), "a") },
		},
		"not there":         {`{"a": 1}`, "", remove("b")},
		"no object":         {`{"a": 1}`, "", set("2", "a", "b")},
		"value is no JSON":  {`{"a": 1}`, "", set("{", "a")},
		"text is no JSON":   {`{"a": 1}`, "", func(x *Text) error { return x.Put([]byte("{"), "a") }},
		"nowhere":           {`{"a": 1}`, "", set("1")},
		"mixed line ends":   {"{\r\n  \"a\": 1\n}", "{\r\n  \"a\": 1,\n  \"b\": 2\n}", set("2", "b")},
		"space at the end":  {"{\"a\": 1}  \n\n", "{\"a\": 2}  \n\n", set("2", "a")},
		"a key with a dot":  {`{"a.b": {"c": 1}}`, `{"a.b": {"c": 2}}`, set("2", "a.b", "c")},
		"empty object kept": {"{\n  \"a\": {\n    \"b\": 1\n  }\n}", "{\n  \"a\": {}\n}", remove("a", "b")},
	} {
		x := parsedText(t, tt.before)
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

func TestTextReads(t *testing.T) {
	x := parsedText(t, "{\r\n \"a\": {\"b\": 1, \"c\": [ /* x */\r\n 2 ], \"b\": 3}}")
	if got := x.Keys("a"); !slices.Equal(got, []string{"b", "c", "b"}) {
		t.Errorf("Keys = %q", got)
	}
	if got := x.Keys("a", "c"); got != nil {
		t.Errorf("Keys of an array = %q", got)
	}
	if got, ok := x.Value("a", "c"); string(got) != "[ /* x */\n 2 ]" || !ok {
		t.Errorf("Value = %q, %v", got, ok)
	}
	if _, ok := x.Value("a", "d"); ok {
		t.Error("Value made one up")
	}
	for _, bad := range []string{"{", "[]", "1", strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)} {
		if _, err := Parse("f", []byte(bad)); err == nil {
			t.Errorf("Parse takes %.20q", bad)
		}
	}
}
