package listen

import (
	"strings"
	"testing"

	"holdline/protocol/jsonrpc"
)

// TestParse checks that a client's subscription is parsed, acknowledged as far as it is
// granted, and refused with an error if it is invalid.
func TestParse(t *testing.T) {
	for _, test := range []struct{ notifications, acknowledged, refusal string }{
		{`{}`, `"notifications":{}`, ""},
		{`{"toolsListChanged":true,"promptsListChanged":false}`, `"notifications":{"toolsListChanged":true}`, ""},
		{
			`{"toolsListChanged":true,"resourceSubscriptions":["x:y"]}`,
			`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:y"]}`, "",
		},
		{``, "", "must be an object"},
		{`[]`, "", "must be an object"},
		{`{"resourceSubscriptions":"x:y"}`, "", "must be a list of strings"},
		{`{"resourceSubscriptions":["` + strings.Repeat("x", 1<<20) + `"]}`, "", "a URI of more than"},
		{`{"resourceSubscriptions":["a:1","a:2","a:3"]}`, "", "more than 2 resources"},
	} {
		var raw []byte
		if test.notifications != "" {
			raw = []byte(test.notifications)
		}
		s, uris, f := Parse(jsonrpc.ID(`"id"`), 7, "subscriptions/listen", raw, 2)
		if f != nil {
			if test.refusal == "" || !strings.Contains(f.Fault.Detail, test.refusal) {
				t.Errorf("%.80s is refused: %s", test.notifications, f.Fault.Detail)
			}
			continue
		}
		s.URIs = uris // as if all servers agreed
		line := string(s.Acknowledgement())
		if test.refusal != "" || !strings.Contains(line, test.acknowledged) ||
			!strings.Contains(line, `subscriptionId":"id"`) {
			t.Errorf("%.80s is acknowledged by %s", test.notifications, line)
		}
	}
}

// TestTag checks that the id of the subscription is added to the _meta of a server's
// notification.
func TestTag(t *testing.T) {
	for params, want := range map[string]string{
		`{"uri":"x:y"}`:                     `subscriptionId":1`,
		`{"uri":"x:y","_meta":{"a":[1.0]}}`: `"a":[1.0]`,
	} {
		tagged, err := Tag([]byte(params), jsonrpc.ID("1"))
		if err != nil || !strings.Contains(string(tagged), want) || strings.Count(string(tagged), "_meta") != 1 ||
			!strings.Contains(string(tagged), `subscriptionId":1`) {
			t.Errorf("%s: %s, %v", params, tagged, err)
		}
	}
}
