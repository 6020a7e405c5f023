package spelling

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Compare compares two names as people put them in order: numbers in them count as numbers, so that srv2 comes
// before srv10. It returns 0 for equal names alone.
func Compare(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		one, other := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if order := cmp.Or(cmp.Compare(len(one), len(other)), cmp.Compare(one, other)); order != 0 {
			return order
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b)) // 07 and 7 differ
}

// digits returns how many digits a text begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

// Sorted returns names in the order of [Compare].
func Sorted(names iter.Seq[string]) []string { return slices.SortedFunc(names, Compare) }
