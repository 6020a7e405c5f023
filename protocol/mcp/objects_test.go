package mcp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// spellings returns a key in other spellings that readers which ignore case take for it.
func spellings(key string) []string {
	var all []string
	for _, as := range []string{
		strings.ToUpper(key), strings.ToLower(key), strings.ToUpper(key[:1]) + key[1:],
		strings.NewReplacer("s", "\u017f", "S", "\u017f").Replace(key), strings.NewReplacer("k", "\u212a", "K", "\u212a").Replace(key),
		strings.ToUpper(key[:1]) + strings.ReplaceAll(key[1:], "s", `\u017F`),
		fmt.Sprintf(`\u%04x`, strings.ToUpper(key[len(key)-1:])[0]),
	} {
		if strings.HasPrefix(as, `\u`) && len(as) == 6 {
			as = key[:len(key)-1] + as
		}
		if plain, _ := mcp.String([]byte(`"` + as + `"`)); plain != key {
			all = append(all, as)
		}
	}
	return all
}

// roots are the objects with which a parser begins.
var roots = []*mcp.Object{
	&mcp.ParamsObject, &mcp.ResultObject, &mcp.KeptObject, &mcp.AboutObject, &mcp.ListObject, &mcp.ErrorObject,
	&mcp.EntryObject, &mcp.CompletedObject,
}

// within calls f for an object and for all in it, with a func that puts one where it stands.
func within(o *mcp.Object, depth int, put func(object string) string, f func(*mcp.Object, func(string) string)) {
	f(o, put)
	for _, in := range o.In {
		values := []string{`{%q:%s}`, `{%q:[7,%s]}`}
		if in.Map {
			values = []string{`{%q:{"any":%s}}`}
		}
		for _, value := range values {
			if depth < 6 {
				within(in.Of, depth+1, func(object string) string { return put(fmt.Sprintf(value, in.Key, object)) }, f)
			}
		}
	}
}

// TestKeyInAnotherCase_EachObjectRefuses checks, for each object by which Holdline decides, wherever
// it stands, that no known key may stand there in another case, alone or beside the right one, or
// twice.
func TestKeyInAnotherCase_EachObjectRefuses(t *testing.T) {
	seen := map[*mcp.Object]bool{}
	for _, root := range roots {
		within(root, 0, func(object string) string { return object }, func(o *mcp.Object, put func(string) string) {
			seen[o] = true
			check := func(object string, want error) {
				t.Helper()
				if err := root.Check([]byte(put(object))); !errors.Is(err, want) {
					t.Errorf("%s: %s: %v, want %v", root.Name, put(object), err, want)
				}
			}
			for _, key := range o.Keys.Known {
				check(fmt.Sprintf(`{%q:7}`, key), nil)
				check(fmt.Sprintf(`{%q:7,%q:8}`, key, key), jsonrpc.ErrDuplicate)
				for _, as := range spellings(key) {
					check(fmt.Sprintf(`{"%s":7}`, as), jsonrpc.ErrSpelling)
					check(fmt.Sprintf(`{%q:7,"%s":8}`, key, as), jsonrpc.ErrSpelling)
					check(fmt.Sprintf(`{"%s":7,%q:8}`, as, key), jsonrpc.ErrSpelling)
				}
			}
			var twice error
			if !o.Keys.Loose {
				twice = jsonrpc.ErrDuplicate
			}
			check(`{"unknown":7,"UNKNOWN":8}`, twice)
			check(`{"un\u212anown":7,"unknown":8}`, twice)
			check(`{"other":7,"Another":8}`, nil)
		})
	}
	for _, o := range mcp.Objects() {
		if !seen[o] {
			t.Errorf("no message that is checked has %s", o.Name)
		}
	}
	nested := `{"inputSchema":{"properties":{"a":{"properties":{"b":{"X-Mcp-Header":"x"}}}}}}`
	if err := mcp.EntryObject.Check([]byte(nested)); !errors.Is(err, jsonrpc.ErrSpelling) {
		t.Errorf("a schema in a schema: %v", err)
	}
	if err := mcp.EntryObject.Check([]byte(`{"inputSchema":{"properties":{"id":{},"ID":{},"Type":{}}}}`)); err != nil {
		t.Errorf("arguments are named as their tool likes: %v", err)
	}
}

// TestCheckResult checks which results are refused, and that what nothing is decided by is not.
func TestCheckResult(t *testing.T) {
	for _, test := range []struct {
		method, result string
		bad            bool
	}{
		{mcp.ToolsCall, `{"content":[],"Content":[],"x":1,"X":2,"x":3,"isError":true,"IsError":false}`, false},
		{mcp.ToolsCall, `{"ResultType":"input_required"}`, true},
		{mcp.ToolsCall, `{"resultType":"complete","inputRequests":{"a":{"method":"x","Method":"y"}}}`, true},
		{mcp.Initialize, `{"capabilities":{"Tools":{}}}`, true},
		{mcp.Initialize, `{"tools":1,"Tools":2}`, false},
		{mcp.Discover, `{"SupportedVersions":[]}`, true},
		{mcp.ToolsList, `{"tools":[],"Tools":[]}`, true},
		{mcp.ToolsList, `{"tools":[{"Name":"x"}]}`, false}, // the entry alone is left out
		{mcp.ResourcesList, `{"nextcursor":"x"}`, true},
	} {
		if err := mcp.CheckResult(test.method, []byte(test.result)); (err != nil) != test.bad {
			t.Errorf("%s %s: %v", test.method, test.result, err)
		}
	}
}

// BenchmarkParams reads the params of a small call, as proxy and daemon do.
func BenchmarkParams(b *testing.B) {
	params := []byte(`{"name":"server__tool","arguments":{"path":"/home/ada/notes.txt","limit":10},"_meta":{"progressToken":7}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := mcp.ParseParams(params); err != nil {
			b.Fatal(err)
		}
	}
}
