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

// TestProgramThatSpeaksNoMCP_ItsWordsAreQuoted checks that the fault of a program that prints other things
// to stdout, and waits or ends, has its words, and advises no more time.
func TestProgramThatSpeaksNoMCP_ItsWordsAreQuoted(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	servers := map[string]any{}
	for name, script := range map[string]string{
		"waits": "echo 'Listening on port 3000'; printf 'Name: '; exec sleep 60",
		"ends":  "echo 'Listening on port 3000'; printf 'Name: '; exit 1",
	} {
		servers[name] = map[string]any{
			"command": "/bin/sh", "args": []string{"-c", script}, "holdline": hosting{"start_timeout": "6s"},
		}
	}
	p.configure(servers)
	for name := range servers {
		_, errs, code := p.run("", "servers", "call", name, "t", "{}")
		if code == 0 || !strings.Contains(errs, "Listening on port 3000") || strings.Contains(errs, "more time") ||
			name == "waits" && !strings.Contains(errs, "3000 / Name:") {
			t.Errorf("%s: exit %d: %s", name, code, errs)
		}
	}
}

// TestByteOrderMarkBeforeEachLine_Skipped has a server and its client write a byte order mark before each line.
func TestByteOrderMarkBeforeEachLine_Skipped(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	entry := p.toolsEntry(nil)
	argv := append([]string{"-c", `"$0" "$@" | sed -u "s/^/$(printf '\357\273\277')/"`, entry["command"].(string)},
		entry["args"].([]string)...)
	p.configure(map[string]any{"s": map[string]any{"command": "/bin/sh", "args": argv}}).daemon()
	a := p.agent().shake()
	p.untilReady("s")
	a.send("\ufeff" + `{"jsonrpc":"2.0","id":4711,"method":"tools/call","params":{"name":"s__look","arguments":{"token":"x"}}}`)
	if x := a.wait(4711); x.text() != "x" || p.effectsOf("look x") != 1 {
		t.Errorf("the call: %s", x.raw)
	}
	if s := p.server("s"); s.NoiseLines != 0 {
		t.Errorf("the server: %+v", s)
	}
	a.leave()
}

// TestLogsInAPipe_NoEscapeSequences checks that what a server writes commands no terminal behind a pipe
// unless the user wants that, and that the log has what the server wrote to stdout besides messages.
func TestLogsInAPipe_NoEscapeSequences(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	entry := p.toolsEntry(nil)
	argv := append([]string{"-c", `echo 'a banner'; printf '\033]0;owned\007red\n' >&2; exec "$0" "$@"`, entry["command"].(string)},
		entry["args"].([]string)...)
	p.configure(map[string]any{"s": map[string]any{"command": "/bin/sh", "args": argv}})
	a := p.agent().shake() // which has the server run
	a.wait(a.call("s__look", map[string]any{"token": "x"}))
	out, errs, code := p.run("", "logs", "s")
	if code != 0 || strings.ContainsAny(out, "\x1b\x07") || !strings.Contains(out, "owned?red\n") ||
		!strings.Contains(out, "[stdout, no MCP] a banner\n") {
		t.Errorf("exit %d: %q %s", code, out, errs)
	}
	if out, _, _ := p.run("", "logs", "s", "--raw"); !strings.Contains(out, "\x1b]0;owned\x07red\n") {
		t.Errorf("as it is: %q", out)
	}
}
