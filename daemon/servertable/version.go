package servertable

import (
	"strings"
)

// splitSpec returns the name of a package and its version or tag, or where else it is from; "" if there is none. The
// name may begin with an @.
func splitSpec(spec string) (name, version string) {
	if spec == "" {
		return "", ""
	}
	name, version, _ = strings.Cut(spec[1:], "@")
	return spec[:1] + name, version
}

// likeTried reports whether a version, as npm takes it, is like the one that was tried: the newest one, or one of the
// same major version. Before 1.0 every minor version may change everything.
func likeTried(version, tried string) bool {
	if version == "" || version == "latest" || version == tried {
		return true
	}
	if strings.HasPrefix(version, "^") || strings.HasPrefix(version, "~") {
		version = version[1:]
	}
	v, t := strings.Split(version, "."), strings.Split(tried, ".")
	for _, part := range v { // a range, a tag or a version before its release has other characters
		if part != "x" && part != "*" && !isNumber(part) {
			return false
		}
	}
	if len(v) > 3 || v[0] != t[0] {
		return false
	}
	return v[0] != "0" || len(v) > 1 && v[1] == t[1]
}

// isNumber reports whether a text has only digits.
func isNumber(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}
