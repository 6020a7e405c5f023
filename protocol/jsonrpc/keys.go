package jsonrpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrSpelling is returned for an object with a key that some readers take for another one. Those
// of Go (encoding/json), .NET and others ignore the case of keys, and some in C what follows a NUL.
var ErrSpelling = errors.New("key in another spelling")

// Keys are the keys that this program knows of one kind of object. What it decides by them, other
// programs must not read in another way: see [Keys.Fields].
type Keys struct {
	Known []string
	// Loose says that keys which are not known may stand twice: nothing is decided by them, and the
	// object goes on as it is.
	Loose bool
}

// envelope has the keys of a message.
var envelope = Keys{Known: []string{"jsonrpc", "id", "method", "params", "result", "error"}}

// Fields is [Fields] for an object with these keys. A key that equals a known one only if case is
// ignored is an error that wraps [ErrSpelling], and so is one that stands twice then, which wraps
// [ErrDuplicate].
func (k *Keys) Fields(obj []byte, f func(key string, value []byte) error) error {
	return members(obj, extent{}, k, func(_ []byte, key string, value []byte) error { return f(key, value) })
}

// passed is the mark of a key that may stand twice. No valid key is equal to it.
const passed = "\xff"

// mark returns what two keys have in common that must not both be in an object: the key itself if it
// is known, else its form for readers that ignore case. To readers in C a key may end before a NUL.
func (k *Keys) mark(key string) (string, error) {
	if slices.Contains(k.Known, key) {
		return key, nil
	}
	start, _, _ := strings.Cut(key, "\x00")
	for _, known := range k.Known {
		if IsSameKey(start, known) {
			return "", fmt.Errorf("%w: %q, which some programs take for %q", ErrSpelling, key, known)
		}
	}
	if k.Loose {
		return passed, nil
	}
	return fold(start), nil
}

// IsSameKey reports whether readers that ignore case take one key for the other.
func IsSameKey(key, known string) bool {
	if len(key) == len(known) && strings.EqualFold(key, known) {
		return true
	}
	longer := key // only with other characters than those of ASCII can keys of two lengths be equal
	if len(known) > len(key) {
		longer = known
	}
	return !isASCII(longer) && fold(key) == fold(known)
}

// isASCII reports whether s has ASCII characters only.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// fold returns a key in the form that is equal for keys between which encoding/json makes no
// difference. So the long s and the Kelvin sign are s and k. The two other forms of i, which some
// languages have, are i.
func fold(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		case r < utf8.RuneSelf:
			return r
		case r == 'ı' || r == 'İ':
			return 'i'
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return unicode.ToLower(least)
	}, key)
}
