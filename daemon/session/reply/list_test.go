package reply

import (
	"encoding/json"
	"testing"
)

// TestList checks the result of a list in both eras, and that an entry in several lines becomes one.
func TestList(t *testing.T) {
	entries := []json.RawMessage{json.RawMessage(`{"name": "a<b"}`), json.RawMessage("{\n \"name\":\"b\"}")}
	for _, c := range []struct {
		got  json.RawMessage
		want string
	}{
		{List("tools", nil, "", false), `{"tools":[]}`},
		{List("tools", entries, "", false), `{"tools":[{"name": "a<b"},{"name":"b"}]}`},
		{
			List("prompts", entries[:1], "next", true),
			`{"prompts":[{"name": "a<b"}],"nextCursor":"next","ttlMs":60000,"cacheScope":"private"}`,
		},
	} {
		if string(c.got) != c.want || !json.Valid(c.got) {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
