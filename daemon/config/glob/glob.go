// Package glob matches names of tools with the patterns of the configuration.
package glob

import (
	"path"
	"strings"
	"unicode/utf8"
)

// Match reports whether a glob names a tool: `*` stands for any run of
// characters, `?` for one, `[a-z]` and `[^a-z]` for one of a class, and a
// backslash takes the next character as it is. A slash is a character like
// any other. A glob that makes no sense names nothing; those of a file are
// refused when it is read.
func Match(glob, name string) bool {
	// Where to go on after a mismatch: behind the last star, which then takes
	// one character more.
	retryGlob, retryName := "", ""
	star := false
	for glob != "" || name != "" {
		if glob != "" {
			elem := element(glob)
			if elem == "*" {
				star, retryGlob, retryName = true, glob[1:], name
				glob = glob[1:]
				continue
			}
			if n := one(elem, name); n > 0 {
				glob, name = glob[len(elem):], name[n:]
				continue
			}
		}
		if !star || retryName == "" {
			return false
		}
		_, n := utf8.DecodeRuneInString(retryName)
		retryName = retryName[n:]
		glob, name = retryGlob, retryName
	}
	return true
}

// element returns the first element of a glob, which must not be empty: a star, a
// question mark, a class in brackets, a backslash with the character behind it, or one
// other character. A class without an end is the whole rest.
func element(glob string) string {
	switch glob[0] {
	case '\\':
		_, n := utf8.DecodeRuneInString(glob[1:])
		return glob[:1+n]
	case '[':
		for i := 1; i < len(glob); i++ {
			switch glob[i] {
			case '\\':
				i++
			case ']':
				return glob[:i+1]
			}
		}
		return glob
	}
	_, n := utf8.DecodeRuneInString(glob)
	return glob[:n]
}

// one returns how many bytes at the beginning of name an element matches, and 0 if it
// does not match. The element must not be a star.
func one(elem, name string) int {
	if name == "" {
		return 0
	}
	_, n := utf8.DecodeRuneInString(name)
	if elem == "?" {
		return n
	}
	if strings.HasPrefix(elem, "[") || strings.HasPrefix(elem, `\`) {
		if ok, err := path.Match(elem, name[:n]); err != nil || !ok {
			return 0
		}
		return n
	}
	if !strings.HasPrefix(name, elem) {
		return 0
	}
	return len(elem)
}
