package command

import (
	"maps"
	"slices"
	"strings"
)

// Variable returns the value of a variable in an environment: that of its last
// entry, or "" if there is none.
func Variable(environ []string, name string) string {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// Environ returns the variables as a sorted environment. Its PATH has only the
// directories of [SearchDirs]. Without any there is no PATH, since an empty one
// means the working directory.
func Environ(variables map[string]string) []string {
	env := make([]string, 0, len(variables))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		if name == "PATH" {
			if value = SafePath(value); value == "" {
				continue
			}
		}
		env = append(env, name+"="+value)
	}
	return env
}

// HasAnyPrefix reports whether name begins with one of prefixes.
func HasAnyPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
