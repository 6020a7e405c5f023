package consult

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/consult/material"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// arguments are the arguments of the tool consult; its schema describes them. Times are
// in seconds.
type arguments struct {
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

	MaxUSD  float64         `json:"max_usd"`
	Schema  json.RawMessage `json:"schema"`
	Files   []string        `json:"files"`
	AddDirs []string        `json:"add_dirs"`
	Diff    string          `json:"diff"`
}

// wait returns how long the call waits for the answer: what it says, else what the
// configuration says.
func (a *arguments) wait(set *config.Consult) time.Duration {
	if a.WaitS == nil {
		return set.Wait
	}
	return time.Duration(*a.WaitS * float64(time.Second))
}

// ID returns the id of the job that line n of a session asks for. It depends on these
// two alone, so a repeated request finds the same job after any crash.
func ID(session string, n int64) string {
	sum := sha256.Sum256([]byte(session + ":" + strconv.FormatInt(n, 10)))
	return hex.EncodeToString(sum[:])[:12]
}

// isID reports whether name has the form of a job's id, and so of its directory.
func isID(name string) bool {
	return len(name) == 12 && strings.Trim(name, "0123456789abcdef") == ""
}

// invalid returns an invalid_input fault. The message begins with the argument's name.
func invalid(format string, args ...any) *fault.Record {
	return fault.New(fault.InvalidInput, fault.Host, operation, format, args...)
}

// resolve returns the request to the engine and the run's deadline. It checks what the
// schema cannot check, resolves paths, and fills in what the configuration says. The error is
// a fault.
func (m *Manager) resolve(
	set *config.Consult, c tool.Caller, a *arguments, eng engine.Engine,
) (engine.Request, time.Duration, error) {
	var none engine.Request
	switch {
	case strings.TrimSpace(strings.Trim(a.Prompt, "\x00")) == "":
		return none, 0, invalid("prompt: must not be blank")
	case len(a.Prompt) > material.MaxPrompt:
		return none, 0, invalid("prompt: %d bytes are too many, at most %d can be taken; name files in it instead of "+
			"quoting them",
			len(a.Prompt), material.MaxPrompt)
	}
	timeout := set.Timeout
	if a.TimeoutS > 0 {
		timeout = time.Duration(a.TimeoutS * float64(time.Second))
	}
	reader := m.reader(set, c)
	cwd, err := reader.Directory("cwd", c.Cwd, a.Cwd)
	if err != nil {
		return none, 0, err
	}
	if err := checkSchema(a.Schema); err != nil {
		return none, 0, err
	}
	req := engine.Request{
		Prompt: a.Prompt, Cwd: cwd, Session: a.Session, Model: a.Model, Effort: a.Effort, MaxTurns: a.MaxTurns,
		Level: cmp.Or(a.Level, set.Level), Web: set.Web, MaxUSD: a.MaxUSD, Schema: a.Schema,
	}
	for _, dir := range a.AddDirs {
		path, err := reader.Directory("add_dirs", cwd, dir)
		if err != nil {
			return none, 0, err
		}
		req.AddDirs = append(req.AddDirs, path)
	}
	if err := eng.Fits(req); err != nil {
		return none, 0, err
	}
	return preset(set, req, a, eng), timeout, nil
}

// reader returns what reads directories, files and diffs for a caller.
func (m *Manager) reader(set *config.Consult, c tool.Caller) *material.Reader {
	return &material.Reader{
		Home: m.opt.Home, Roots: set.Roots, Project: c.Place(), Path: m.opt.Path,
	}
}

// without adds a hint to the fault of a program that is not logged in: those login
// variables which the caller's own environment has and the daemon's has not. has are
// the names of the caller's variables. Other errors are returned as they are.
func without(err error, eng engine.Engine, has []string) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Reason() != fault.NotLoggedIn {
		return err
	}
	names := eng.Without(has)
	if len(names) == 0 {
		return err
	}
	its := *f // a copy: other callers share the fault of a check
	its.Fault.Detail += "; your own environment has " + strings.Join(names, ", ") + ", and the daemon's has not"
	return &its
}

// permit returns a denied fault if the level that req asks for cannot be enforced on
// this machine. A run never falls back to a weaker level.
func permit(req *engine.Request, info *engine.Info) error {
	if lacks := info.Level(req.Level).Lacks; lacks != "" {
		return fault.New(fault.Denied, fault.Host, operation, "level %s cannot be enforced on this machine: %s",
			req.Level, lacks)
	}
	return nil
}

// preset returns req with what the configuration says and the call does not. Model and
// effort are words of one engine, so they hold only if the call uses the engine of the
// configuration. A limit that the engine cannot hold is left out; it would make each call
// fail.
func preset(set *config.Consult, req engine.Request, a *arguments, eng engine.Engine) engine.Request {
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

// decode reads arguments into v. The tool's schema has accepted them already.
func decode(raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid("arguments: %v", err)
	}
	return nil
}
