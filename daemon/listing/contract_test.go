package listing

import (
	"strings"
	"testing"

	"holdline/daemon/tool"
)

// TestContractShown checks where a tool's contract comes from: the configuration, else what
// its server says about recovery, else its hints. Clients see the contract; everything else
// stays as the server spelled it.
func TestContractShown(t *testing.T) {
	t.Parallel()
	s := Source{Server: "s", Contract: func(own string) tool.Contract {
		if own == "decided" {
			return tool.NeverReplay
		}
		return ""
	}}
	const convergent, never = `"holdline":{"replayContract":"convergent"}`,
		`"holdline":{"replayContract":"never_replay"}`
	effect := func(kind string) string { return `"_meta":{"io.libmcp/effect":{"recovery":{"kind":"` + kind + `"}}}` }
	for _, tc := range []struct{ name, rest, want string }{
		{"plain", ``, `{"annotations":{` + never + `},"name":"NAME"}`},
		{"null", `,"annotations":null`, `{"name":"NAME","annotations":null}`},
		{
			"reads",
			`,"annotations":{"readOnlyHint":true, "x":1.0}`,
			`{"name":"NAME","annotations":{` + convergent + `,"readOnlyHint":true,"x":1.0}}`,
		},
		{
			"repeats",
			`,"annotations":{"idempotentHint":true}`,
			`{"name":"NAME","annotations":{` + convergent + `,"idempotentHint":true}}`,
		},
		{
			"decided",
			`,"annotations":{"readOnlyHint":true}`,
			`{"name":"NAME","annotations":{` + never + `,"readOnlyHint":true}}`,
		},
		{"claims", `,"annotations":{` + convergent + `}`, `{"name":"NAME","annotations":{` + never + `}}`},
		{
			"safe",
			`,` + effect("replay_safe"),
			`{"annotations":{` + convergent + `},"name":"NAME",` + effect("replay_safe") + `}`,
		},
		{
			"once",
			`,"annotations":{"idempotentHint":true},` + effect("at_most_once"),
			`{"name":"NAME","annotations":{` + never + `,"idempotentHint":true},` + effect("at_most_once") + `}`,
		},
		{
			"deduplicated",
			`,` + effect("deduplicated"),
			`{"annotations":{` + never + `},"name":"NAME",` + effect("deduplicated") + `}`,
		},
		{
			"odd", `,"annotations":{"readOnlyHint":true},"_meta":{"io.libmcp/effect":7}`,
			`{"name":"NAME","annotations":{` + never + `,"readOnlyHint":true},"_meta":{"io.libmcp/effect":7}}`,
		},
	} {
		o, err := s.offer(Tools, []byte(`{"name":"`+tc.name+`"`+tc.rest+`}`))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		for listing, name := range map[string]string{string(o.Raw): "s__" + tc.name, string(o.Plain): tc.name} {
			if want := strings.Replace(tc.want, "NAME", name, 1); listing != want {
				t.Errorf("%s is shown as\n%s, want\n%s", tc.name, listing, want)
			}
		}
	}
	// Only tools have a contract.
	if o, err := s.offer(Prompts, []byte(`{"name":"p"}`)); err != nil || string(o.Raw) != `{"name":"s__p"}` ||
		string(o.Plain) != `{"name":"p"}` {
		t.Errorf("a prompt is shown as %s, %s, %v", o.Raw, o.Plain, err)
	}
}
