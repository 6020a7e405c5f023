package remote

import (
	"errors"
	"net/http"
	"testing"

	"holdline/protocol/fault"
)

// TestWrongTypeOfContent_AnswerIsTaken has servers send answers under a type of content that is missing or wrong. The
// answer counts if the body shows that it is one.
func TestWrongTypeOfContent_AnswerIsTaken(t *testing.T) {
	events := "event: message\ndata: " + callBack + "\n\n"
	for _, x := range []struct {
		kind, body string
		want       bool
	}{
		{"", callBack, true},
		{"text/plain; charset=utf-8", callBack, true},
		{"text/html", " \r\n" + callBack, true},
		{"application/json-rpc", callBack, true},
		{"application/octet-stream", "\ufeff" + callBack, true},
		{"no type", callBack, true},
		{asEvents, callBack, true},
		{asEvents, "\n\n" + callBack, true},
		{"Application/JSON", "[" + callBack + "]", true},
		{asJSON, events, true},
		{"", events, true},
		{"text/plain", ": hello\n\n" + events, true},
		{asJSON, "data:" + callBack, true},
		{"", "", false},
		{asEvents, "", false},
		{"text/plain", "ok", false},
		{"text/html", "<html>" + callBack, false},
		{"", "7", false},
		{asEvents, `{"error":"down"}`, false},
		{"text/plain", `{"jsonrpc":"2.0","id":8,"result":{}}`, false},
	} {
		c := New(Options{Name: "s", URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, x.kind, x.body)
		})})
		got, err := send(t, c, callLine)
		f, isFault := errors.AsType[*fault.Record](err)
		if answered := len(got) == 1 && got[0] == callBack; answered != x.want || x.want == (err != nil) ||
			err != nil && (!isFault || f.Fault.Code != fault.OutcomeUnknown) {
			t.Errorf("%q, %q: %q, %v", x.kind, x.body, got, err)
		}
	}
}
