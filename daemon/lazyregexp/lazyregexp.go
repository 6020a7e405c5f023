// Package lazyregexp compiles regular expressions when they are first used: most processes need
// few of those that the program has.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the expression. Its first call compiles it, and panics if
// that fails. The function is safe for concurrent use.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
