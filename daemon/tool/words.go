package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// want renders what a schema asks for in words: "an integer of at least 1".
func want(s *jsonschema.Schema) string {
	if len(s.Enum) > 0 {
		names := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			names[i] = fmt.Sprint(e)
		}
		return "one of " + strings.Join(names, ", ")
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = typeWord(t)
	}
	if s.Type == "array" && s.Items != nil {
		words = []string{"an array whose elements are each " + want(s.Items)}
	}
	noun := strings.Join(words, " or ")
	if noun == "" {
		noun = "a valid value"
	}
	if rules := rules(s); len(rules) > 0 {
		return noun + " " + strings.Join(rules, " and ")
	}
	return noun
}

// typeWord returns a type of JSON Schema with its article.
func typeWord(t string) string {
	switch t {
	case "boolean":
		return "true or false"
	case "integer", "array", "object":
		return "an " + t
	case "null":
		return t
	}
	return "a " + t
}

// rules returns the limits of a schema in words.
func rules(s *jsonschema.Schema) []string {
	var out []string
	number := func(word string, n *float64) {
		if n != nil {
			out = append(out, fmt.Sprintf("%s %v", word, *n))
		}
	}
	count := func(word, unit string, n *int) {
		if n != nil {
			out = append(out, fmt.Sprintf("%s %d %s", word, *n, unit))
		}
	}
	number("of at least", s.Minimum)
	number("above", s.ExclusiveMinimum)
	number("of at most", s.Maximum)
	number("below", s.ExclusiveMaximum)
	number("in steps of", s.MultipleOf)
	count("of at least", "characters", s.MinLength)
	count("of at most", "characters", s.MaxLength)
	count("with at least", "elements", s.MinItems)
	count("with at most", "elements", s.MaxItems)
	switch s.Pattern {
	case "":
	case `\S`:
		out = append(out, "that is not blank")
	default:
		out = append(out, "that matches "+s.Pattern)
	}
	return out
}

// maxGot bounds what of a value is repeated in an error.
const maxGot = 40

// got describes a value that was given, without repeating prose: an error's text is
// logged, and arguments must not be.
func got(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		var s string
		switch {
		case json.Unmarshal(raw, &s) != nil:
			return "a string"
		case strings.TrimSpace(s) == "":
			return "a blank string"
		case len(s) <= maxGot && isWord(s):
			return `"` + s + `"`
		}
		return fmt.Sprintf("a string of %d characters", utf8.RuneCountInString(s))
	}
	return fault.Short(string(raw), maxGot)
}

// label returns a name that a client made up, fit for an error.
func label(name string) string {
	if isWord(name) {
		return fault.Short(name, maxGot)
	}
	return fmt.Sprintf("%q", fault.Short(name, maxGot))
}

// isWord reports whether s is one word of letters, digits and - _ .
func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != ""
}

// maxArgumentDepth is how deep arguments of an own tool may nest.
const maxArgumentDepth = 64

// noDuplicates returns an error if a key stands twice in any object of raw, which is
// valid JSON: readers disagree about which of the two counts. Each level is read
// anew, so that raw must not nest deep.
func noDuplicates(raw []byte) error {
	switch raw[0] {
	case '{':
		return jsonrpc.Fields(raw, func(_ string, value []byte) error { return noDuplicates(value) })
	case '[':
		return jsonrpc.Elements(raw, noDuplicates)
	}
	return nil
}
