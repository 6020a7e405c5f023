package consult

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/engine"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// arguments are those of the tool consult.
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
}

// wait is how long the call waits for the answer.
func (a *arguments) wait(set *Settings) time.Duration {
	if a.WaitS == nil {
		return set.Wait
	}
	return time.Duration(*a.WaitS * float64(time.Second))
}

// ID is the id of the job that line n of a session asks for.
func ID(session string, n int64) string {
	sum := sha256.Sum256([]byte(session + ":" + strconv.FormatInt(n, 10)))
	return hex.EncodeToString(sum[:])[:12]
}

// isID tells whether a name is that of a job's directory.
func isID(name string) bool {
	return len(name) == 12 && strings.Trim(name, "0123456789abcdef") == ""
}

func invalid(format string, args ...any) *fault.Record {
	return fault.New(fault.InvalidInput, fault.Host, operation, format, args...)
}

// resolve checks what no schema can, and fills in what the settings say.
func (m *Manager) resolve(set *Settings, c tool.Caller, a *arguments) (engine.Request, time.Duration, error) {
	var none engine.Request
	switch {
	case strings.TrimSpace(strings.Trim(a.Prompt, "\x00")) == "":
		return none, 0, invalid("prompt: must not be blank")
	case len(a.Prompt) > maxPrompt:
		return none, 0, invalid("prompt: %d bytes are too many, at most %d can be taken; name files in it instead of quoting them",
			len(a.Prompt), maxPrompt)
	}
	timeout := set.Timeout
	if a.TimeoutS > 0 {
		timeout = min(time.Duration(a.TimeoutS*float64(time.Second)), maxTimeout)
	}
	cwd, err := m.directory(set, c, a.Cwd)
	if err != nil {
		return none, 0, err
	}
	req := engine.Request{
		Prompt: a.Prompt, Cwd: cwd, Session: a.Session, Model: a.Model, Effort: a.Effort, MaxTurns: a.MaxTurns,
		Level: levelRead, Web: set.Web,
	}
	if req.Model == "" {
		req.Model = set.Model
	}
	if req.Effort == "" {
		req.Effort = set.Effort
	}
	if req.MaxTurns == 0 {
		req.MaxTurns = set.MaxTurns
	}
	return req, timeout, nil
}

// directory is the real path in which the consult may look around: relative
// to the caller's, inside the caller's project or a configured root.
func (m *Manager) directory(set *Settings, c tool.Caller, cwd string) (string, error) {
	if strings.ContainsRune(cwd, 0) {
		return "", invalid("cwd: must not hold a NUL")
	}
	if !filepath.IsAbs(cwd) {
		if c.Cwd == "" {
			return "", invalid("cwd: must be an absolute path, since the client's own directory is not known")
		}
		cwd = filepath.Join(c.Cwd, cwd)
	}
	path, err := filepath.EvalSymlinks(cwd)
	if errors.Is(err, os.ErrNotExist) {
		return "", invalid("cwd: %s does not exist", cwd)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return "", invalid("cwd: %v", err)
	case !info.IsDir():
		return "", invalid("cwd: %s is not a directory", cwd)
	}
	home := resolved(m.opt.Home)
	for _, root := range set.Roots {
		if root = resolved(root); within(root, path) && !special(home, path, root) {
			return path, nil
		}
	}
	project := c.Root
	if project == "" {
		project = c.Cwd
	}
	denied := func(what string) error {
		return fault.New(fault.Denied, fault.Host, operation,
			"cwd: %s is %s; to allow it, add a directory to consult.roots of the configuration", path, what)
	}
	switch {
	case special(home, path, ""):
		return "", denied("the root, the home directory or one of its dot directories, which a consult may not read by default")
	case project == "" || !within(resolved(project), path):
		return "", denied("outside of the client's project")
	case resolved(project) != home && within(resolved(project), home) || resolved(project) == "/":
		// A client that was started at the root, or above the home directory,
		// has no project: else all of the disk would be one.
		return "", denied("in " + project + ", where the client was started, and that is no project")
	}
	return path, nil
}

// special tells whether path is where secrets live: the root, the home
// directory itself, or one of its dot directories. A root that the
// configuration names counts if it is that place or inside of it, not if it
// merely holds it.
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

// within tells whether path is dir or below it. Both are clean and absolute.
func within(dir, path string) bool {
	if dir == "" {
		return false
	}
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolved is path without symbolic links, as far as it exists.
func resolved(path string) string {
	if path == "" {
		return ""
	}
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}

// decode reads arguments that the schema has passed.
func decode(raw json.RawMessage, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid("arguments: %v", err)
	}
	return nil
}
