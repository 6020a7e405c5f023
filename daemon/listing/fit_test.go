package listing

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// nested returns a JSON object with this many levels.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + `{}` + strings.Repeat("}", levels-1)
}

// TestFitListing checks that an entry for which a client could refuse the whole list is
// left out or repaired, and that all others stay unchanged.
func TestFitListing(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    Kind
		listing string
		want    string // "" if the entry is left out
		note    string
	}{
		{
			"as it should be",
			Tools,
			`{"name":"t", "inputSchema": {"type":"object"},"x":1.0}`,
			`{"name":"t","inputSchema":{"type":"object"},"x":1.0}`,
			"",
		},
		{
			"as deep as allowed",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","a":` + nested(62) + `}}`,
			`{"name":"t","inputSchema":{"type":"object","a":` + nested(62) + `}}`,
			"",
		},
		{
			"too deep",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","a":` + nested(63) + `}}`,
			"",
			`"t" is left out: it nests deeper than 64 levels`,
		},
		{"9,000 levels", Tools, `{"name":"t","inputSchema":` + nested(9000) + `}`, "", "deeper than 64"},
		{"a deep resource", Resources, `{"uri":"u","name":"n","_meta":` + nested(64) + `}`, "", "deeper than 64"},
		{
			"brackets in a string",
			Tools,
			`{"name":"t","description":"` + strings.Repeat("{[\\\"", 99) + `","inputSchema":{"type":"object"}}`,
			`{"name":"t","description":"` + strings.Repeat("{[\\\"", 99) + `","inputSchema":{"type":"object"}}`,
			"",
		},
		{"no schema", Tools, `{"name":"t"}`, `{"inputSchema":{"type":"object"},"name":"t"}`, ""},
		{
			"null for what is absent",
			Tools,
			`{"name":"t","description":null,"inputSchema":null}`,
			`{"inputSchema":{"type":"object"},"name":"t"}`,
			"",
		},
		{
			"a schema without a type",
			Tools,
			`{"name":"t","inputSchema":{"properties":{}}}`,
			`{"name":"t","inputSchema":{"type":"object","properties":{}}}`,
			"",
		},
		{"a schema of another type", Tools, `{"name":"t","inputSchema":{"type":"string"}}`, "", "not of type object"},
		{
			"properties that may be anything, or nothing",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","properties":{"p":true,"q":false,"r":[]}}}`,
			`{"name":"t","inputSchema":{"type":"object","properties":{"p":{},"q":{"not":{}},"r":{}}}}`,
			"",
		},
		{
			"what is required among the properties",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","properties":{"p":{"type":"string"},"required":["p"]}}}`,
			`{"name":"t","inputSchema":{"type":"object","properties":{"p":{"type":"string"}}}}`,
			`has "required" in the properties of its inputSchema, which is no schema`,
		},
		{
			"empty lists in place of objects, as PHP writes them",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","properties":[ ],"required":[]},"annotations":[],"_meta":[]}`,
			`{"name":"t","inputSchema":{"type":"object","properties":{},"required":[]},"annotations":{},"_meta":{}}`,
			"",
		},
		{"an empty list in place of a schema", Tools, `{"name":"t","inputSchema":[]}`, `{"name":"t","inputSchema":{"type":"object"}}`, ""},
		{"any arguments", Tools, `{"name":"t","inputSchema":true}`, `{"name":"t","inputSchema":{"type":"object"}}`, ""},
		{
			"an object or nothing",
			Tools,
			`{"name":"t","inputSchema":{"type":["object","null"]}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"",
		},
		{
			"properties that are a list",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","properties":["p"]}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"properties in its inputSchema that cannot be read",
		},
		{
			"a description that is no text",
			Tools,
			`{"name":"t","description":7,"inputSchema":{"type":"object"}}`,
			"",
			"description is of the wrong type",
		},
		{
			"a required number",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","required":["a",7]}}`,
			`{"name":"t","inputSchema":{"type":"object","required":["a"]}}`,
			"no list of names",
		},
		{
			"required that is no list",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","required":"a"}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"no list of names",
		},
		{
			"an output of another type",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"string"}}`,
			`{"name":"t","inputSchema":{"type":"object"}}`,
			"outputSchema that is not of type object",
		},
		{
			"an output of objects",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`,
			`{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`,
			"",
		},
		{
			"a hint that is no boolean",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}`,
			"",
			"readOnlyHint in its annotations is of the wrong type",
		},
		{
			"null hints",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"annotations":{"title":null,"readOnlyHint":true,"x":null}}`,
			`{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":null}}`,
			"",
		},
		{
			"null for what a schema leaves out",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","properties":null,"required":null},"outputSchema":{"type":"object","properties":null}}`,
			`{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`,
			"",
		},
		{"a type that is null", Tools, `{"name":"t","inputSchema":{"type":null}}`, `{"name":"t","inputSchema":{"type":"object"}}`, ""},
		{
			"sizes of an icon as a draft had them",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"icons":[{"src":"a","sizes":"48x48"}]}`,
			`{"name":"t","inputSchema":{"type":"object"},"icons":[{"src":"a","sizes":["48x48"]}]}`,
			"",
		},
		{
			"an icon that is no object",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"icons":[7]}`,
			"",
			"its icons: not an object",
		},
		{
			"an execution of numbers",
			Tools,
			`{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":9}}`,
			"",
			"taskSupport in its execution is of the wrong type",
		},
		{
			"null in arguments",
			Prompts,
			`{"name":"p","arguments":[{"name":"a","description":null},{"name":"b","required":true}]}`,
			`{"name":"p","arguments":[{"name":"a"},{"name":"b","required":true}]}`,
			"",
		},
		{
			"arguments without words",
			Prompts,
			`{"name":"p","arguments":[{"name":"a"},{"name":7}]}`,
			"",
			"name in its arguments is of the wrong type",
		},
		{"no arguments", Prompts, `{"name":"p","arguments":[]}`, `{"name":"p","arguments":[]}`, ""},
		{"a name twice", Tools, `{"name":"t","name":"u","inputSchema":{"type":"object"}}`, "", "duplicate key"},
		{"no name", Tools, `{"inputSchema":{"type":"object"}}`, "", "it has no name"},
		{"no object", Prompts, `7`, "", "not an object"},
		{"arguments that are no list", Prompts, `{"name":"p","arguments":{}}`, "", "arguments is of the wrong type"},
		{"a resource without a name", Resources, `{"uri":"mem://a"}`, `{"name":"mem://a","uri":"mem://a"}`, ""},
		{
			"a long URI",
			Resources,
			`{"uri":"` + strings.Repeat("u", mcp.MaxURI+1) + `","name":"n"}`,
			"",
			"its uri is longer than 8 KiB",
		},
		{
			"a long URI template",
			Templates,
			`{"uriTemplate":"` + strings.Repeat("u", mcp.MaxURI+1) + `","name":"n"}`,
			"",
			"its uriTemplate is longer than 8 KiB",
		},
		{
			"too long",
			Tools,
			`{"name":"t","inputSchema":{"type":"object","title":"` + strings.Repeat("x", maxListing) + `"}}`,
			"",
			"longer than 1 MiB",
		},
	} {
		kept, notes := Fit(c.kind, []json.RawMessage{json.RawMessage(c.listing)})
		if got := join(kept); got != c.want {
			t.Errorf("%s: kept %.200s, want %.200s", c.name, got, c.want)
		}
		if got := strings.Join(notes, "\n"); (got == "") != (c.note == "") || !strings.Contains(got, c.note) {
			t.Errorf("%s: the notes are %q, want %q", c.name, got, c.note)
		}
		if again, notes := Fit(c.kind, kept); join(again) != c.want || notes != nil {
			t.Errorf("%s: what was fitted is changed once more: %.200s, %q", c.name, join(again), notes)
		}
	}
}

func join(list []json.RawMessage) string {
	var all []string
	for _, one := range list {
		all = append(all, string(one))
	}
	return strings.Join(all, "\n")
}

// TestFitDescription checks that a description is cut at 64 KiB, between two characters,
// with a note.
func TestFitDescription(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("é", 32<<10), strings.Repeat("é", 32<<10) + "x", "x" + strings.Repeat("é", 5<<20),
	} {
		kept, notes := Fit(Tools,
			[]json.RawMessage{json.RawMessage(`{"name":"t","inputSchema":{"type":"object"},"description":"` +
				text + `"}`)})
		got, _ := mcp.String(jsonrpc.Field(kept[0], "description"))
		if long := len(text) > 64<<10; long != (len(notes) > 0) || !long && got != text || len(got) > 64<<10+len("…") ||
			long && (!strings.HasSuffix(got, "…") || !strings.HasPrefix(text, strings.TrimSuffix(got, "…"))) {
			t.Errorf("of %d bytes %d are kept, which end with %q; the notes are %q", len(text), len(got),
				got[len(got)-9:], notes)
		}
	}
}

// TestFitNotesAreBounded checks that a server with thousands of bad tools gets only a few
// notes.
func TestFitNotesAreBounded(t *testing.T) {
	var all []json.RawMessage
	for i := range 5000 {
		all = append(all, fmt.Appendf(nil, `{"name":"%d%s","inputSchema":7}`, i, strings.Repeat("x", 5000)))
	}
	kept, notes := Fit(Tools, all)
	if words := strings.Join(notes, "\n"); len(kept) > 0 || len(words) > 8<<10 ||
		!strings.Contains(words, "and 4995 more") {
		t.Errorf("%d are kept, with notes of %d bytes: %.300s", len(kept), len(words), words)
	}
}

// TestFitNotesOfOneToolAreBounded checks that a tool whose schema has thousands of properties that are no schemas is
// shown without them, with a few notes.
func TestFitNotesOfOneToolAreBounded(t *testing.T) {
	schema := []byte(`{"type":"object","properties":{"good":{}`)
	for i := range 5000 {
		schema = fmt.Appendf(schema, `,"bad%d":%d`, i, i)
	}
	kept, notes := Fit(Tools, []json.RawMessage{fmt.Appendf(nil, `{"name":"t","inputSchema":%s}}}`, schema)})
	words := strings.Join(notes, "\n")
	if len(kept) != 1 || string(kept[0]) != `{"name":"t","inputSchema":{"type":"object","properties":{"good":{}}}}` ||
		len(words) > 2<<10 || !strings.Contains(words, "bad0") || !strings.Contains(words, "has lost more") {
		t.Errorf("%s is kept, with notes of %d bytes: %.900s", kept, len(words), words)
	}
}
