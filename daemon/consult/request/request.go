// Package request makes the request to an engine out of the arguments of a call of the
// tool consult.
//
// The tool's own schema, see [Properties], is checked before a call gets here. This
// package checks what a schema cannot say: the sizes of prompt and schema, that the
// directories exist and may be read, and that the engine can do what is asked. What a call
// does not say comes from the configuration.
package request

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/form"
	"holdline/daemon/config"
	"holdline/daemon/consult/material"
)

// Arguments are the arguments of the tool consult; [Properties] describes them. Times are
// in seconds. A zero value means that the call does not say it, except for WaitS, where 0
// has a meaning of its own.
type Arguments struct {
	Prompt   string   `json:"prompt"`
	Cwd      string   `json:"cwd"`
	Session  string   `json:"session"`
	Model    string   `json:"model"`
	Effort   string   `json:"effort"`
	MaxTurns int      `json:"max_turns"`
	TimeoutS float64  `json:"timeout_s"`
	WaitS    *float64 `json:"wait_s"`
	Level    string   `json:"level"`
	Engine   string   `json:"engine"`
	Engines  []string `json:"engines"`
	Judge    string   `json:"judge"`

	MaxUSD  float64         `json:"max_usd"`
	Schema  json.RawMessage `json:"schema"`
	Files   []string        `json:"files"`
	AddDirs []string        `json:"add_dirs"`
	Diff    string          `json:"diff"`
}

// Wait returns how long the call waits for the answer: what it says, else what the
// configuration says.
func (a *Arguments) Wait(set *config.Consult) time.Duration {
	if a.WaitS == nil {
		return set.Wait
	}
	return time.Duration(*a.WaitS * float64(time.Second))
}

// Resolve returns the request to the engine and the run's deadline. It checks what the
// schema cannot check, resolves paths, of which cwd is the caller's own directory, and
// fills in what the configuration says. The error is a fault.
func (a *Arguments) Resolve(
	set *config.Consult, reader *material.Reader, cwd string, eng engine.Engine,
) (engine.Request, time.Duration, error) {
	var none engine.Request
	switch {
	case strings.TrimSpace(strings.Trim(a.Prompt, "\x00")) == "":
		return none, 0, engine.Invalid("prompt: must not be blank")
	case len(a.Prompt) > material.MaxPrompt:
		return none, 0, engine.Invalid("prompt: %d bytes are too many, at most %d can be taken; name files in it "+
			"instead of quoting them",
			len(a.Prompt), material.MaxPrompt)
	}
	timeout := set.Timeout
	if a.TimeoutS > 0 {
		timeout = time.Duration(a.TimeoutS * float64(time.Second))
	}
	cwd, held, err := reader.Directory("cwd", cwd, a.Cwd)
	if err != nil {
		return none, 0, err
	}
	if err := form.Check(a.Schema); err != nil {
		return none, 0, err
	}
	req := engine.Request{
		Prompt: a.Prompt, Cwd: cwd, Session: a.Session, Model: a.Model, Effort: a.Effort, MaxTurns: a.MaxTurns,
		Level: cmp.Or(a.Level, set.Level), Web: set.Web, MaxUSD: a.MaxUSD, Schema: a.Schema,
		Held: []engine.Directory{held},
	}
	for _, dir := range a.AddDirs {
		path, held, err := reader.Directory("add_dirs", cwd, dir)
		if err != nil {
			return none, 0, err
		}
		req.AddDirs, req.Held = append(req.AddDirs, path), append(req.Held, held)
	}
	// What the call asks for must fit. Later, preset leaves out what does not.
	if err := eng.Fits(req); err != nil {
		return none, 0, err
	}
	return a.preset(set, req, eng), timeout, nil
}

// preset returns req with what the configuration says and the call does not. An agent has a
// model of its own there. Model and
// effort are words of one engine, so they hold only if the call uses the engine of the
// configuration. A limit that the engine cannot hold is left out; it would make each call
// fail.
func (a *Arguments) preset(set *config.Consult, req engine.Request, eng engine.Engine) engine.Request {
	if agent, ok := set.Agent(cmp.Or(a.Engine, set.Engine)); ok {
		req.Model = cmp.Or(req.Model, agent.Model)
	}
	if a.Engine == "" || a.Engine == set.Engine {
		req.Model, req.Effort = cmp.Or(req.Model, set.Model), cmp.Or(req.Effort, set.Effort)
	}
	// Each limit is tried by itself: an engine that cannot hold one may hold the other.
	for _, with := range []func(*engine.Request){
		func(r *engine.Request) { r.MaxTurns = cmp.Or(r.MaxTurns, set.MaxTurns) },
		func(r *engine.Request) { r.MaxUSD = cmp.Or(r.MaxUSD, set.MaxUSD) },
	} {
		more := req
		with(&more)
		if eng.Fits(more) == nil {
			req = more
		}
	}
	return req
}
