package request

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/protocol/fault"
)

// TestPermit checks what the configuration lets identities ask for.
func TestPermit(t *testing.T) {
	plain := config.Default().Consult
	strict := plain
	strict.Allow = map[string]config.Allow{
		"a": {
			Engines: []string{"codex"}, Models: []string{"gpt-*", "o9"}, Levels: []string{"read", "shell"},
			Efforts: []string{"low", "medium"}, MaxTimeout: time.Minute,
		},
		config.Everyone: {Levels: []string{"read"}},
	}
	shell := plain
	shell.Level = "shell"
	ok := engine.Request{Model: "gpt-9/mini", Level: "shell", Effort: "low"}
	for name, tt := range map[string]struct {
		set      config.Consult
		identity string
		eng      string // default: codex
		edit     func(*engine.Request)
		asked    float64       // timeout_s
		want     time.Duration // default: 20 minutes
		says     string        // a part of the refusal
	}{
		"all that is allowed":     {set: strict, identity: "a", asked: 30, want: 30 * time.Second},
		"longest time by default": {set: strict, identity: "a", want: time.Minute},
		"too long": {
			set: strict, identity: "a", asked: 61, says: "timeout_s: a may ask for 60 at most",
		},
		"another engine": {
			set: strict, identity: "a", eng: "claude", says: "consult.allow.a.engines",
		},
		"another model": {
			set: strict, identity: "a", edit: func(r *engine.Request) { r.Model = "o99" }, says: "o99",
		},
		"the program's model": {
			set: strict, identity: "a", edit: func(r *engine.Request) { r.Model = "" }, says: "model",
		},
		"another effort": {
			set: strict, identity: "a", edit: func(r *engine.Request) { r.Effort = "max" }, says: "max",
		},
		"the program's effort": {
			set: strict, identity: "a", edit: func(r *engine.Request) { r.Effort = "" }, says: "effort",
		},
		"shell for others": {
			set: strict, identity: "b", says: "consult.allow.*.levels of the configuration allows",
		},
		"read for others":       {set: strict, identity: "b", edit: func(r *engine.Request) { r.Level = "read" }},
		"shell, not configured": {set: plain, identity: "b", says: "level: b may not ask for shell"},
		"read, not configured":  {set: plain, identity: "b", edit: func(r *engine.Request) { r.Level = "read" }},
		"shell, the default":    {set: shell, identity: "b"},
		"shell, the others' default": {set: func() config.Consult {
			set := strict
			set.Level = "shell"
			return set
		}(), identity: "b", says: "level"},
	} {
		req, eng, timeout := ok, "codex", 20*time.Minute
		if tt.eng != "" {
			eng = tt.eng
		}
		if tt.edit != nil {
			tt.edit(&req)
		}
		a := Arguments{TimeoutS: tt.asked}
		if tt.asked > 0 {
			timeout = time.Duration(tt.asked) * time.Second
		}
		if tt.want == 0 {
			tt.want = timeout
		}
		got, err := a.Permit(&tt.set, tt.identity, eng, &req, timeout)
		f, _ := errors.AsType[*fault.Record](err)
		switch {
		case tt.says == "" && (err != nil || got != tt.want):
			t.Errorf("%s: got %v, %v; want %v", name, got, err, tt.want)
		case tt.says != "" && (f == nil || f.Fault.Code != fault.Denied || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%s: got %v; want a refusal that says %q", name, err, tt.says)
		}
	}
}
