package claude

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/sandbox"
)

// readLevel returns what holds a run to level read. In any case the model gets no tool that
// writes or executes. Where the kernel has Landlock, it also keeps the program, and all
// that it starts, from writing anything but the program's own files.
func (c *Claude) readLevel(info *engine.Info) engine.Level {
	level := engine.Level{Name: engine.LevelRead, EnforcedBy: engine.ByTools}
	abi, restricted := c.opt.Landlock(), slices.Contains(info.Features, optRestricted)
	if !restricted {
		level.Notes = append(level.Notes, "Claude Code "+info.Version+
			" has no --restricted: settings files are left out by --setting-sources instead, and the kernel alone holds it")
	}
	switch {
	case !restricted && (abi < sandbox.Complete || c.configDir() == ""):
		return engine.Level{Name: engine.LevelRead, Lacks: "Claude Code " + info.Version + " has no --restricted, and " +
			"nothing else holds it on this machine (Linux 6.2 or newer with Landlock could); update it with: claude update"}
	case abi == 0:
		level.Notes = append(level.Notes, "no Landlock on this machine: what keeps the consult from writing is that "+
			"it is offered no tool that could")
		return level
	case c.configDir() == "":
		level.Notes = append(level.Notes, "no Landlock: where Claude Code keeps its login is not known, "+
			"since neither HOME nor CLAUDE_CONFIG_DIR of the daemon is an absolute path")
		return level
	}
	level.EnforcedBy = engine.ByLandlock
	level.Notes = append(level.Notes, fmt.Sprintf("Landlock ABI %d: the kernel lets the program make, write and "+
		"remove files among its transcripts of this project and in a private temporary directory only; "+
		"it keeps no mode, owner, time or extended attribute of your other files from being changed", abi))
	if gaps := sandbox.Gaps(abi); gaps != "" {
		level.Notes = append(level.Notes, gaps)
	}
	return level
}

// shellLevel returns what holds a run to level shell. missing is why bubblewrap does not
// work here, or nil.
//
// Two sandboxes are needed. In the inner one, which is the program's own, its shell
// tool runs commands. The outer one is around the program: without it, the program
// would make directories in the project to guard what is there, and would leave the
// repository behind a work tree open to commands. Landlock cannot be the outer one,
// since it forbids the mounts that the inner one needs.
func (c *Claude) shellLevel(info *engine.Info, missing error) engine.Level {
	level := engine.Level{Name: engine.LevelShell}
	switch {
	case !slices.Contains(info.Features, optRestricted):
		level.Lacks = "Claude Code " + info.Version + " has no --restricted, without which the user's own settings " +
			"could open its sandbox; update it with: claude update"
	case missing != nil:
		level.Lacks = missing.Error()
	case c.configDir() == "":
		level.Lacks = "where Claude Code keeps its login is not known; give the daemon a HOME or CLAUDE_CONFIG_DIR " +
			"that is an absolute path"
	default:
		level.EnforcedBy = engine.BySandbox
	}
	return level
}

// configDir returns the directory in which the program keeps its login and all else
// that it writes. It returns "" if that is not known.
func (c *Claude) configDir() string {
	dir := command.Variable(c.env, configVariable)
	if dir == "" {
		home := command.Variable(c.env, "HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".claude")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Clean(dir)
}

// owned returns what a run may write to: the transcripts of the project that it looks at, and its
// temporary directory. That also has a configuration directory of its own; see [Claude.Furnish].
func (c *Claude) owned(req *engine.Request) []string {
	dirs := []string{c.transcripts(req.Cwd)}
	if req.TempDir != "" {
		dirs = append(dirs, sandbox.Resolved(req.TempDir))
	}
	return dirs
}

// wrapped returns the command line argv inside the outer sandbox. All is read-only
// there except what is owned. That is the same as at level read, but done with mounts, so that the
// program can add its own.
func (c *Claude) wrapped(owned, argv []string) []string {
	wrap := []string{
		sandbox.Wrapper(c.env), "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc",
		"/proc",
	}
	for _, dir := range owned {
		wrap = append(wrap, "--bind", dir, dir)
	}
	return append(append(wrap, "--die-with-parent", "--"), argv...)
}

// unwritable returns the places that the inner sandbox would let commands write to by
// default, and that no command may write to.
func (c *Claude) unwritable(req *engine.Request) []string {
	deny := append([]string{req.Cwd, "/tmp/claude"}, req.AddDirs...)
	if dir := c.configDir(); dir != "" {
		deny = append(deny, filepath.Join(sandbox.Resolved(dir), "debug"), c.transcripts(req.Cwd))
	}
	if home := command.Variable(c.env, "HOME"); home != "" {
		deny = append(deny, sandbox.Resolved(filepath.Join(home, ".claude", "debug")),
			sandbox.Resolved(filepath.Join(home, ".npm", "_logs")))
	}
	return deny
}

// shellSandbox is the setting "sandbox" of the program.
type shellSandbox struct {
	Enabled           bool       `json:"enabled"`
	FailIfUnavailable bool       `json:"failIfUnavailable"`
	AutoAllow         bool       `json:"autoAllowBashIfSandboxed"`
	AllowUnsandboxed  bool       `json:"allowUnsandboxedCommands"`
	Filesystem        shellFiles `json:"filesystem"`
	Credentials       shellKeys  `json:"credentials"`
}

// shellKeys are what a [shellSandbox] hides from commands.
type shellKeys struct {
	Variables []shellKey `json:"envVars"`
	Files     []shellKey `json:"files"`
}

// shellKey is a variable, or a file, that commands do not get.
type shellKey struct {
	Name string `json:"name,omitempty"`
	Path string `json:"path,omitempty"`
	Mode string `json:"mode"`
}

// harmless are the variables of a run that the model's shell gets, besides those of any session.
var harmless = command.NewNames(
	"CLAUDE_CODE_DISABLE_*", "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_TMPDIR", "DISABLE_*", "DO_NOT_TRACK", "GIT_*",
	"NPM_CONFIG_CACHE", configVariable,
)

// hidden returns what keeps the login from the model's shell: each variable of env that is not known to
// be harmless, and the files of the login.
func (c *Claude) hidden(req *engine.Request, env []string) shellKeys {
	const deny = "deny"
	var keys shellKeys
	for _, name := range engine.Names(env) {
		if !command.Core.Has(name) && !harmless.Has(name) {
			keys.Variables = append(keys.Variables, shellKey{Name: name, Mode: deny})
		}
	}
	files := []string{filepath.Join(homeOf(req), fileState), filepath.Join(homeOf(req), fileLogin)}
	if dir := c.configDir(); dir != "" {
		files = append(files, sandbox.Resolved(filepath.Join(dir, fileLogin)), c.stateFile())
	}
	for _, path := range files {
		keys.Files = append(keys.Files, shellKey{Path: path, Mode: deny})
	}
	return keys
}

// shellFiles are the rules of a [shellSandbox] for files.
type shellFiles struct {
	DenyWrite []string `json:"denyWrite"`
}

// settingsOf returns the value of the option --settings for a run. No hook runs,
// whatever file names it. At level shell, commands run in a sandbox or not at all, and
// cannot change the directories that the model looks at. They get none of the keys in env, the
// environment of the run.
func (c *Claude) settingsOf(req *engine.Request, own login, env []string) string {
	if req.Level != engine.LevelShell {
		return settings(own, nil)
	}
	return settings(own, &shellSandbox{
		Enabled: true, FailIfUnavailable: true, AutoAllow: true,
		Filesystem: shellFiles{DenyWrite: c.unwritable(req)}, Credentials: c.hidden(req, env),
	})
}

// settings returns the value of the option --settings with a login and a sandbox; nil
// is no sandbox.
func settings(own login, box *shellSandbox) string {
	all := map[string]any{"disableAllHooks": true}
	for name, command := range own.commands {
		all[name] = command
	}
	if box != nil {
		all["sandbox"] = box
	}
	b, err := json.Marshal(all)
	if err != nil {
		return `{"disableAllHooks":true}` // it has only strings and words
	}
	return string(b)
}
