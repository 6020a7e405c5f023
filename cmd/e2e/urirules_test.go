package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdline/protocol/mcp"
)

// TestDeniedURIInOtherSpellings_ServerIsNotAsked asks for a resource that a rule forbids, by each
// request that names a resource and in spellings that servers take for the same one. The server has a
// template for all files, and never hears of it. Resources that it lists can be had as it lists them.
func TestDeniedURIInOtherSpellings_ServerIsNotAsked(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := p.caseServer()
	const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"}},`
	for _, only := range []bool{false, true} {
		a := p.agent().shake()
		if only {
			a = p.agent("--server", "s").shake()
		}
		ask := func(method, params string) answer {
			a.next++
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, a.next, method, params))
			return a.wait(a.next)
		}
		quoted := func(uri string) string {
			b, _ := json.Marshal(uri) // strings encode
			return string(b)
		}
		for _, uri := range []string{"mem://one", "FILE:///pub/odd one", "file:///pub/a"} {
			if x := ask(mcp.ResourcesRead, `"uri":`+quoted(uri)); x.Error != nil {
				t.Errorf("%s cannot be read: %s", uri, x.raw)
			}
		}
		if x := ask(mcp.Complete, `"ref":{"type":"ref/resource","uri":"file:///{+path}"},"argument":{"name":"path","value":"a"}`); x.Error != nil {
			t.Errorf("the template cannot be completed: %s", x.raw)
		}
		if x := ask(mcp.ResourcesRead, `"uri":"file:///pub/./b"`); x.Error == nil || !strings.Contains(x.Error.Message, "ask for file:///pub/b") {
			t.Errorf("the normal form is not named: %s", x.raw)
		}
		for _, uri := range []string{
			"file:///secret/k", "file:///./secret/k", "file:////secret/k", "file:///sec\tret/k", "file:///%73ecret/k",
			"file:///%2e/secret/k", "file:///%zz/../secret/k", "file:///pub/../secret/k", `file:\\\secret\k`, "FILE:///secret/k",
			" file:///secret/k", "file:/secret/k", "file:secret/k", "file://localhost/secret/k", "file:///secret%2Fk",
			"file:///secret/k#/../../pub/a", "file:///pub/a%00/../../secret/k", "/secret/k",
		} {
			for method, params := range map[string]string{
				mcp.ResourcesRead: `"uri":%s`, mcp.Subscribe: `"uri":%s`,
				mcp.Complete: `"ref":{"type":"ref/resource","uri":%s},"argument":{"name":"path","value":"a"}`,
			} {
				if x := ask(method, fmt.Sprintf(params, quoted(uri))); x.Error == nil {
					t.Errorf("%s %q: %s", method, uri, x.raw)
				}
			}
			if x := ask(mcp.ResourcesRead, modern+`"uri":`+quoted(uri)); x.Error == nil {
				t.Errorf("%q of a modern client: %s", uri, x.raw)
			}
			a.next++
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s"notifications":{"resourceSubscriptions":[%s]}}}`,
				a.next, mcp.Listen, modern, quoted(uri)))
			if line := a.read(); strings.Contains(line, "resourceSubscriptions") {
				t.Errorf("a subscription to %q is granted: %s", uri, line)
			}
		}
	}
	lines, err := os.ReadFile(got)
	if err != nil || strings.Contains(string(lines), "ecret") || strings.Contains(string(lines), `secret`) {
		t.Errorf("the server was asked: %v\n%s", err, lines)
	}
}

// TestCompletionOfDeniedValue_NeitherAskedNorNamed completes an argument of a template whose resources a rule
// forbids in part. The server is not asked with a value that makes a forbidden one, however the request spells
// it; and of the values that the server names, the client gets those alone that it may use.
func TestCompletionOfDeniedValue_NeitherAskedNorNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := p.caseServer()
	const template, file = "file:///{+path}", `"ref":{"type":"ref/resource","uri":"file:///{+path}"}`
	for _, only := range []bool{false, true} {
		a := p.agent().shake()
		if only {
			a = p.agent("--server", "s").shake()
		}
		ask := func(params string) answer {
			a.next++
			a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, a.next, mcp.Complete, params))
			return a.wait(a.next)
		}
		value := func(text string) string {
			b, err := json.Marshal(map[string]string{"name": "path", "value": text})
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		for _, typed := range []string{"", "p", "pub/", "pub/a"} {
			const want = `{"completion":{"values":["pub/a","secret","pub/b"],"hasMore":false}}`
			if x := ask(file + `,"argument":` + value(typed)); x.Error != nil || x.result(t, a.next) != want {
				t.Errorf("%q: %s", typed, x.raw)
			}
		}
		for _, typed := range []string{
			"secret/", "secret/k", "/secret/", "./secret/", "pub/../secret/", "%73ecret/", "%2e/secret/", "secret%2F", `\secret\`, "sec\tret/",
			"secret/\u0000", "//localhost/secret/", "pub/..%2fsecret/",
		} {
			if x := ask(file + `,"argument":` + value(typed)); x.Error == nil {
				t.Errorf("%q: %s", typed, x.raw)
			}
		}
		bad := value("secret/")
		for _, params := range []string{
			`"ref":{"type":"ref/resource","name":"s__greet","uri":"file:///{+path}"},"argument":` + bad,
			`"ref":{"type":"ref/resource","name":"greet","uri":"file:///secret/{x}"},"argument":{"name":"x","value":""}`,
			`"ref":{"type":"ref/prompt","name":"s__greet","uri":"file:///secret/{x}"},"argument":{"name":"x","value":""}`,
			`"ref":{"type":"ref/prompt","uri":"file:///{+path}"},"argument":` + bad,
			`"ref":{"type":"ref/resource","name":"s__greet"},"argument":` + bad,
			file + `,"argument":{"name":"other","value":"a"},"context":{"arguments":{"path":"secret/"}}`,
			file + `,"argument":{"name":"other","value":"a"},"context":{"arguments":{"Path":"secret/"}}`,
			file + `,"argument":{"name":"Path","value":"secret/"}`,
			file + `,"argument":{"name":"path","value":"a"},"context":{"arguments":{"path":"secret/"}}`,
			file + `,"argument":{"name":"path","value":"a","Value":"secret/"}`,
			file + `,"argument":{"name":"path","value":"a"},"Argument":` + bad,
			file + `,"argument":{"name":"path","value":"a"},"context":{"Arguments":{"path":"secret/"}}`,
			file + `,"argument":{"name":"path","value":["secret/"]}`,
			file + `,"argument":{"name":"path"}`,
		} {
			if x := ask(params); x.Error == nil {
				t.Errorf("%s: %s", params, x.raw)
			}
		}
	}
	lines, err := os.ReadFile(got)
	if n := strings.Count(string(lines), template); err != nil || n < 8 || strings.Contains(string(lines), "ecret") {
		t.Errorf("the server was asked: %v, %d times\n%s", err, n, lines)
	}
}

// TestDeniedNameInOtherSpellings_ServerIsNotAsked asks for a tool that a rule forbids by names that a
// server could take for its name: with white space, NUL, other Unicode forms, or in another case. A
// server is only ever asked for what it has listed, by the name that it has listed; and so for prompts.
func TestDeniedNameInOtherSpellings_ServerIsNotAsked(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	got := p.caseServer()
	a, alone, finds := p.agent().shake(), p.agent("--server", "s").shake(), p.agent("--identity", "s").shake()
	value := map[string]any{"name": "a", "value": "b"}
	for _, form := range []string{
		"%s", "%s ", " %s", "%s\n", "%s\t", "%s\x00", "\x00%s", "%s\x00x", "%s\u00a0", "%s\u200b", "\ufeff%s", "%s\u0301", "%s/", "./%s", "%s%%00",
	} {
		for _, name := range []string{"delete_all", "Delete_All", "DELETE_ALL", "dele\u017fte_all", "delete\uff3fall", "delete%5Fall", "greet\u0301"} {
			spelled := fmt.Sprintf(form, name)
			for what, x := range map[string]answer{
				"its name":     a.wait(a.call("s__"+spelled, map[string]any{})),
				"its own name": alone.wait(alone.call(spelled, map[string]any{})),
				"call_tool":    finds.wait(finds.call("call_tool", map[string]any{"server": "s", "tool": spelled})),
				"as a prompt":  a.ask(mcp.PromptsGet, map[string]any{"name": "s__" + spelled}),
				"as a reference": a.ask(mcp.Complete, map[string]any{
					"ref": map[string]any{"type": "ref/prompt", "name": "s__" + spelled}, "argument": value,
				}),
			} {
				if x.Error == nil && !x.Result.IsError {
					t.Errorf("%s: %q: %s", what, spelled, x.raw)
				}
			}
		}
	}
	lines, err := os.ReadFile(got)
	if err != nil || strings.Contains(string(lines), mcp.ToolsCall) || strings.Contains(string(lines), mcp.PromptsGet) ||
		strings.Contains(string(lines), mcp.Complete) {
		t.Errorf("the server was asked: %v\n%s", err, lines)
	}
}
