package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"

	"holdline/protocol/jsonrpc"
)

// Limits of arguments that the cache looks into.
const (
	maxArguments = 1 << 20 // bytes
	maxDepth     = 64
)

// errNoKey reports arguments without a key: they are too large or too deep, or they
// have names that cannot be told apart, for some servers at least.
var errNoKey = errors.New("no key")

// digest returns the SHA-256 of arguments in their canonical form: names sorted at each
// level, and no white space. Strings and numbers keep their spelling, since a tool may
// treat 1 and 1.0 differently. Absent arguments (nil) have a digest of their own.
func digest(arguments []byte) (d [sha256.Size]byte, err error) {
	return digestBy(arguments, names.Fields)
}

// names are those of arguments. Servers that ignore case take the last of those that are equal then,
// which depends on the order.
var names jsonrpc.Keys

// fields is [jsonrpc.Fields], or what is stricter.
type fields func(object []byte, f func(key string, value []byte) error) error

// digestBy is [digest] with a reader of objects.
func digestBy(arguments []byte, of fields) (d [sha256.Size]byte, err error) {
	h := sha256.New()
	if arguments != nil {
		if len(arguments) > maxArguments || !json.Valid(arguments) {
			return d, errNoKey
		}
		if err := canonical(h, bytes.TrimSpace(arguments), 0, of); err != nil {
			return d, err
		}
	}
	h.Sum(d[:0])
	return d, nil
}

// Digest returns a hash of JSON, for example of a tool's schema, that does not depend
// on white space or on the order of names. Absent JSON (nil) has a digest of its own.
// For JSON that is too large or too deep it is the hash of the bytes.
func Digest(raw []byte) [sha256.Size]byte {
	d, err := digestBy(raw, jsonrpc.Fields)
	if err != nil {
		return sha256.Sum256(raw)
	}
	return d
}

// member is a member of an object.
type member struct {
	key   string
	value []byte
}

// canonical writes the canonical form of a valid value to h. It returns errNoKey if the
// value is too deep, or if a name in it cannot be read exactly.
func canonical(h hash.Hash, v []byte, depth int, of fields) error {
	switch {
	case depth > maxDepth:
		return errNoKey
	case v[0] == '{':
		var members []member
		err := of(v, func(key string, value []byte) error {
			members = append(members, member{key, value})
			// Halves of surrogates all read as the replacement character.
			if strings.ContainsRune(key, '\uFFFD') {
				return errNoKey
			}
			return nil
		})
		if err != nil {
			return errNoKey
		}
		slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
		for _, m := range members {
			_, _ = io.WriteString(h, "{"+strconv.Quote(m.key)+":") // a hash takes every write
			if err := canonical(h, m.value, depth+1, of); err != nil {
				return err
			}
		}
		_, _ = io.WriteString(h, "}")
	case v[0] == '[':
		_, _ = io.WriteString(h, "[")
		err := jsonrpc.Elements(v, func(value []byte) error {
			err := canonical(h, value, depth+1, of)
			_, _ = io.WriteString(h, ",")
			return err
		})
		_, _ = io.WriteString(h, "]")
		return err
	default:
		_, _ = h.Write(v)
	}
	return nil
}
