package request

import (
	"encoding/json"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/material"
	"holdline/daemon/tool"
)

// fakeEngine refuses requests with a limit that it cannot hold. Nothing else is asked of
// it.
type fakeEngine struct {
	engine.Engine
	turns, usd bool // it can hold a limit on these
}

func (e fakeEngine) Fits(req engine.Request) error {
	if req.MaxTurns > 0 && !e.turns || req.MaxUSD > 0 && !e.usd {
		return engine.Invalid("it cannot hold that limit")
	}
	return nil
}

// TestProperties checks that the schema has each of the arguments and no other, and that
// it is a schema.
func TestProperties(t *testing.T) {
	var properties map[string]json.RawMessage
	if err := json.Unmarshal(Properties(), &properties); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(Arguments{})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	for name, schema := range properties {
		if _, there := fields[name]; !there {
			t.Errorf("the schema has %s, which is no argument", name)
		}
		if _, err := tool.Compile(schema, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(fields) != len(properties) {
		t.Errorf("%d arguments, %d in the schema", len(fields), len(properties))
	}
}

// TestResolve checks that what a call does not say comes from the configuration, but only
// as far as the engine can do it.
func TestResolve(t *testing.T) {
	set := config.Default().Consult
	set.Model, set.Effort, set.MaxTurns, set.MaxUSD = "opus", "high", 3, 5
	dir := t.TempDir()
	reader := &material.Reader{Project: dir}
	both := fakeEngine{turns: true, usd: true}
	for name, tt := range map[string]struct {
		args    Arguments
		eng     fakeEngine
		want    engine.Request
		timeout time.Duration
	}{
		"defaults": {
			eng: both, want: engine.Request{Model: "opus", Effort: "high", MaxTurns: 3, MaxUSD: 5, Level: "read"},
			timeout: set.Timeout,
		},
		"said": {
			args: Arguments{Model: "haiku", Effort: "low", MaxTurns: 1, MaxUSD: 1, Level: "shell", TimeoutS: 1.5},
			eng:  both, want: engine.Request{Model: "haiku", Effort: "low", MaxTurns: 1, MaxUSD: 1, Level: "shell"},
			timeout: 1500 * time.Millisecond,
		},
		"another engine": {
			args: Arguments{Engine: "codex"}, eng: fakeEngine{turns: true},
			want: engine.Request{MaxTurns: 3, Level: "read"}, timeout: set.Timeout,
		},
	} {
		tt.args.Prompt = "x"
		req, timeout, err := tt.args.Resolve(&set, reader, dir, tt.eng)
		if err != nil || timeout != tt.timeout || req.Model != tt.want.Model || req.Effort != tt.want.Effort ||
			req.MaxTurns != tt.want.MaxTurns || req.MaxUSD != tt.want.MaxUSD || req.Level != tt.want.Level || !req.Web {
			t.Errorf("%s: %v, %v, %+v", name, err, timeout, req)
		}
	}
	asked := Arguments{Prompt: "x", MaxUSD: 1}
	if _, _, err := asked.Resolve(&set, reader, dir, fakeEngine{}); err == nil {
		t.Error("a limit that the call asks for is left out")
	}
}
