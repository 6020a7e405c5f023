package question_test

import (
	"encoding/json"
	"strings"
	"testing"

	"holdline/daemon/hosted/question"
	"holdline/protocol/jsonrpc"
)

// TestMalformedAnswerOfAClient_IsAnErrorForTheServer checks that a server gets an answer of MCP whatever
// its client has answered.
func TestMalformedAnswerOfAClient_IsAnErrorForTheServer(t *testing.T) {
	for _, tc := range []struct {
		result, failure string
		want            string // in the line for the server
	}{
		{`{"action":"accept"}`, ``, `{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`},
		{``, `{"code":-1,"message":"no"}`, `{"jsonrpc":"2.0","id":"q","error":{"code":-1,"message":"no"}}`},
		{`null`, ``, "its result is not an object"},
		{`"yes"`, ``, "its result is not an object"},
		{``, ``, "its result is not an object"},
		{``, `"no"`, "its error has no code"},
		{``, `{"message":"no"}`, "its error has no code"},
		{``, `{"code":1.5,"message":"no"}`, "its error has no code"},
		{``, `{"code":1}`, "or no message"},
	} {
		q := question.Question{Raw: jsonrpc.ID(`"q"`)}
		msg := jsonrpc.Message{Kind: jsonrpc.Response}
		if tc.result != "" {
			msg.Result = json.RawMessage(tc.result)
		}
		if tc.failure != "" {
			msg.Error = json.RawMessage(tc.failure)
		}
		line := string(q.Answer(msg))
		answer, err := jsonrpc.Parse([]byte(line))
		if err != nil || string(answer.ID) != `"q"` || !strings.Contains(line, tc.want) ||
			!strings.HasPrefix(tc.want, "{") && answer.Error == nil {
			t.Errorf("%+v: %s, %v", tc, line, err)
		}
	}
}
