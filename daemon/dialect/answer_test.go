package dialect

import (
	"strings"
	"testing"

	"holdline/protocol/jsonrpc"
)

// TestBrokenAnswer checks that the id of a broken answer is found wherever it is in the
// line, and that the id of a server's request is not taken for it.
func TestBrokenAnswer(t *testing.T) {
	for _, tc := range []struct{ name, line, want string }{
		{"latin-1", `{"jsonrpc":"2.0","id":7,"result":{"text":"caf` + "\xe9" + `"}}`, "7"},
		{"latin-1, id last", `{"result":{"text":"caf` + "\xe9" + `"},"jsonrpc":"2.0","id":7}`, "7"},
		{"latin-1, version last", `{"result":{"text":"caf` + "\xe9" + `"}, "id" : 7 , "jsonrpc":"2.0" }`, "7"},
		{"latin-1, id and version first", `{"id":7,"jsonrpc":"2.0","result":"` + "\xe9" + `"}`, "7"},
		{"a floating id", `{"jsonrpc":"2.0","id":7.0,"result":"` + "\xe9" + `"}`, "7.0"},
		{"cut", `{"jsonrpc":"2.0","id":7,"result":{"text":"ca`, "7"},
		{"an error that is cut", `{"jsonrpc":"2.0","id":7,"error":{"co`, "7"},
		{
			"too deep",
			`{"jsonrpc":"2.0","id":7,"result":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
			"7",
		},
		{"both", `{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`, "7"},
		{"neither", `{"jsonrpc":"2.0","id":7}`, "7"},
		{"no version", `{"id":7,"result":{}}`, "7"},
		{"a key twice", `{"jsonrpc":"2.0","id":7,"id":7,"result":{}}`, "7"},
		{"a result twice", `{"jsonrpc":"2.0","id":7,"result":{},"result":{}}`, "7"},

		{"another id twice", `{"jsonrpc":"2.0","id":7,"id":8,"result":{}}`, ""},
		{"a request", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"` + "\xe9" + `"}}`, ""},
		{"a request, id last", `{"method":"ping","params":{"result":"` + "\xe9" + `"},"jsonrpc":"2.0","id":7}`, ""},
		{"a request with a key twice", `{"jsonrpc":"2.0","id":7,"id":7,"method":"ping"}`, ""},
		{"a request without version", `{"id":7,"method":"ping"}`, ""},
		{"the end of a request", `"params":{"x":1},"jsonrpc":"2.0","id":7}`, ""},
		{"an id within", `{"jsonrpc":"2.0","result":{"list":[{"a":"` + "\xe9" + `","id":7}]}}`, ""},
		{"an id within, and cut", `{"jsonrpc":"2.0","result":{"id":7,"a":"`, ""},
		{"words", `server 7: result is ready`, ""},
		{"nothing", ``, ""},
		{"an array", `[{"jsonrpc":"2.0","id":7,"result":{}}]`, ""},
	} {
		_, err := jsonrpc.Parse([]byte(tc.line))
		if err == nil {
			t.Errorf("%s is a message", tc.name)
		} else if got := BrokenAnswerID([]byte(tc.line), err); string(got) != tc.want {
			t.Errorf("%s (%v): the answer to %q, want %q", tc.name, err, got, tc.want)
		}
	}
}

// TestNumber checks that ids and tokens are compared by value, because some servers have
// only one kind of number, or keep ids as strings.
func TestNumber(t *testing.T) {
	for raw, want := range map[string]int64{
		"7": 7, "7.0": 7, "7e0": 7, "70e-1": 7, "0": 0, "-7": 0, "7.5": 0, `"7"`: 7, `"x7"`: 0, "": 0, "null": 0,
		"9007199254740993": 9007199254740993, "9007199254740993.0": 0, "1e400": 0, "0.0": 0, "1e3": 1000,
	} {
		if got := Number([]byte(raw)); got != want {
			t.Errorf("Number(%s) = %d, want %d", raw, got, want)
		}
	}
}
