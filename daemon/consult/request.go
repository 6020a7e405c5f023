package consult

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
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
// settings say.
func (a *arguments) wait(set *Settings) time.Duration {
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
// schema cannot check, resolves paths, and fills in what the settings say. The error is
// a fault.
func (m *Manager) resolve(
	set *Settings, c tool.Caller, a *arguments, eng engine.Engine,
) (engine.Request, time.Duration, error) {
	var none engine.Request
	switch {
	case strings.TrimSpace(strings.Trim(a.Prompt, "\x00")) == "":
		return none, 0, invalid("prompt: must not be blank")
	case len(a.Prompt) > maxPrompt:
		return none, 0, invalid("prompt: %d bytes are too many, at most %d can be taken; name files in it instead of "+
			"quoting them",
			len(a.Prompt), maxPrompt)
	}
	timeout := set.Timeout
	if a.TimeoutS > 0 {
		timeout = min(time.Duration(a.TimeoutS*float64(time.Second)), maxTimeout)
	}
	cwd, err := m.directory(set, c, "cwd", c.Cwd, a.Cwd)
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
		path, err := m.directory(set, c, "add_dirs", cwd, dir)
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

// preset returns req with what the settings say and the call does not. Model and effort
// are words of one engine, so they hold only if the call uses the engine of the
// settings. A limit that the engine cannot hold is left out; it would make each call
// fail.
func preset(set *Settings, req engine.Request, a *arguments, eng engine.Engine) engine.Request {
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

// directory returns the real path of a directory that the consult may look around in.
// dir may be relative to base. The directory must be inside the caller's project or a
// configured root. arg names the argument in faults.
func (m *Manager) directory(set *Settings, c tool.Caller, arg, base, dir string) (string, error) {
	path, info, err := existing(arg, base, dir)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", invalid("%s: %s is not a directory", arg, dir)
	}
	return path, m.allowed(set, c, arg, path)
}

// existing returns the path, without symbolic links, and the file information of
// something that exists. name may be relative to base; base is "" if the client's
// directory is not known. Checks of what is allowed need the path without links: a link
// inside the project may lead out of it.
func existing(arg, base, name string) (string, os.FileInfo, error) {
	if strings.ContainsRune(name, 0) {
		return "", nil, invalid("%s: must not hold a NUL", arg)
	}
	if !filepath.IsAbs(name) {
		if base == "" {
			return "", nil, invalid("%s: must be an absolute path, since the client's own directory is not known", arg)
		}
		name = filepath.Join(base, name)
	}
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, invalid("%s: %s does not exist", arg, name)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	if err != nil {
		return "", nil, invalid("%s: %v", arg, err)
	}
	return path, info, nil
}

// allowed returns nil if a consult may look at the directory path, which must have no
// symbolic links, and a denied fault otherwise. A configured root allows what is below
// it. Otherwise the path must be inside the client's project, and must not be the root,
// the home directory or one of its dot directories: those hold logins and keys.
func (m *Manager) allowed(set *Settings, c tool.Caller, arg, path string) error {
	home := resolved(m.opt.Home)
	for _, root := range set.Roots {
		if root = resolved(root); within(root, path) && !special(home, path, root) {
			return nil
		}
	}
	project := c.Root
	if project == "" {
		project = c.Cwd
	}
	denied := func(what string) error {
		return fault.New(fault.Denied, fault.Host, operation,
			"%s: %s is %s; to allow it, add a directory to consult.roots of the configuration", arg, path, what)
	}
	switch {
	case special(home, path, ""):
		return denied("the root, the home directory or one of its dot directories, which a consult may not read by " +
			"default")
	case project == "" || !within(resolved(project), path):
		return denied("outside of the client's project")
	case resolved(project) != home && within(resolved(project), home) || resolved(project) == "/":
		// A client that was started at the root, or above the home directory,
		// has no project: else all of the disk would be one.
		return denied("in " + project + ", where the client was started, and that is no project")
	}
	return nil
}

// special reports whether path is a place where secrets are: the root directory, the
// home directory or a parent of it, or one of its dot directories. A configured root
// lifts that only if it is this place itself or inside of it: a root that merely
// contains it was not meant to open it.
func special(home, path, root string) bool {
	if path == "/" {
		return root != "/"
	}
	if home == "" || home == "/" {
		return false
	}
	if path == home {
		return root != home
	}
	rest, ok := strings.CutPrefix(path, home+"/")
	if !ok || !strings.HasPrefix(rest, ".") {
		return within(path, home) && root != path // a parent of the home directory holds it, too
	}
	first, _, _ := strings.Cut(rest, "/")
	return !within(home+"/"+first, root)
}

// within reports whether path is dir or is below it. Both must be clean and absolute;
// with dir "" it is false.
func within(dir, path string) bool {
	if dir == "" {
		return false
	}
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolved returns path without symbolic links, or the clean path if it does not exist.
func resolved(path string) string {
	if path == "" {
		return ""
	}
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}

// decode reads arguments into v. The tool's schema has accepted them already.
func decode(raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid("arguments: %v", err)
	}
	return nil
}
