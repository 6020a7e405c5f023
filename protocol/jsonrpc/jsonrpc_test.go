package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestParse checks the kind and the members of messages, and which lines are no message.
func TestParse(t *testing.T) {
	for _, tc := range []struct {
		line   string
		kind   Kind
		id     string
		method string
		params string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1.0}}`, Request, "1", "m", `{"a":1.0}`},
		{` {"params" : [1] , "method":"m\u0031","id":"x\"}","jsonrpc":"2.0"} `, Request, `"x\"}"`, "m1", "[1]"},
		{`{"jsonrpc":"2.0","method":"m"}`, Notification, "", "m", ""},
		{`{"jsonrpc":"2.0","id":-1.5e3,"result":null}`, Response, "-1.5e3", "", ""},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, Response, "", "", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","extra":{"deep":[{"}":"]"}]}}`, Request, "1", "m", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":null,"result":null,"error":null}`, Request, "1", "m", ""},
		{`{"jsonrpc":"2.0","id":null,"method":"m","params":null}`, Notification, "", "m", ""},
		{`{"jsonrpc":"2.0","id":1,"method":null,"params":null,"result":{},"error":null}`, Response, "1", "", ""},
		{`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"x"}}`, Response, "1", "", ""},
	} {
		m, err := Parse([]byte(tc.line))
		if err != nil || m.Kind != tc.kind || string(m.ID) != tc.id || m.Method != tc.method ||
			string(m.Params) != tc.params {
			t.Errorf("Parse(%s) = %+v, %v", tc.line, m, err)
		}
	}
	for line, want := range map[string]error{
		``: ErrParse, strings.Repeat("[", 10_001): ErrParse, `{`: ErrParse, `nope`: ErrParse, "\"\xff\"": ErrParse,
		`[]`: ErrInvalid, `1`: ErrInvalid, `"x"`: ErrInvalid, `null`: ErrInvalid, `{}`: ErrInvalid,
		`{"jsonrpc":"1.0","id":1,"method":"m"}`:                 ErrInvalid,
		`{"jsonrpc":"2.0","id":true,"method":"m"}`:              ErrInvalid,
		`{"jsonrpc":"2.0","id":1,"error":null}`:                 ErrInvalid,
		`{"jsonrpc":"2.0","id":1}`:                              ErrInvalid,
		`{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`:        ErrInvalid,
		`{"jsonrpc":"2.0","id":1,"method":"m","result":1}`:      ErrInvalid,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":1}`:      ErrInvalid,
		`{"jsonrpc":"2.0","id":1,"method":"m","meth\u006fd":1}`: ErrInvalid,
	} {
		if _, err := Parse([]byte(line)); !errors.Is(err, want) {
			t.Errorf("Parse(%.99q) = %v, want %v", line, err, want)
		}
	}
	const most = 10_000
	deep := func(n int) string {
		return `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", n) + `"[{"` + strings.Repeat("]", n) + `}`
	}
	if _, err := Parse([]byte(deep(most - 1))); err != nil {
		t.Errorf("the deepest line: %v", err)
	}
	if _, err := Parse([]byte(deep(most))); err == nil || !strings.Contains(err.Error(), "deeper than 10000") {
		t.Errorf("a line that is too deep: %v", err)
	}
}

// TestIDKey checks which spellings are the same id.
func TestIDKey(t *testing.T) {
	same := [][2]string{{`"a"`, `"\u0061"`}, {`1`, `1`}}
	other := [][2]string{{`1`, `"1"`}, {`1`, `1.0`}, {`90071992547409931`, `90071992547409932`}, {`"a"`, `"A"`}}
	for _, p := range same {
		if ID(p[0]).Key() != ID(p[1]).Key() {
			t.Errorf("%s and %s are not the same id", p[0], p[1])
		}
	}
	for _, p := range other {
		if ID(p[0]).Key() == ID(p[1]).Key() {
			t.Errorf("%s and %s are the same id", p[0], p[1])
		}
	}
}

// TestWrite checks the bytes of each kind of message.
func TestWrite(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{string(AppendResult(nil, ID(`1.50`), json.RawMessage(`{}`))), `{"jsonrpc":"2.0","id":1.50,"result":{}}`},
		{
			string(AppendError(nil, nil, -1, "a\n\"b", nil)),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"a\n\"b"}}`,
		},
		{
			string(AppendError(nil, ID(`"x"`), 7, "m", json.RawMessage(`[1]`))),
			`{"jsonrpc":"2.0","id":"x","error":{"code":7,"message":"m","data":[1]}}`,
		},
		{
			string(AppendRequest(nil, IntID(3), "m", json.RawMessage(`{}`))),
			`{"jsonrpc":"2.0","id":3,"method":"m","params":{}}`,
		},
		{string(AppendRequest(nil, nil, "m", nil)), `{"jsonrpc":"2.0","method":"m"}`},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s, want %s", tc.got, tc.want)
		}
		if _, err := Parse([]byte(tc.got)); err != nil {
			t.Errorf("%s does not parse: %v", tc.got, err)
		}
	}
}

// collect returns all lines joined by "|". "!" stands for a line over the limit.
func collect(t *testing.T, l *Lines) string {
	t.Helper()
	var got []string
	for {
		line, err := l.Next()
		switch {
		case err == nil:
			got = append(got, string(line))
		case errors.Is(err, ErrTooLong):
			got = append(got, "!")
		case errors.Is(err, io.EOF):
			return strings.Join(got, "|")
		default:
			t.Fatal(err)
		}
	}
}

// TestLines checks how input is split into lines, and that a line over the limit is
// skipped.
func TestLines(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		tail     bool
	}{
		{"a\nb\n", "a|b", false},
		{"a\r\n\r\n\nb", "a|b", false},
		{"a\nb", "a", true},
		{"\ufeffa\n\ufeff\r\n", "a", false},
		{strings.Repeat("x", 10) + "\nb\n", strings.Repeat("x", 10) + "|b", false},
		{strings.Repeat("x", 11) + "\nb\n", "!|b", false},
		{strings.Repeat("x", 5000) + "\nb\n" + strings.Repeat("y", 9000), "!|b|!", false},
		{"", "", false},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(tc.in), "bytes": iotest.OneByteReader(strings.NewReader(tc.in)),
			"data with EOF": iotest.DataErrReader(strings.NewReader(tc.in)),
		} {
			l := NewLines(r, 10)
			l.DropTail = tc.tail
			if got := collect(t, l); got != tc.want {
				t.Errorf("%s %q: got %s, want %s", name, tc.in, got, tc.want)
			}
		}
	}
}

// TestLinesGivesMemoryBack checks that the buffer for a long line is not kept while short
// lines are read.
func TestLinesGivesMemoryBack(t *testing.T) {
	in := io.MultiReader(strings.NewReader(strings.Repeat("x", 4<<20)+"\n"),
		strings.NewReader(strings.Repeat("y\n", 4096)))
	l := NewLines(in, MaxFrame)
	if line, err := l.Next(); err != nil || len(line) != 4<<20 {
		t.Fatalf("got %d bytes, %v", len(line), err)
	}
	for {
		if _, err := l.Next(); err != nil {
			break
		}
	}
	if cap(l.buf) > keepBuffer {
		t.Errorf("the buffer still has %d bytes", cap(l.buf))
	}
}

// TestOwnLine checks that a line of the caller's own stays as it is, whatever is read next,
// and that a long one at the front of the buffer is not copied.
func TestOwnLine(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, want := range [][]string{{"a", "b", "c"}, {long, "b", long}, {"a", long, "c"}} {
		l := NewLines(strings.NewReader(strings.Join(want, "\n")+"\n"), MaxFrame)
		var own [][]byte
		for range want {
			line, err := l.Next()
			if err != nil {
				t.Fatal(err)
			}
			given := len(line) >= max(keepBuffer, cap(l.buf)/4) && cap(line) == cap(l.buf)
			owned := l.Own(line)
			if same := &owned[0] == &line[0]; same != given {
				t.Errorf("a line of %d bytes: the buffer is given away: %v, want %v", len(line), same, given)
			}
			own = append(own, owned)
		}
		if _, err := l.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last line: %v", err)
		}
		for i, line := range own {
			if string(line) != want[i] || line[:len(line)+1][len(line)] != '\n' {
				t.Errorf("line %d of %d bytes is not as it was", i, len(want[i]))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,{"b":"\""}]}}`,
		`{"jsonrpc":"2.0","id":"x","result":1.0}`, `[1]`, `{"a":"\ud800"}`, `{"a":1,"\u0061":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		if err != nil {
			return
		}
		// The result must equal that of a strict decoder.
		var v map[string]json.RawMessage
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("taken, and json says %v", err)
		}
		if string(bytes.TrimSpace(v["params"])) != string(m.Params) ||
			string(bytes.TrimSpace(v["id"])) != string(m.ID) && string(v["id"]) != "null" {
			t.Errorf("%s: params %s id %s, json says %s and %s", line, m.Params, m.ID, v["params"], v["id"])
		}
		if string(bytes.TrimSpace(v["result"])) != string(m.Result) || string(bytes.TrimSpace(v["error"])) != string(m.Error) {
			t.Errorf("%s: result %s, error %s, json says %s and %s", line, m.Result, m.Error, v["result"], v["error"])
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\n"+strings.Repeat("c", 40)+"\nd"), 7)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		const limit = 16
		size = max(1, size%32)
		l := NewLines(&chunks{in, size}, limit)
		var want []string
		for line := range bytes.SplitSeq(in, []byte("\n")) {
			// The limit applies to the bytes before the newline, but a last line without
			// one is known to be too long only if it has more than limit+1 bytes.
			if len(line) > limit+1 {
				want = append(want, "!")
			} else if len(line) == limit+1 {
				return // both results are right, depending on what follows
			} else if line = bytes.TrimRight(line, "\r"); len(line) > 0 {
				want = append(want, string(line))
			}
		}
		if got := collect(t, l); got != strings.Join(want, "|") {
			t.Errorf("%q in pieces of %d: got %q, want %q", in, size, got, strings.Join(want, "|"))
		}
	})
}

type chunks struct {
	b []byte
	n int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.b)
	c.b = c.b[n:]
	return n, nil
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 1 << 20} {
		line := fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"text":%q}}}`,
			strings.Repeat("x", size))
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestElements checks that the elements of an array are returned as they are spelled.
func TestElements(t *testing.T) {
	for _, x := range []struct {
		in   string
		want []string
	}{
		{`[]`, nil},
		{` [ ] `, nil},
		{`[1]`, []string{"1"}},
		{
			` [ 1.50 , "a,]\"" , { "b" : [ 2 , 3 ] } , [ ] , null ] `,
			[]string{"1.50", `"a,]\""`, `{ "b" : [ 2 , 3 ] }`, "[ ]", "null"},
		},
	} {
		var got []string
		if err := Elements([]byte(x.in), func(v []byte) error {
			got = append(got, string(v))
			return nil
		}); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("Elements(%s) = %q, %v", x.in, got, err)
		}
	}
	for _, in := range []string{"", "{}", `"a"`, "1"} {
		if err := Elements([]byte(in), func([]byte) error { return nil }); err == nil {
			t.Errorf("Elements(%s) took it", in)
		}
	}
	boom := errors.New("boom")
	if err := Elements([]byte("[1,2]"), func([]byte) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("the function's error became %v", err)
	}
}

// TestRewrite checks that members are replaced or removed, and that the rest stays as it is
// spelled.
func TestRewrite(t *testing.T) {
	in := `{"a" : 1.0, "b\u0062":{"x":[1]} ,"c":"}" }`
	got, err := Rewrite([]byte(in), func(key string, value []byte) []byte {
		switch key {
		case "a":
			return []byte("2")
		case "c":
			return nil
		}
		return value
	})
	if want := `{"a":2,"b\u0062":{"x":[1]}}`; err != nil || string(got) != want {
		t.Errorf("Rewrite = %s, %v, want %s", got, err, want)
	}
	if got, err := Rewrite([]byte(`{}`), func(string, []byte) []byte { return nil }); err != nil ||
		string(got) != `{}` {
		t.Errorf("an empty object: %s, %v", got, err)
	}
	for _, bad := range []string{`[]`, `1`, `{"a":1,"a":2}`} {
		if _, err := Rewrite([]byte(bad), func(_ string, v []byte) []byte { return v }); err == nil {
			t.Errorf("Rewrite(%s) gives no error", bad)
		}
	}
	for in, want := range map[string]string{`{}`: `{"x":1}`, ` { } `: `{"x":1} } `[:7], `{"a":2}`: `{"x":1,"a":2}`} {
		if got := strings.TrimSpace(string(Prepend(json.RawMessage(in), `"x":1`))); strings.ReplaceAll(got, " ",
			"") != want {
			t.Errorf("Prepend(%s) = %s, want %s", in, got, want)
		}
	}
}
