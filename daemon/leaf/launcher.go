package leaf

import (
	"path/filepath"
	"slices"
	"strings"
)

// Options of launchers in front of the package that do not change how its program is started.
var (
	npxOptions  = []string{"-y", "--yes", "-q", "--quiet", "--prefer-offline", "--offline", "--"}
	bunOptions  = []string{"--bun", "-y", "--silent", "--"}
	pnpmOptions = []string{"--silent", "-s", "--reporter=silent"}
)

// IsLauncher reports whether a command asks a launcher for the program of one package, in a form that this package
// knows.
func IsLauncher(command string, args []string) bool { return asked(command, args) != "" }

// asked returns the package whose program a command asks a launcher for, as it names it; "" for another command, and
// for one with an option that this package does not know, which may change anything. uvx and pipx are no launchers
// here: while the program runs, uv holds the lock that keeps its environment from being pruned.
func asked(command string, args []string) string {
	options := npxOptions
	switch name := filepath.Base(command); name {
	case "npx":
	case "npm":
		if len(args) == 0 || args[0] != "exec" && args[0] != "x" {
			return ""
		}
		args = args[1:]
	case "bunx":
		options = bunOptions
	case "bun":
		if len(args) == 0 || args[0] != "x" {
			return ""
		}
		args, options = args[1:], bunOptions
	case "pnpx", "pnpm":
		for len(args) > 0 && slices.Contains(pnpmOptions, args[0]) {
			args = args[1:]
		}
		if name == "pnpm" {
			if len(args) == 0 || args[0] != "dlx" {
				return ""
			}
			args = args[1:]
		}
		options = pnpmOptions
	default:
		return ""
	}
	for len(args) > 0 && slices.Contains(options, args[0]) {
		args = args[1:]
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return ""
	}
	return args[0]
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
	switch name := filepath.Base(exe); name {
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

// isShells reports whether shells set a variable by themselves.
func isShells(name string) bool {
	switch name {
	case "_", "PWD", "OLDPWD", "SHLVL":
		return true
	}
	return false
}
