package runner

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// defaultTimeout is the deadline of a run whose call names none.
const defaultTimeout = 20 * time.Minute

// inputSchema describes [engine.Params] to clients. The daemon fills in all of the
// members. The last six are of no use to a client that starts the process by hand.
const inputSchema = `{"type":"object","additionalProperties":false,"required":["prompt"],"properties":{` +
	`"version":{"type":"integer","const":1},` +
	`"prompt":{"type":"string","minLength":1,"description":"What the program is asked."},` +
	`"cwd":{"type":"string",` +
	`"description":"Directory that the program looks at, absolute. Default: that of this process."},` +
	`"add_dirs":{"type":"array","items":{"type":"string"},"description":"Further directories, absolute."},` +
	`"session":{"type":"string","description":"Session of the program to continue from, in a fork."},` +
	`"model":{"type":"string"},"effort":{"type":"string"},` +
	`"max_turns":{"type":"integer","minimum":0},"max_usd":{"type":"number","minimum":0},` +
	`"level":{"type":"string","enum":["read","shell"],` +
	`"description":"What the program may do at most. Default: read."},` +
	`"web":{"type":"boolean","description":"Web tools are allowed."},` +
	`"schema":{"type":"object","description":"JSON Schema of the answer."},` +
	`"timeout_ms":{"type":"integer","minimum":1,` +
	`"description":"After that the program gives its best answer. Default: 20 minutes."},` +
	`"temp":{"type":"string"},"held":{"type":"array"},"program":{"type":"object"},"dir":{"type":"string"},` +
	`"mask":{"type":"array","items":{"type":"string"}},"ladder":{"type":"object"}}}`

// describeTool returns the tool as tools/list shows it. It is read-only: no level lets
// the program write anything but what is temporary.
func describeTool(name string) map[string]any {
	return map[string]any{
		"name":  engine.Tool,
		"title": "Run " + name,
		"description": "Runs the consult program " + name + " once, confined to reading, and returns its answer. " +
			"Progress says what it does; a cancelled call ends it.",
		"inputSchema": json.RawMessage(inputSchema),
		"annotations": map[string]any{"readOnlyHint": true, "openWorldHint": true},
	}
}

// parseParams reads the arguments of a call and fills in what they leave out. worker is
// the worker that this process belongs to: only under one may the call name a directory
// for files. The error is an invalid_input fault.
func parseParams(raw json.RawMessage, worker string) (engine.Params, error) {
	var p engine.Params
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, invalid("arguments: %v", err)
	}
	switch {
	case cmp.Or(p.Version, engine.Version) != engine.Version:
		return p, invalid("version: %d is not known, this is %d", p.Version, engine.Version)
	case strings.TrimSpace(p.Prompt) == "":
		return p, invalid("prompt: must not be blank")
	case p.Dir != "" && worker == "":
		return p, invalid("dir: only a worker's process writes files")
	case p.Dir != "" && !filepath.IsAbs(p.Dir):
		return p, invalid("dir: must be absolute")
	}
	if p.Cwd == "" {
		cwd, err := os.Getwd()
		if err != nil {
			return p, invalid("cwd: %v", err)
		}
		p.Cwd = cwd
	}
	for _, dir := range append([]string{p.Cwd}, p.AddDirs...) {
		if !filepath.IsAbs(dir) {
			return p, invalid("cwd, add_dirs: %s is not an absolute path", dir)
		}
	}
	if p.TimeoutMS <= 0 {
		p.TimeoutMS = defaultTimeout.Milliseconds()
	}
	if p.Ladder == nil {
		ladder := engine.DefaultLadder()
		p.Ladder = &ladder
	}
	p.Level = cmp.Or(p.Level, engine.LevelRead)
	return p, nil
}

// invalid returns an invalid_input fault. The message begins with the argument's name.
func invalid(format string, args ...any) *fault.Record {
	return fault.New(fault.InvalidInput, fault.Engine, engine.Operation, format, args...)
}
