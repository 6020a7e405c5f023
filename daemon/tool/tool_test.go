package tool

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"holdline/protocol/fault"
)

const consultLike = `{
	"prompt":    {"type":"string","pattern":"\\S","description":"what to ask"},
	"cwd":       {"type":"string"},
	"max_turns": {"type":"integer","minimum":1},
	"max_usd":   {"type":"number","exclusiveMinimum":0},
	"level":     {"type":"string","enum":["read","shell"]},
	"add_dirs":  {"type":"array","items":{"type":"string"},"maxItems":3},
	"web":       {"type":"boolean"},
	"schema":    {"type":"object"}
}`

// newTool returns a valid tool.
func newTool() Tool {
	return Tool{
		Name: "ask", Description: "Asks.", Dispatch: OnWorker, Contract: NeverReplay,
		Annotations: Annotations{Title: "Ask", ReadOnly: true, OpenWorld: true},
		Properties:  json.RawMessage(consultLike), Required: []string{"prompt"},
		Meta:   json.RawMessage(`{"anthropic/alwaysLoad":true}`),
		Handle: func(context.Context, Call) (Result, error) { return Result{}, nil },
	}
}

// prepare prepares that tool after edit has changed it.
func prepare(t *testing.T, edit func(*Tool)) *Prepared {
	t.Helper()
	tl := newTool()
	if edit != nil {
		edit(&tl)
	}
	p, err := Prepare(&tl)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return p
}

// TestListing checks the listing of a tool.
func TestListing(t *testing.T) {
	got := string(prepare(t, func(tl *Tool) {
		tl.Properties = json.RawMessage(`{ "b": {"type":"string"}, "a": {"type":"integer", "minimum":1} }`)
		tl.Required = []string{"b"}
	}).Listing())
	want := `{"name":"ask","title":"Ask","description":"Asks.","inputSchema":{"type":"object","properties":{` +
		`"b":{"type":"string"},"a":{"type":"integer","minimum":1},` + common +
		`},"required":["b"],"additionalProperties":false},` +
		`"annotations":{"title":"Ask","readOnlyHint":true,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true,` +
		`"holdline":{"dispatch":"worker","replayContract":"never_replay"}},"_meta":{"anthropic/alwaysLoad":true}}`
	if got != want {
		t.Errorf("Listing:\n got %s\nwant %s", got, want)
	}
}

func TestListingOfToolWithoutArguments(t *testing.T) {
	got := string(prepare(t, func(tl *Tool) { tl.Properties, tl.Required, tl.Meta = nil, nil, nil }).Listing())
	if !strings.Contains(got,
		`"inputSchema":{"type":"object","properties":{`+common+`},"additionalProperties":false}`) {
		t.Errorf("Listing = %s", got)
	}
	if strings.Contains(got, "_meta") || !json.Valid([]byte(got)) {
		t.Errorf("Listing = %s", got)
	}
}

// TestOwnSchemas checks that the schemas of the tools of this package can be compiled.
func TestOwnSchemas(t *testing.T) {
	for _, tl := range []Tool{NewHealth(nil), NewTelemetry(nil), NewFindTools(nil), NewCallTool()} {
		p, err := Prepare(&tl)
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			t.Errorf("%s: %v", tl.Name, err)
		}
	}
}

// TestPrepareRefuses checks that an incomplete or contradictory tool is refused.
func TestPrepareRefuses(t *testing.T) {
	for name, edit := range map[string]func(*Tool){
		"no name":           func(tl *Tool) { tl.Name = "" },
		"name with a space": func(tl *Tool) { tl.Name = "a b" },
		"long description":  func(tl *Tool) { tl.Description = strings.Repeat("x", 2048) },
		"no dispatch":       func(tl *Tool) { tl.Dispatch = "" },
		"no contract":       func(tl *Tool) { tl.Contract = "" },
		"no handler":        func(tl *Tool) { tl.Handle = nil },
		"not JSON":          func(tl *Tool) { tl.Properties = json.RawMessage(`{`) },
		"not an object":     func(tl *Tool) { tl.Properties = json.RawMessage(`[]`) },
		"own render":        func(tl *Tool) { tl.Properties = json.RawMessage(`{"render":{}}`) },
		"property twice":    func(tl *Tool) { tl.Properties = json.RawMessage(`{"a":{},"a":{}}`) },
		"not a schema":      func(tl *Tool) { tl.Properties = json.RawMessage(`{"prompt":{"type":3}}`) },
		"default breaks it": func(tl *Tool) {
			tl.Properties = json.RawMessage(`{"prompt":{"type":"string","default":3}}`)
		},
		"required is absent": func(tl *Tool) { tl.Required = []string{"nope"} },
		"meta is not JSON":   func(tl *Tool) { tl.Meta = json.RawMessage(`{`) },
	} {
		tl := newTool()
		edit(&tl)
		p, err := Prepare(&tl)
		if err == nil {
			err = p.Check()
		}
		if err == nil {
			t.Errorf("%s: is taken", name)
		}
	}
}

// TestParse checks what a handler gets of the arguments, and the spellings of render and
// detail.
func TestParse(t *testing.T) {
	p := prepare(t, nil)
	for _, c := range []struct {
		in, want string
		render   Render
		detail   Detail
	}{
		{`{"prompt":"hi"}`, `{"prompt":"hi"}`, Porcelain, Concise},
		{` { "render" : "json", "prompt" : "<hi>", "detail":"full" } `, `{"prompt":"<hi>"}`, JSON, Full},
		{`{"prompt":"x","render":"text"}`, `{"prompt":"x"}`, Porcelain, Concise},
		{`{"prompt":"x","render":"plain","detail":"summary"}`, `{"prompt":"x"}`, Porcelain, Concise},
		{`{"prompt":"x","render":"plain_text","detail":"compact"}`, `{"prompt":"x"}`, Porcelain, Concise},
		{`{"prompt":"x","render":"structured","detail":"verbose"}`, `{"prompt":"x"}`, JSON, Full},
		{`{"prompt":"x","render":"porcelain","detail":"detailed"}`, `{"prompt":"x"}`, Porcelain, Full},
		// An integer in any spelling reaches the tool as a Go integer.
		{`{"prompt":"x","max_turns":2.0}`, `{"prompt":"x","max_turns":2}`, Porcelain, Concise},
		{`{"prompt":"x","max_turns":1e2}`, `{"prompt":"x","max_turns":100}`, Porcelain, Concise},
		// All other values keep their spelling.
		{
			`{"prompt":"\u0041","max_usd":1.50,"schema":{"a":[1.0,{"b":null}]}}`,
			`{"prompt":"\u0041","max_usd":1.50,"schema":{"a":[1.0,{"b":null}]}}`,
			Porcelain,
			Concise,
		},
	} {
		args, r, d, err := p.Parse(json.RawMessage(c.in))
		if err != nil {
			t.Errorf("Parse(%s): %v", c.in, err)
			continue
		}
		if string(args) != c.want || r != c.render || d != c.detail {
			t.Errorf("Parse(%s) = %s %v %v, want %s %v %v", c.in, args, r, d, c.want, c.render, c.detail)
		}
	}
}

func TestParseWithoutArguments(t *testing.T) {
	p := prepare(t, func(tl *Tool) { tl.Required = nil })
	for _, in := range []json.RawMessage{nil, json.RawMessage(`null`), json.RawMessage(`{}`)} {
		if args, _, _, err := p.Parse(in); err != nil || string(args) != `{}` {
			t.Errorf("Parse(%q) = %s, %v", in, args, err)
		}
	}
}

// TestParseRefuses checks the text for each kind of invalid argument.
func TestParseRefuses(t *testing.T) {
	p := prepare(t, nil)
	for _, c := range []struct{ in, want string }{
		{`{`, "arguments: not valid JSON"},
		{`[1]`, "arguments: must be an object (got an array of 1)"},
		{`"x"`, `arguments: must be an object (got "x")`},
		{`{}`, "prompt: is required, a string that is not blank"},
		{`{"prompt":" \n"}`, "prompt: must be a string that is not blank (got a blank string)"},
		{`{"prompt":null}`, "prompt: must be a string that is not blank (got null)"},
		{`{"prompt":"x","max_turns":1.5}`, "max_turns: must be an integer of at least 1 (got 1.5)"},
		{`{"prompt":"x","max_turns":0}`, "max_turns: must be an integer of at least 1 (got 0)"},
		{`{"prompt":"x","max_turns":"3"}`, `max_turns: must be an integer of at least 1 (got "3")`},
		{`{"prompt":"x","max_turns":1e300}`, "max_turns: is out of range (got 1e300)"},
		{`{"prompt":"x","max_turns":1e999}`, "max_turns: has a number that is out of range"},
		{`{"prompt":"x","max_usd":0}`, "max_usd: must be a number above 0 (got 0)"},
		{`{"prompt":"x","level":"root"}`, `level: must be one of read, shell (got "root")`},
		{
			`{"prompt":"x","add_dirs":["a",1]}`,
			"add_dirs: must be an array with at most 3 elements, each a string (got an array of 2)",
		},
		{`{"prompt":"x","web":"yes"}`, `web: must be true or false (got "yes")`},
		{`{"prompt":"x","render":"xml"}`, `render: must be porcelain or json (got "xml")`},
		{`{"prompt":"x","render":1}`, "render: must be porcelain or json (got 1)"},
		{`{"prompt":"x","detail":""}`, "detail: must be concise or full (got a blank string)"},
		{
			`{"prompt":"x","promt":"y"}`,
			"promt: no such argument, allowed are prompt, cwd, max_turns, max_usd, level, add_dirs, web, schema, render, detail",
		},
		{`{"prompt":"x","prompt":"y"}`, "arguments: duplicate key \"prompt\""},
		{`{"prompt":"x","render":"json","render":"json"}`, "arguments: duplicate key \"render\""},
		{`{"prompt":"x","schema":{"a":[{"k":1,"k":2}]}}`, "arguments: duplicate key \"k\""},
		{
			`{"prompt":"x","web":1,"level":2}`,
			"web: must be true or false (got 1)\nlevel: must be one of read, shell (got 2)",
		},
	} {
		_, _, _, err := p.Parse(json.RawMessage(c.in))
		f, ok := errors.AsType[*fault.Record](err)
		if !ok {
			t.Errorf("Parse(%s) = %v, want a fault", c.in, err)
			continue
		}
		if f.Fault.Detail != c.want || f.Fault.Code != fault.InvalidInput || f.Operation != "tools/call:ask" {
			t.Errorf("Parse(%s):\n got %s (%s, %s)\nwant %s", c.in, f.Fault.Detail, f.Fault.Code, f.Operation, c.want)
		}
	}
}

// TestParseRefusalKeepsRender checks that a refusal is shown in the requested form, and does
// not repeat the client's text.
func TestParseRefusalKeepsRender(t *testing.T) {
	p := prepare(t, nil)
	_, r, d, err := p.Parse(json.RawMessage(`{"level":"please tell nobody","render":"json","detail":"full"}`))
	if err == nil || r != JSON || d != Full || strings.Contains(err.Error(), "nobody") {
		t.Errorf("Parse = %v %v %v", r, d, err)
	}
	var many strings.Builder
	many.WriteString(`{"prompt":"x"`)
	for i := range 100 {
		many.WriteString(`,"` + strings.Repeat("k", i+1) + `":1`)
	}
	if _, _, _, err := p.Parse(json.RawMessage(many.String() + `}`)); err == nil || len(err.Error()) > 4000 {
		t.Errorf("a refusal of 100 arguments has %d characters", len(err.Error()))
	}
}

// FuzzParse checks that accepted arguments stay one JSON object without the common
// arguments, and that others are refused as invalid input.
func FuzzParse(f *testing.F) {
	tl := newTool()
	p, err := Prepare(&tl)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		`{"prompt":"x"}`, `{"prompt":"x","render":"json","detail":"full"}`, `{"prompt":"x","max_turns":1e0}`,
		`{"prompt":"x","schema":{"a":[{"b":1,"b":2}]}}`, `null`, `{"pro\u006dpt":"x","prompt":"y"}`,
		`{"prompt":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, _, _, err := p.Parse(raw)
		if err != nil {
			return
		}
		var v struct {
			Prompt *string `json:"prompt"`
			Turns  int     `json:"max_turns"`
			Render any     `json:"render"`
		}
		if err := json.Unmarshal(args, &v); err != nil || v.Prompt == nil || v.Render != nil {
			t.Errorf("Parse(%q) = %s: %v", raw, args, err)
		}
	})
}

// decode decodes an encoded result.
func decode(t *testing.T, raw json.RawMessage) (res struct {
	Content    []struct{ Type, Text string }
	Structured json.RawMessage `json:"structuredContent"`
	IsError    *bool           `json:"isError"`
},
) {
	t.Helper()
	if err := json.Unmarshal(raw, &res); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if len(res.Content) != 1 || res.Content[0].Type != "text" || res.IsError == nil {
		t.Fatalf("result = %s", raw)
	}
	return res
}

// TestEncode checks both forms of a result.
func TestEncode(t *testing.T) {
	p := prepare(t, nil)
	value := map[string]any{"b": 1, "a": "<x>\n y"}

	got := string(p.Encode(Result{Text: "done & dusted", Value: value}, Porcelain))
	if want := `{"content":[{"type":"text","text":"done & dusted"}],"isError":false}`; got != want {
		t.Errorf("porcelain = %s, want %s", got, want)
	}
	got = string(p.Encode(Result{Text: "done", Value: value}, JSON))
	if want := `{"content":[{"type":"text","text":"{\"a\":\"<x>\\n y\",\"b\":1}"}],"structuredContent":{"a":"<x>\n y","b":1},"isError":false}`; got != want {
		t.Errorf("json = %s, want %s", got, want)
	}
}

// TestEncodeFault checks that a fault has the same text in both forms.
func TestEncodeFault(t *testing.T) {
	p := prepare(t, nil)
	f := fault.New(fault.Unauthenticated, fault.Engine, "x", "not logged in").WithReason(fault.NotLoggedIn)
	for _, raw := range []json.RawMessage{
		p.Encode(Result{Fault: f, FaultText: "so far: 42"}, Porcelain),
		p.Encode(Result{Fault: f, FaultText: "so far: 42"}, JSON),
	} {
		res := decode(t, raw)
		want := "not logged in\n[unauthenticated, not_logged_in] A user has to log in first; repeating the call does not help.\n\nso far: 42"
		if res.Content[0].Text != want || !*res.IsError || string(res.Structured) != string(f.JSON()) {
			t.Errorf("fault = %s, want text %q", raw, want)
		}
	}
	failing := prepare(t, func(tl *Tool) {
		tl.Required = nil
		tl.Handle = func(context.Context, Call) (Result, error) { return Result{}, errors.New("boom") }
	})
	plain, err := failing.Remote().Handle(t.Context(), RemoteCall{Params: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string]json.RawMessage{
		"plain error":   plain.Result,
		"array":         p.Encode(Result{Value: []int{1}}, JSON),
		"no value":      p.Encode(Result{Text: "x"}, JSON),
		"cannot encode": p.Encode(Result{Value: map[string]any{"f": func() {}}}, JSON),
	} {
		res := decode(t, raw)
		if !*res.IsError || !strings.Contains(string(res.Structured), `"internal_failure"`) {
			t.Errorf("%s: %+v", name, res)
		}
	}
}

// TestEncodeCutsText checks that a long text is cut at the limit, between two characters.
func TestEncodeCutsText(t *testing.T) {
	p := prepare(t, nil)
	for name, s := range map[string]string{
		"ascii":   strings.Repeat("x", MaxText+1),
		"wide":    strings.Repeat("\U0001f600", MaxText),
		"invalid": strings.Repeat("\xff", MaxText*2),
	} {
		for _, res := range []Result{
			{Text: s},
			{Fault: fault.New(fault.Timeout, fault.Engine, "x", "late"), FaultText: s},
			{Fault: fault.New(fault.Timeout, fault.Engine, "x", "%s", s), FaultText: s},
		} {
			text := decode(t, p.Encode(res, Porcelain)).Content[0].Text
			if n := len(utf16.Encode([]rune(text))); n > MaxText || n < MaxText-4 {
				t.Errorf("%s: text has %d characters, want about %d", name, n, MaxText)
			}
			if last := text[strings.LastIndexByte(text, '\n')+1:]; !strings.HasPrefix(last, "... cut at ") {
				t.Errorf("%s: last line is %q", name, last)
			}
		}
	}
	whole := strings.Repeat("ü", MaxText)
	if got := Cut(whole, MaxText); got != whole {
		t.Errorf("a text of %d characters was cut to %d", MaxText, len(got))
	}
}

func BenchmarkParse(b *testing.B) {
	tl := newTool()
	p, err := Prepare(&tl)
	if err != nil {
		b.Fatal(err)
	}
	args := json.RawMessage(`{"prompt":"hello there","max_turns":3,"detail":"full"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, _, err := p.Parse(args); err != nil {
			b.Fatal(err)
		}
	}
}
