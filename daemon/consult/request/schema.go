package request

import (
	"encoding/json"

	"holdline/daemon/adapter/engines"
)

// Properties returns the JSON Schema of each of the [Arguments].
func Properties() json.RawMessage {
	return json.RawMessage(`{
"prompt":{"type":"string","minLength":1,
	"description":"The whole question, with everything the other model must know. At most 9 MiB."},
"cwd":{"type":"string","minLength":1,"maxLength":4096,
	"description":"Directory to look around in; relative to yours, and inside your project unless ` +
		`the configuration allows more. Default: your own."},
"session":{"type":"string",
	"pattern":"^([0-9a-f]{12}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$",
	"description":"Session id of an earlier answer to go on from. It is forked, never changed; ` +
		`the new answer names its own session."},
"model":{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._:/@\\[\\]-]{0,127}$",
	"description":"opus, sonnet, haiku or a full model name. Default: the program's."},
"effort":{"type":"string","enum":["low","medium","high","xhigh","max"],
	"description":"How hard the model thinks. Default: the model's."},
"max_turns":{"type":"integer","minimum":1,"maximum":10000,
	"description":"At most so many turns of the model. Default: no limit."},
"timeout_s":{"type":"number","exclusiveMinimum":0,"maximum":86400,
	"description":"After so many seconds it is asked for its best answer so far, and ended. ` +
		`Default: 1200, unless configured."},
"wait_s":{"type":"number","minimum":0,"maximum":86400,
	"description":"How long this call waits for the answer, in seconds. 0 only starts it. Default: 100."},
"level":{"type":"string","enum":["read","shell"],
	"description":"What it may do: read is no more than reading; shell runs commands, too, in a sandbox ` +
		`without network, where they can write nothing but temporary files, and is refused where there ` +
		`is none, or where the configuration does not allow it. Default: read, unless configured."},
"engine":{"type":"string","pattern":"^` + engines.Pattern() + `$",
	"description":"The program that answers: ` + engines.Join(func(e *engines.Engine) string { return e.Name }) +
		` or, where the configuration has agents, acp:NAME. Default: claude, unless configured."},
"engines":{"type":"array","minItems":2,"maxItems":8,` +
		`"items":{"type":"string","pattern":` +
		`"^[a-z]+(:[A-Za-z0-9_-]{1,32})?(/[A-Za-z0-9][A-Za-z0-9._:/@\\[\\]-]{0,127})?$"},
	"description":"Asks several at once, each an engine or ENGINE/MODEL, such as [\"claude/opus\",\"codex\"]; ` +
		`the answers come side by side. Instead of engine, model and session."},
"judge":{"type":"string","pattern":"^[a-z]+(:[A-Za-z0-9_-]{1,32})?(/[A-Za-z0-9][A-Za-z0-9._:/@\\[\\]-]{0,127})?$",
	"description":"With engines: who then compares their answers, without knowing whose they are."},
"max_usd":{"type":"number","exclusiveMinimum":0,"maximum":10000,
	"description":"It may cost so many US dollars (checked after each answer of the model). ` +
		`Not for codex and agents, which cannot hold it."},
"schema":{"type":"object",
	"description":"JSON Schema of an object: the answer is a JSON object of that form, checked, or a fault."},
"files":{"type":"array","maxItems":64,"items":{"type":"string","minLength":1,"maxLength":4096},
	"description":"Files to quote behind the prompt, relative to cwd; long ones are cut at 256 KiB."},
"add_dirs":{"type":"array","maxItems":16,"items":{"type":"string","minLength":1,"maxLength":4096},
	"description":"More directories to look around in, relative to cwd, where the configuration allows them."},
"diff":{"type":"string","pattern":"^[A-Za-z0-9_@][A-Za-z0-9_./@^~{}-]{0,199}$",
	"description":"Puts a git diff of cwd behind the prompt: uncommitted, staged, or a branch or commit ` +
		`to compare with, such as main."}}`)
}
