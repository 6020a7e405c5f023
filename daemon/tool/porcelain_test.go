package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPorcelain(t *testing.T) {
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%02d":%d`, i, i)
	}
	for _, c := range []struct {
		name, in string
		b        Bounds
		detail   Detail
		want     string
	}{
		{"empty object", `{}`, BoundsList, Concise, "empty object"},
		{"empty array", `[]`, BoundsList, Concise, "0 item(s)"},
		{"scalar", `12345678901234567890`, BoundsList, Concise, "12345678901234567890"},
		{"string", `"a \n\t b\"c"`, BoundsList, Concise, `"a b"c"`},
		{"sorted", `{"b":true,"a":null,"c":1.50}`, BoundsList, Concise, "a: null\nb: true\nc: 1.50"},
		{"array", `["x",{"a":1}]`, BoundsList, Concise, "2 item(s)\n[1] \"x\"\n[2] {a=1}"},
		{"inner array", `{"a":[1,2,3,4,5]}`, BoundsList, Concise, "a: [1, 2, 3, +2 more]"},
		{"inner array of 3", `{"a":[1,2,3]}`, BoundsList, Concise, "a: [1, 2, 3]"},
		{"inner object", `{"o":{"e":5,"d":4,"c":3,"b":2,"a":1}}`, BoundsList, Concise, "o: {a=1, b=2, c=3, d=4, +1 more}"},
		{"inner empty", `{"a":[],"o":{}}`, BoundsList, Concise, "a: []\no: {}"},
		{"characters", `{"a":"0123456789"}`, Bounds{5, 8, 5, 8}, Concise, `a: "0123...`},
		{"lines", `{` + strings.Join(many, ",") + `}`, Bounds{3, 80, 5, 80}, Concise, "k00: 0\nk01: 1\n... truncated to 3 lines"},
		{"lines in full", `{` + strings.Join(many, ",") + `}`, Bounds{3, 80, 4, 80}, Full, "k00: 0\nk01: 1\nk02: 2\n... truncated to 4 lines"},
		{"lines of an array", `[1,2,3]`, Bounds{3, 80, 5, 80}, Concise, "3 item(s)\n[1] 1\n... truncated to 3 lines"},
		{"exactly as many lines", `[1,2]`, Bounds{3, 80, 5, 80}, Concise, "2 item(s)\n[1] 1\n[2] 2"},
		{"a key with a newline", `{"a\nb":1}`, BoundsList, Concise, "a b: 1"},
	} {
		got, err := c.b.Text(json.RawMessage(c.in), c.detail)
		if err != nil || got != c.want {
			t.Errorf("%s: Text(%s) = %q, %v, want %q", c.name, c.in, got, err, c.want)
		}
	}
}

func TestBoundsOfToolThatNamesNone(t *testing.T) {
	if l, c := (Bounds{}).limits(Concise); l != 10 || c != 144 {
		t.Errorf("concise limits = %d, %d", l, c)
	}
	if l, c := (Bounds{}).limits(Full); l != 40 || c != 512 {
		t.Errorf("full limits = %d, %d", l, c)
	}
}

// FuzzPorcelain holds the promise that callers rely on: never more lines or
// characters than the bounds say, one line a value, valid UTF-8.
func FuzzPorcelain(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `null`, `"a\u2028b\u0085c"`, `{"a":{"b":{"c":{"d":{"e":1}}}}}`, `[[[[[[[1]]]]]]]`,
		`{"\n":"\r\n","\u0000":1e999}`, `"😀😀😀😀😀😀😀😀😀"`, `[1,2,3,4,5,6,7,8,9,10,11,12]`,
	} {
		f.Add([]byte(s), 3, 9)
	}
	f.Fuzz(func(t *testing.T, raw []byte, lines, chars int) {
		lines, chars = 1+abs(lines)%50, 4+abs(chars)%200
		b := Bounds{lines, chars, lines, chars}
		got, err := b.Text(raw, Full)
		if err != nil {
			return
		}
		if !utf8.ValidString(got) {
			t.Errorf("Text(%q) is not valid UTF-8: %q", raw, got)
		}
		rows := strings.Split(got, "\n")
		if len(rows) > lines {
			t.Errorf("Text(%q) has %d lines, want at most %d", raw, len(rows), lines)
		}
		for _, row := range rows {
			// "key: value", each within the limit; or the note on lines.
			if n := utf8.RuneCountInString(row); n > 2*chars+2 && n > len("... truncated to 99 lines")+20 {
				t.Errorf("Text(%q): line of %d characters, limit %d: %q", raw, n, chars, row)
			}
			if strings.ContainsAny(row, "\r\v\f\u0085\u2028\u2029\x00\x1b") {
				t.Errorf("Text(%q): line holds a control character: %q", raw, row)
			}
		}
		again, _ := b.Text(raw, Full)
		if again != got {
			t.Errorf("Text(%q) differs between calls", raw)
		}
	})
}

// FuzzParse holds that arguments which pass stay one JSON object without the
// common arguments, and that what is refused is refused as invalid input.
func FuzzParse(f *testing.F) {
	tl := newTool()
	p, err := Prepare(&tl)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		`{"prompt":"x"}`, `{"prompt":"x","render":"json","detail":"full"}`, `{"prompt":"x","max_turns":1e0}`,
		`{"prompt":"x","schema":{"a":[{"b":1,"b":2}]}}`, `null`, `{"pro\u006dpt":"x","prompt":"y"}`, `{"prompt":"\ud800"}`,
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

func abs(n int) int { return max(n, -(n + 1)) }
