// Package envfile reads files of environment variables: the one for all servers, that of a
// server, and that of consults.
package envfile

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"holdline/daemon/config"
	"holdline/daemon/shellword"
)

// Path returns the path of the file of variables for all servers that belongs to the
// configuration file at path: the file env in the same directory.
func Path(path string) string { return filepath.Join(filepath.Dir(path), "env") }

// Read reads a file of lines NAME=VALUE. It skips empty lines and comments, the
// word `export` before a name, and quotes around a value. If a variable is there
// twice, its last value counts.
//
// The file holds secrets: it must belong to this user, and no other user may be able
// to read it, else the error wraps [config.ErrUnsafe].
func Read(path string) ([]string, error) {
	b, perm, err := config.ReadSafe(path)
	if err != nil {
		return nil, err
	}
	if perm&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s holds secrets and others can read it (mode %04o); fix it with: chmod 600 %s",
			config.ErrUnsafe, path, perm, shellword.Quote(path))
	}
	if len(b) > config.MaxFile {
		return nil, fmt.Errorf("%s: has more than %d bytes", path, config.MaxFile)
	}
	return parse(path, b)
}

// parse reads the lines of a file of variables; see [Read].
func parse(path string, b []byte) ([]string, error) {
	var vars []string
	n := 0
	for line := range bytes.Lines(b) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(string(line), "export "), "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t\x00") || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("%s:%d: wants NAME=VALUE", path, n)
		}
		if q := len(value); q >= 2 && (value[0] == '"' || value[0] == '\'') && value[q-1] == value[0] {
			value = value[1 : q-1]
		}
		vars = append(vars, name+"="+value)
	}
	return vars, nil
}
