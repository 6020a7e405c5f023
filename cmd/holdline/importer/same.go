package importer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	programs "holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/leaf"
	"holdline/daemon/redact"
	"holdline/daemon/servertable"
)

// environ returns the environment that servers will have, as far as it is known.
func (o *Options) environ() []string {
	if o.Daemon != nil {
		return o.Daemon
	}
	return o.Environ
}

// asSeen returns the settings as the server's process will see them, for comparing: see [Options.resolve]. Options that
// a launcher alone takes notice of are left out. What chooses an account or the like stays as it is written: a value and
// a reference that are the same today need not be the same tomorrow. So do all other references but ${HOME} if the
// environment of servers is not known.
func (o *Options) asSeen(s config.Settings) config.Settings {
	stays, environ := choosesAccount, o.Daemon
	if environ == nil {
		stays, environ = func(name string) bool { return name != "HOME" }, []string{"HOME=" + o.Home}
	}
	s = o.resolve(s, environ, stays)
	s.Args = leaf.Essential(s.Command, s.Args)
	return s
}

// choosesAccount reports whether a variable or a header holds a secret, or chooses what a program works on.
func choosesAccount(name string) bool {
	return redact.NamesSecret(name) || programs.Selecting.Has(name)
}

// resolve returns the settings with variables that have a value in environ expanded, and the program looked up on the PATH that
// will be used. Variables of the entry that change nothing are left out. What cannot be expanded now stays as it is
// written. So do the variables and headers for which stays is true, and every text that refers to such a variable of the
// environment; stays may be nil. The result may hold secrets.
func (o *Options) resolve(s config.Settings, environ []string, stays func(name string) bool) config.Settings {
	outside := expand.Lookup(environ)
	keeps := func(name string) bool { return stays != nil && stays(name) }
	text := func(s string, own map[string]redact.Secret) string {
		for _, name := range expand.Names(s) {
			if _, has := own[name]; !has && keeps(name) {
				return written(s, outside)
			}
		}
		return expanded(s, func(name string) (string, bool) {
			if value, has := own[name]; has {
				return value.Reveal(), true
			}
			return outside(name)
		})
	}
	valueOf := func(name string, secret redact.Secret, own map[string]redact.Secret) string {
		if keeps(name) {
			return written(secret.Reveal(), outside)
		}
		return text(secret.Reveal(), own)
	}
	env := map[string]redact.Secret{}
	for name, secret := range s.Env {
		value := valueOf(name, secret, nil)
		inherited, has := outside(name)
		isInherited := value == "${"+name+"}" || value == inherited && !keeps(name)
		switch {
		case isUnset(secret.Reveal(), outside) && (stays == nil || o.Daemon != nil): // the process has no such variable
		case has && isInherited && resolve.Inherits(s.InheritEnv, name):
		default:
			env[name] = redact.Secret(value)
		}
	}
	s.Env = env
	s.Cwd = o.place(text(s.Cwd, env))
	s.URL = text(s.URL, env)
	s.Headers = maps.Clone(s.Headers)
	for name, secret := range s.Headers {
		s.Headers[name] = redact.Secret(valueOf(name, secret, env))
	}
	args := make([]string, 0, len(s.Args))
	for _, arg := range s.Args {
		args = append(args, text(arg, env))
	}
	s.Args = args
	if s.Command = o.place(text(s.Command, env)); s.Command != "" {
		path := o.Path
		if own := env["PATH"].Reveal(); own != "" || path == "" {
			if path = own; path == "" {
				path, _ = outside("PATH")
			}
		}
		if at, err := programs.LookPath(s.Command, path); err == nil {
			s.Command = at
		}
	}
	return s
}

// optionalVariable matches a variable that need not be set.
var optionalVariable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*):-\}`)

// isUnset reports whether a text is one variable that need not be set, and has no value.
func isUnset(text string, lookup func(string) (string, bool)) bool {
	name := optionalVariable.FindStringSubmatch(text)
	if name == nil || name[0] != text {
		return false
	}
	value, _ := lookup(name[1])
	return value == ""
}

// written returns a text with its variables as they are, but ${NAME} for ${NAME:-} if the variable has a value.
func written(text string, lookup func(string) (string, bool)) string {
	return optionalVariable.ReplaceAllStringFunc(text, func(one string) string {
		name := optionalVariable.FindStringSubmatch(one)[1]
		if value, _ := lookup(name); value == "" {
			return one
		}
		return "${" + name + "}"
	})
}

// expanded returns a text with its variables expanded, or as it is if one of them has no value.
func expanded(text string, lookup func(string) (string, bool)) string {
	if out, err := expand.Text(text, lookup); err == nil {
		return out
	}
	return text
}

// place returns a path with the home directory in place of a leading ~, in its shortest form if it is absolute.
func (o *Options) place(path string) string {
	if path = config.InHome(path, o.Home); filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return path
}

// isSame reports whether two servers differ in nothing that their processes can see, nor in how Holdline is to host
// them; see [sameServer].
func (o *Options) isSame(a, b config.Settings) bool { return sameServer(o.asSeen(a), o.asSeen(b)) }

// differences says how a server differs from another one of its name, for people. How an argument is written does not
// count if the processes see the same arguments.
func (o *Options) differences(s, other *config.Settings) []string {
	mine, others := o.asSeen(*s), o.asSeen(*other)
	if !sameServer(config.Settings{Args: mine.Args}, config.Settings{Args: others.Args}) {
		mine.Args, others.Args = s.Args, other.Args // people know an argument by its number
	}
	return differences(&mine, &others)
}

// setScope sets the scope of a server that moves, and why it has that, and returns its settings. runs is what its launcher
// has started; nil if that is not known.
func (s *server) setScope(o *Options, runs []string) (config.Settings, error) {
	settings, err := s.settings()
	if err != nil {
		return settings, err
	}
	root := ""
	if len(s.Hosting.Projects) > 0 {
		root = s.Hosting.Projects[0]
	}
	scope, why := o.chooseScope(settings, root, runs)
	s.writeScope(scope, why)
	settings.Scope = scope
	return settings, nil
}

// writeScope sets the scope that holdline's file gets, and why it is that.
func (s *server) writeScope(scope, why string) {
	if s.Hosting.Scope, s.scopeWhy = scope, why; scope == config.ScopeProject { // which is the default
		s.Hosting.Scope = ""
	}
}

// chooseScope returns the scope for a server that moves, and why. root is that of the only project that uses it, or "".
func (o *Options) chooseScope(s config.Settings, root string, runs []string) (scope, why string) {
	if o.Scope != "" {
		return o.Scope, "it was asked for by --scope"
	}
	seen := o.resolve(s, o.environ(), nil)
	entry := servertable.Entry{Command: seen.Command, Args: seen.Args, Cwd: seen.Cwd, URL: seen.URL, Env: map[string]string{}}
	for name, value := range seen.Env {
		entry.Env[name] = value.Reveal()
	}
	for name := range s.EnvCommands { // what they print is not known here
		entry.Env[name] = ""
	}
	name := servertable.PackageOf(entry)
	if name != "" {
		entry.Version = installedVersion(runs, name)
	}
	scope, why = servertable.Choose(entry)
	if scope == config.ScopeShared && name != "" && bringsOwn(root, name) {
		return config.ScopeProject, "its project has its own copy of " + name
	}
	return scope, why
}

// installedVersion returns the version of a package of npm, of which a command runs a script; "" if it runs none. npx and
// pnpm name the script by a link in node_modules/.bin, which is followed first.
func installedVersion(argv []string, name string) string {
	for _, arg := range argv {
		if !filepath.IsAbs(arg) {
			continue
		}
		for _, path := range scriptPaths(arg) {
			if version := versionAround(path, name); version != "" {
				return version
			}
		}
	}
	return ""
}

// scriptPaths returns the file that a path leads to, and the path itself.
func scriptPaths(path string) []string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		return []string{at, path}
	}
	return []string{path}
}

// versionAround returns the version of the package that a file is in, if it is installed by that name; else "".
func versionAround(path, name string) string {
	inside := "/node_modules/" + name + "/"
	at := strings.LastIndex(path, inside)
	if at < 0 {
		return ""
	}
	var about struct{ Version string }
	text, err := os.ReadFile(path[:at] + inside + "package.json")
	if err != nil || json.Unmarshal(text, &about) != nil {
		return ""
	}
	return about.Version
}

// bringsOwn reports whether a package is installed in a project, whose own copy npx takes there.
func bringsOwn(root, name string) bool {
	for dir := root; dir != ""; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", name, "package.json")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return false
}
