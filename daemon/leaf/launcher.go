package leaf

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/command"
)

// Options of launchers in front of the package that do not change how its program is started.
var (
	npxOptions  = append([]string{"-y", "--yes", "-q", "--quiet"}, offline...)
	bunOptions  = []string{"--bun", "-y", "--silent"}
	pnpmOptions = []string{"--silent", "-s", "--reporter=silent"}
)

// offline are options by which npm takes a version that it has, which may be an older one.
var offline = []string{"--prefer-offline", "--offline"}

// IsLauncher reports whether a command asks a launcher for the program of a package, in a form that this package knows.
func IsLauncher(program string, args []string) bool {
	w := parse(program, args)
	return w.name != "" && w.unknown == ""
}

// Unknown returns the option of a launcher that keeps its server from being started without it, since it may change
// anything; "" for every other command.
func Unknown(program string, args []string) string { return parse(program, args).unknown }

// Package returns the package whose program a command asks a launcher for, with the version or tag that the command
// gives it, and the arguments of that program. ok is false for every other command, for one with an option that this
// package does not know, and for one whose options name the package or the program that runs it.
func Package(program string, args []string) (spec string, rest []string, ok bool) {
	w := readCommand(program, args)
	return w.name, w.rest, w.isPackage()
}

// Essential returns the arguments of a command without the options of its launcher that do not change which program
// runs, such as -y. Two commands of one program for which it returns the same start the same.
func Essential(program string, args []string) []string {
	w := readCommand(program, args)
	if !w.isPackage() {
		return args
	}
	return slices.Concat([]string{"exec"}, w.offline, []string{w.name, "--"}, w.rest)
}

// wish is what a command asks a launcher for.
type wish struct {
	name    string // of the program, or of its package if no option names one; "" for another command
	unknown string // the first option that this package does not know
}

// asked is a command that asks a launcher for a program.
type asked struct {
	wish

	rest    []string // arguments of the program
	chooses bool     // an option names the package, or what runs its program
	offline []string // options that decide which version of the package runs
}

// isPackage reports whether a command asks for the program of a package, and has no option that changes which one.
func (w *asked) isPackage() bool { return w.name != "" && w.unknown == "" && !w.chooses }

// parse returns what a command asks a launcher for, where its program can be found. uvx and pipx are no launchers here: while the program runs, uv holds
// the lock that keeps its environment from being pruned.
func parse(program string, args []string) wish {
	if !canFind {
		return wish{}
	}
	return readCommand(program, args).wish
}

// readCommand returns what a command asks a launcher for.
func readCommand(program string, args []string) (w asked) {
	options, packages := npxOptions, []string{"-p", "--package"}
	var verbs []string // one of these comes first
	isNPM := false
	switch filepath.Base(program) {
	case "npx":
	case "npm":
		isNPM, verbs = true, []string{"exec", "x"}
	case "bunx":
		options, packages = bunOptions, nil
	case "bun":
		options, packages, verbs = bunOptions, nil, []string{"x"}
	case "pnpx":
		options, packages = pnpmOptions, packages[1:]
	case "pnpm":
		options, packages, verbs = pnpmOptions, packages[1:], []string{"dlx"}
	default:
		return w
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		long, _, hasValue := strings.Cut(arg, "=")
		switch {
		case slices.Contains(options, arg):
			w.chooses = w.chooses || arg == "--bun"
			if slices.Contains(offline, arg) {
				w.offline = append(w.offline, arg)
			}
		case slices.Contains(packages, arg):
			w.chooses = true
			i++ // its value
		case hasValue && slices.Contains(packages, long) && strings.HasPrefix(long, "--"):
			w.chooses = true
		case len(verbs) > 0 && slices.Contains(verbs, arg):
			verbs = nil
		case len(verbs) > 0: // it does something else
			return asked{}
		case arg == "--":
			rest := args[i+1:]
			if w.name == "" && len(rest) > 0 {
				w.name, rest = rest[0], rest[1:]
			}
			w.rest = append(w.rest, rest...)
			return w
		case strings.HasPrefix(arg, "-"):
			w.unknown = cmp.Or(w.unknown, arg)
		case isNPM: // it takes options behind the package, too
			if w.name != "" {
				w.rest = append(w.rest, arg)
			}
			w.name = cmp.Or(w.name, arg)
		default:
			w.name, w.rest = arg, args[i+1:]
			return w
		}
	}
	if w.name == "" && w.unknown == "" || len(verbs) > 0 {
		return asked{}
	}
	return w
}

// isShell reports whether a program is a shell, by its path.
func isShell(exe string) bool {
	switch filepath.Base(exe) {
	case "sh", "dash", "bash", "zsh", "ash", "ksh", "mksh", "busybox", "fish":
		return true
	}
	return false
}

// isInterpreter reports whether a program runs the script that its arguments name, by its path.
func isInterpreter(exe string) bool {
	switch name := strings.TrimSuffix(filepath.Base(exe), ".exe"); name { // npm's package of bun has bun.exe
	case "node", "nodejs", "bun", "deno":
		return true
	default:
		return strings.HasPrefix(name, "python")
	}
}

// isLaunchersOwn reports whether launchers set a variable for the programs that they start.
func isLaunchersOwn(name string) bool {
	switch name {
	case "INIT_CWD", "NODE", "COLOR", "EDITOR", "NODE_PATH":
		return true
	}
	return strings.HasPrefix(name, "npm_") || strings.HasPrefix(name, "pnpm_") ||
		strings.HasPrefix(name, "PNPM_") || strings.HasPrefix(name, "BUN_")
}

// isSessions reports whether a variable is another one after each login of the user, and means nothing to a launcher.
func isSessions(name string) bool { return ofSessions.Has(name) }

var ofSessions = command.NewNames(
	"SSH_*", "DBUS_*", "GPG_*", "DISPLAY", "WAYLAND_*", "XAUTHORITY", "SESSION_MANAGER", "TERM*", "COLUMNS", "LINES",
	"TMUX*", "STY", "WINDOW*", "VTE_*", "XDG_RUNTIME_DIR", "XDG_SESSION_*", "XDG_VTNR",
)

// isShells reports whether shells set a variable by themselves.
func isShells(name string) bool {
	switch name {
	case "_", "PWD", "OLDPWD", "SHLVL":
		return true
	}
	return false
}
