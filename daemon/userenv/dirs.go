package userenv

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/command"
	"holdline/protocol/ownfile"
)

// splitPath returns the directories of a PATH in which programs may be looked for. It
// leaves out one with a line break, which the file of the captured PATH could not
// hold.
func splitPath(path string) []string {
	return slices.DeleteFunc(command.SearchDirs(path), func(dir string) bool { return strings.Contains(dir, "\n") })
}

// beyond returns those of dirs that known lacks.
func beyond(dirs, known []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return slices.Contains(known, dir) })
}

// safeDirs returns those of dirs in which no other user but root can put programs.
func safeDirs(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !safeDir(dir) })
}

// withoutOthers returns those of dirs in which no other user but root can put programs now. One
// that does not exist counts as the nearest directory above it that does.
func withoutOthers(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		at := dir
		for at != filepath.Dir(at) {
			if _, err := os.Stat(at); !os.IsNotExist(err) {
				break
			}
			at = filepath.Dir(at)
		}
		return !safeDir(at)
	})
}

// safeDir reports whether dir exists and no other user but root can write it.
func safeDir(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || ownfile.OthersMayWrite(dir, info) {
		return false
	}
	owner := ownfile.Owner(info)
	return owner == 0 || owner == os.Geteuid()
}

// Calling returns the PATH to capture from a shell of the user's: the safe directories
// of calling, its PATH, and behind them those that only the login shell has. If
// calling has no more than login, Calling returns login's directories in their order.
func Calling(calling, login string) string {
	more, all := safeDirs(splitPath(calling)), splitPath(login)
	if len(beyond(more, all)) > 0 {
		all = append(more, beyond(all, more)...)
	}
	return strings.Join(all, string(filepath.ListSeparator))
}

// ShellHas returns for people where a shell with that environment has a program which the daemon
// does not find, and the command that has the daemon look there. It returns "" if the shell does
// not have it either.
func ShellHas(name string, environ []string) string {
	path, err := command.LookPath(name, command.Variable(environ, "PATH"))
	if name == "" || err != nil {
		return ""
	}
	return "Your shell has it at " + path + ". Run: `holdline install --path`"
}

// inDirs returns the path of the program name in the first of the directories that has
// it, or "".
func inDirs(name string, dirs []string) string {
	path, err := command.LookPath(name, strings.Join(dirs, string(filepath.ListSeparator)))
	if err != nil {
		return ""
	}
	return path
}
