package e2e

import (
	"fmt"
	"strings"
	"testing"

	"holdline/protocol"
)

// TestUsage checks that an invalid command line is refused with exit code 2, with the word
// that is wrong, and with the help of that command.
func TestUsage(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	for _, c := range []struct {
		args string
		says string
		of   string
	}{
		{"nonsense", "nonsense", ""},
		{"servrs", "did you mean holdline servers?", ""},
		{"servers lst", "did you mean holdline servers list?", " servers"},
		{"stat", "did you mean holdline status?", ""},
		{"bogus", "there is no command holdline bogus\n", ""},
		{"telemetry -q", "holdline telemetry has no flag -q\n", " telemetry"},
		{"metrics --x", "holdline metrics has no flag --x\n", " metrics"},
		{"import --from", "--from of holdline import wants a value\n", " import"},
		{"completion tcsh", "no completions for tcsh, but for: bash, fish, powershell, zsh\n", " completion"},
		{"completion bash x", "too many arguments", " completion bash"},
		{"status --jsn", "did you mean --json?", " status"},
		{"servers tools --changes --accept", "--accept and --changes cannot be used together", " servers tools"},
		{"consult lst", "did you mean holdline consult list?", ""}, // has a hint of its own, as the next one
		{"consult show me that", `a prompt that begins with "show"`, ""},
		{"consult show", "an argument is missing: holdline consult show ID", " consult show"},
		{"hosts add", "an argument is missing: holdline hosts add HOST", " hosts add"},
		{"servers add --nonsense", "--nonsense", ""}, // has a hint of its own
		{"status --nonsense", "--nonsense", " status"},
		{"logs -n -5", `--lines of holdline logs wants a whole number, 0 or more, not "-5"`, " logs"},
		{"status --json=maybe", `--json of holdline status wants true or false, not "maybe"`, " status"},
		{"consult --timeout soon x", `--timeout of holdline consult wants a time such as 90s or 1h30m, not "soon"`, " consult"},
		{"consult --max-usd much x", `--max-usd of holdline consult wants a number, not "much"`, " consult"},
		{"consult --max-turns 1.5 x", `--max-turns of holdline consult wants a whole number, not "1.5"`, " consult"},
		{"status --=3", "--=3 is no flag", " status"},
		{"servers logs x -n -5", "-5", " servers logs"},
		{"servers stop x --config other.json", "--config", " servers stop"}, // the daemon has its own
		{"daemon --idle-exit -5s", "-5s", " daemon"},
		{"consult prefix -", `"-"`, " consult"},
		{"consult --max-turns 0 x", "--max-turns: must be above 0 (got 0)", " consult"},
		{"consult --timeout -3s x", "--timeout: must be above 0 (got -3s)", " consult"},
		{"consult --max-usd 0 x", "--max-usd: must be above 0 (got 0)", " consult"},
		{"consult --effort huge x", "effort", " consult"},
		{"config gte", "did you mean holdline config get?", " config"},
		{"servers lsit", "did you mean holdline servers list?", " servers"},
		{"completion zhs", "did you mean zsh?", " completion"},
		{"setup --from codex,claud", `"claud" is not known; these are: claude, `, " setup"},
		{"setup --from claud", "; did you mean claude?\n", " setup"},
		{"status --color alway", "; did you mean always?\n", " status"},
		{"consult --engine claud x", "; did you mean claude?\n", " consult"},
		{"consult --model codex x", "codex is an engine, not a model\nhint: to ask it: holdline consult --engine codex PROMPT\n", ""},
		{"consult --model claude/opus x", "hint: to ask it: holdline consult --engine claude --model opus PROMPT\n", ""},
		{"consult --engine claude/opus x", "hint: to ask it: holdline consult --engine claude --model opus PROMPT\n", ""},
		{"consult --engine opus x", "; a model is named with --model\n", " consult"},
		{"consult --engine claude --model acp:x y", "hint: to ask it: holdline consult --engine acp:x PROMPT\n", ""},
		{"import --scope sharred", "; did you mean shared?\n", " import"},
		{"servers add x --transport htp http://x", "; did you mean http?\n", " servers add"},
		{"servers add pg --yes --", "no flag --yes; and COMMAND is missing behind the --\nhint: for example: " +
			"holdline servers add pg -- npx -y @modelcontextprotocol/server-filesystem .\n", ""},
		{"servers add pg --", "COMMAND or URL is missing\nhint: for example: holdline servers add pg -- npx", ""},
		{"servers add pg npx -y x", "hint: put -- before COMMAND, as in: holdline servers add pg -- npx", ""},
		{"import --from codex,nope", `"nope" is not known; these are: claude, codex,`, " import"},
		{"consult --cwd /nowhere x", "/nowhere", " consult"},
		{"consult --cwd=~/nowhere x", "/home/nowhere does not exist", " consult"},
		{"consult --schema=~/nothing x", "/home/nothing: no such file", " consult"},
	} {
		_, errs, code := p.run("what is wrong", strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(errs, c.says) {
			t.Errorf("holdline %s: exit %d, want %q\n%s", c.args, code, c.says, errs)
		}
		if c.of != "" && !strings.Contains(errs, "hint: see holdline"+c.of+" --help\n") ||
			strings.Count(errs, "hint: ") != 1 {
			t.Errorf("holdline %s does not say where its help is:\n%s", c.args, errs)
		}
	}
	for _, blank := range []string{"", " \n"} {
		if _, errs, code := p.run(blank, "consult"); code != exitUsage ||
			!strings.Contains(errs, "the prompt is missing\nhint: holdline consult '") {
			t.Errorf("consult without a prompt: exit %d\n%s", code, errs)
		}
	}
	// The user of the command line knows the commands, and not the tools of agents.
	p.daemon()
	for _, verb := range []string{"show", "wait", "cancel", "rm"} {
		_, errs, code := p.run("", "consult", verb, "abc")
		if code != exitFailure ||
			errs != "holdline: there is no consult \"abc\"; those that there are: holdline consult list\n" {
			t.Errorf("consult %s abc: exit %d\n%s", verb, code, errs)
		}
	}
	// The refusal of a name in a greeting says where to look, and the limit is described
	// there.
	_, errs, code := p.run(piped, "mcp-stdio", "--identity", strings.Repeat("x", 200))
	if code != exitFailure || !strings.Contains(errs, "mcp-stdio --help says what names may look like") {
		t.Errorf("a long name: exit %d\n%s", code, errs)
	}
	help := p.must("mcp-stdio", "--help")
	for n, valid := range map[int]bool{128: true, 129: false} {
		_, err := protocol.ParseGreeting(protocol.Append(nil, protocol.Greeting{
			Holdline: protocol.Version, Role: protocol.RoleMCP, Session: "00000000-0000-4000-8000-000000000000",
			Identity: strings.Repeat("x", n),
		}))
		if valid != (err == nil) || valid != strings.Contains(help, fmt.Sprintf("at most %d bytes", n)) {
			t.Errorf("a name of %d bytes: %v; the help says:\n%s", n, err, help)
		}
	}
}
