package e2e

import (
	"strings"
	"testing"
)

// TestClientAnswersQuestionWrongly_CallGoesOn checks that a server hears of an answer to its question
// that is none, and does not wait for another one.
func TestClientAnswersQuestionWrongly_CallGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("session").login()
	a := p.agent().shake()
	for token, answer := range map[string]string{
		"neither": ``, "both": `,"result":{"action":"accept"},"error":{"code":1,"message":"x"}`,
		"null": `,"error":null`, "words": `,"result":"yes"`, "text": `,"error":"no"`, "nothing": `,"result":null`,
		"cut": `,"result":{"action":"acc`, "encoding": `,"result":{"action":"` + "\xff" + `"}}`, "twice": `,"result":{},"result":{}`,
	} {
		id := a.call("tools__ask", elicit(token))
		line := `{"jsonrpc":"2.0","id":` + a.question("elicitation/create") + answer
		if !strings.HasSuffix(line, "}}") && token != "cut" {
			line += "}"
		}
		a.send(line)
		if x := a.wait(id); p.effectsOf("told "+token) != 1 || strings.Contains(x.text(), "accept") {
			t.Errorf("%s: %s", line, x.raw)
		}
	}
}
