package project

import (
	"os"
	"path/filepath"
	"strings"
)

// systemFiles are the places of git's configuration for the whole machine: of Linux, of a git
// that the administrator has built, and of Homebrew. Tests set others.
var systemFiles = []string{"/etc/gitconfig", "/usr/local/etc/gitconfig", "/opt/homebrew/etc/gitconfig"}

// trusted reports whether git's safe.directory, in the configuration of the machine or of the
// user, names dir, a clean absolute path. It reads the files itself: the proxy starts no git.
// Files that these include are not read.
func trusted(dir string) bool {
	files := append([]string{}, systemFiles...)
	if config, err := os.UserConfigDir(); err == nil {
		files = append(files, filepath.Join(config, "git", "config"))
	}
	home, err := os.UserHomeDir()
	if err == nil {
		files = append(files, filepath.Join(home, ".config", "git", "config"), filepath.Join(home, ".gitconfig"))
	}
	named := false
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, value := range safeDirectories(string(data)) {
			named = value != "" && (named || names(value, dir, home)) // an empty value takes back those before it
		}
	}
	return named
}

// names reports whether a value of safe.directory names dir: by its path, by "*", or by the path
// of a directory above it with "/*" at its end.
func names(value, dir, home string) bool {
	if value == "*" {
		return true
	}
	if rest, ok := strings.CutPrefix(value, "~/"); ok && home != "" {
		value = filepath.Join(home, rest)
	}
	if base, ok := strings.CutSuffix(value, "/*"); ok {
		rel, err := filepath.Rel(base, dir)
		return err == nil && rel != "." && filepath.IsLocal(rel)
	}
	return filepath.IsAbs(value) && filepath.Clean(value) == dir
}

// safeDirectories returns the values of safe.directory in a file of git's configuration, in
// their order.
func safeDirectories(config string) []string {
	var values []string
	section := ""
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			name, rest, _ := strings.Cut(line[1:], "]")
			section, line = strings.TrimSpace(name), strings.TrimSpace(rest)
		}
		key, value, _ := strings.Cut(line, "=")
		if strings.EqualFold(section, "safe") && strings.EqualFold(strings.TrimSpace(key), "directory") {
			values = append(values, unquote(strings.TrimSpace(value)))
		}
	}
	return values
}

// unquote returns the value of a line of git's configuration without its quotes, escapes and
// comment.
func unquote(value string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(value):
			i++
			b.WriteByte(value[i])
		case !quoted && (c == '#' || c == ';'):
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
