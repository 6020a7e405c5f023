package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// offer returns the offers of a server with one tool whose input has these properties.
func offer(server, name, description, properties string) control.ServerOffers {
	return offerRaw(server, name, fmt.Appendf(nil,
		`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":%s,"required":["path"]}}`, name,
		description, properties))
}

// offerRaw returns the offers of a server with one tool, as it is listed.
func offerRaw(server, name string, listing json.RawMessage) control.ServerOffers {
	return control.ServerOffers{
		Server: server, Tools: []control.ServerTool{{Name: name, Exposed: server + "__" + name, Listing: listing}},
	}
}

// broken returns the offers of a server that cannot be asked.
func broken(server, why string) control.ServerOffers {
	return control.ServerOffers{
		Server: server, Fault: fault.New(fault.ProcessFailure, fault.Server, "start:"+server, "%s", why),
	}
}

// find calls find_tools, and returns the findings and the text.
func find(t *testing.T, d []control.ServerOffers, arguments string) (findings, string, error) {
	t.Helper()
	tl := NewFindTools(func(context.Context, Caller, bool) []control.ServerOffers { return d })
	p, err := Prepare(&tl)
	if err != nil {
		t.Fatal(err)
	}
	args, _, detail, err := p.Parse(json.RawMessage(arguments))
	if err != nil {
		return findings{}, "", err
	}
	res, err := tl.Handle(t.Context(), Call{Args: args, Detail: detail})
	f, _ := res.Value.(findings)
	return f, res.Text, err
}

// TestFind checks the result of find_tools: hits, order, notes and text.
func TestFind(t *testing.T) {
	d := []control.ServerOffers{
		offer("files", "read_file", "Reads a file.\nAll of it.",
			`{"limit":{"type":"integer"},"path":{"type":"string"}}`),
		offer("files", "stat", "Tells what is known.", `{"path":{}}`),
		offer("mail", "sendMessage", "Sends it.", `{}`),
		broken("gone", "it is gone"),
	}
	f, text, err := find(t, d, `{"query":"READ path"}`)
	if err != nil || len(f.Tools) != 2 || f.Matches != 2 || f.Searched != 3 || f.Servers != 4 || f.Tools[0].Tool != "read_file" ||
		f.Tools[0].Name != "files__read_file" {
		t.Errorf("%+v, %v", f, err)
	}
	if want := `2 of 3 tools match, the best first:
[1] server files, tool read_file: Reads a file. All of it.
    arguments: path string, limit? integer
[2] server files, tool stat: Tells what is known.
    arguments: path
server gone: it is gone
call one with call_tool {server, tool, arguments}`; text != want {
		t.Errorf("text:\n%s\nwant:\n%s", text, want)
	}
	// By the name of an argument, by part of a name, and by the server's name.
	for query, want := range map[string]string{
		"limit": "read_file", "message": "sendMessage", "mail": "sendMessage", "sendmessage": "sendMessage",
	} {
		if f, _, _ := find(t, d, fmt.Sprintf(`{"query":%q}`, query)); len(f.Tools) != 1 || f.Tools[0].Tool != want {
			t.Errorf("%s finds %+v", query, f.Tools)
		}
	}
	if f, text, _ := find(t, d, `{"query":"zebra"}`); f.Tools == nil || len(f.Tools) != 0 ||
		!strings.Contains(text, "none of 3 tools") || !strings.Contains(text, "gone") {
		t.Errorf("nothing: %+v\n%s", f, text)
	}
	if f, _, _ := find(t, d, `{"query":"path","limit":1}`); len(f.Tools) != 1 || f.Matches != 2 {
		t.Errorf("limit: %+v", f)
	}
	if _, text, _ := find(t, d, `{"query":"read","detail":"full"}`); !strings.Contains(text,
		`schema: {"type":"object","properties":{"limit":`) {
		t.Errorf("full:\n%s", text)
	}
	for arguments, want := range map[string]string{
		`{}`:                          "query: is required",
		`{"query":"  "}`:              "that is not blank",
		`{"query":"?!"}`:              "no word to look for",
		`{"query":"a","limit":0}`:     "limit: must be an integer of at least 1",
		`{"query":"a","limit":51}`:    "limit: must be",
		`{"query":"a","server":"x"}`:  "server: no such argument",
		`{"query":"a","start":"yes"}`: "start: must be",
	} {
		_, _, err := find(t, d, arguments)
		if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.InvalidInput ||
			!strings.Contains(f.Fault.Detail, want) {
			t.Errorf("%s: %v, want %q", arguments, err, want)
		}
	}
}

// TestFindIsBounded checks that the answer fits a client, whatever servers list.
func TestFindIsBounded(t *testing.T) {
	var d []control.ServerOffers
	for i := range 60 {
		d = append(d,
			offer("server", fmt.Sprintf("tool%d", i), strings.Repeat("word ", 5000),
				fmt.Sprintf(`{"path":{"description":%q}}`, strings.Repeat("x", 2000))),
			broken(fmt.Sprint("server", i), strings.Repeat("e", 5000)))
	}
	f, text, err := find(t, d, `{"query":"word","limit":50,"detail":"full"}`)
	b, _ := json.Marshal(f)
	if err != nil || len(f.Tools) != 50 || len(b) > MaxText || len(text) > MaxText {
		t.Errorf("%d tools in %d bytes, text of %d bytes, %v", len(f.Tools), len(b), len(text), err)
	}
	if f.Tools[0].Schema == nil || f.Tools[49].Schema != nil || f.LeftOut == 0 {
		t.Errorf("%d schemas are left out", f.LeftOut)
	}
	if strings.Contains(f.Tools[0].Description, "\n") || len([]rune(f.Tools[0].Description)) != maxWords {
		t.Errorf("description %q", f.Tools[0].Description)
	}
}

// TestInner checks which tool and arguments a call of call_tool names, byte for byte.
func TestInner(t *testing.T) {
	tl := NewCallTool()
	p, err := Prepare(&tl)
	if err != nil {
		t.Fatal(err)
	}
	if l := string(p.Listing()); strings.Contains(l, "render") || strings.Contains(l, `"readOnlyHint":true`) ||
		!strings.Contains(l, `"additionalProperties":false`) || !json.Valid(p.Listing()) {
		t.Errorf("listing %s", l)
	}
	for arguments, want := range map[string]string{
		`{"server":"s","tool":"t"}`:                                                `s t `,
		`{"server":"s","tool":"t","arguments":null}`:                               `s t `,
		`{"tool":"t", "arguments" : {"n":1.0, "m":9007199254740993},"server":"s"}`: `s t {"n":1.0, "m":9007199254740993}`,
	} {
		in, err := inner(json.RawMessage(arguments))
		if got := in.Server + " " + in.Tool + " " + string(in.Arguments); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", arguments, got, err, want)
		}
	}
	for arguments, want := range map[string]string{
		``:                          "are required",
		`null`:                      "are required",
		`[]`:                        "must be an object",
		`{"tool":"t"}`:              "server: is required",
		`{"server":"s"}`:            "tool: is required",
		`{"server":" ","tool":"t"}`: "server: must be a string that is not blank",
		`{"server":"s","tool":7}`:   "tool: must be a string",
		`{"server":"s","tool":"t","arguments":"{}"}`:      "arguments: must be an object",
		`{"server":"s","tool":"t","token":"x"}`:           "token: no such argument",
		`{"server":"s","server":"s","tool":"t"}`:          "server",
		`{"server":"s","tool":"t","arguments":{},"x":{}}`: "x: no such argument",
	} {
		raw := json.RawMessage(arguments)
		if arguments == "" {
			raw = nil
		}
		if in, err := inner(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", arguments, in, err, want)
		}
	}
}

// FuzzInner checks that the arguments passed on are an object that was in the input.
func FuzzInner(f *testing.F) {
	f.Add([]byte(`{"server":"s","tool":"t","arguments":{"a":[1.0,{}]}}`))
	f.Add([]byte(`{"arguments":null,"tool":"\ud800","server":""}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.TrimSpace(raw)
		if !json.Valid(raw) {
			t.Skip()
		}
		in, err := inner(raw)
		switch {
		case err != nil:
		case in.Server == "" || in.Tool == "":
			t.Errorf("%s: %+v", raw, in)
		case in.Arguments != nil &&
			(!json.Valid(in.Arguments) || in.Arguments[0] != '{' || !bytes.Contains(raw, in.Arguments)):
			t.Errorf("%s: arguments %s", raw, in.Arguments)
		}
	})
}

// FuzzSearch checks that the search works on whatever servers list.
func FuzzSearch(f *testing.F) {
	f.Add("read a file",
		[]byte(`{"description":"Reads.","inputSchema":{"properties":{"a":{"type":"string"},"b":7},"required":["a"]}}`))
	f.Add("Ⅷ aB", []byte(`{"description":7,"inputSchema":{"properties":[],"required":{}}}`))
	f.Fuzz(func(t *testing.T, query string, listing []byte) {
		if !json.Valid(listing) {
			t.Skip()
		}
		out := search(words(query), 8,
			[]control.ServerOffers{offerRaw("s", "t", listing), offerRaw("s", "u", listing)})
		if text := out.text(Full); len(out.Tools) > 0 &&
			!strings.Contains(text, "[1] server s, tool "+out.Tools[0].Tool) {
			t.Errorf("%q: %s", query, text)
		}
		for _, h := range out.Tools {
			if h.Score < 0 {
				t.Errorf("%q: score %v", query, h.Score)
			}
		}
	})
}
