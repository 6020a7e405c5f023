package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// limits are the words for the keywords of JSON Schema that limit a value.
var limits = map[string]string{
	"minimum": "of at least %s", "exclusiveMinimum": "above %s", "maximum": "of at most %s",
	"exclusiveMaximum": "below %s", "multipleOf": "in steps of %s",
	"minLength": "of at least %s characters", "maxLength": "of at most %s characters",
	"minItems": "with at least %s elements", "maxItems": "with at most %s elements",
}

// want returns in words what the schema of an own tool's argument asks for, for example
// "an integer of at least 1". The schema must name its type first.
func want(schema []byte) string { return wantOf(schema, "") }

// wantOf is [want] of an element, if array is not empty: what the array is. An element that has no
// description of its own is described by that.
func wantOf(schema []byte, array string) string {
	noun, pattern, about := "a valid value", "", ""
	var rules []string
	var items []byte
	_ = jsonrpc.Fields(schema, func(key string, value []byte) error {
		text, _ := mcp.String(value)
		switch {
		case key == "type":
			noun = typeWord(text)
		case key == "items":
			items = value
		case key == "enum":
			noun = "one of " + strings.NewReplacer("[", "", "]", "", `"`, "", ",", ", ").Replace(string(value))
		case key == "pattern" && text == `\S`:
			pattern = "that is not blank"
		case key == "pattern":
			pattern = "of another form"
		case key == "description":
			about, _, _ = strings.Cut(text, ". ")
		case limits[key] != "":
			rules = append(rules, fmt.Sprintf(limits[key], value))
		}
		return nil
	})
	if pattern == "of another form" && about != "" {
		// A regular expression says less to most readers than what the argument is.
		return noun + " of another form: " + about
	}
	if pattern == "of another form" && array != "" {
		return noun + ": " + array
	}
	if pattern != "" {
		rules = append(rules, pattern)
	}
	if len(rules) > 0 {
		noun += " " + strings.Join(rules, " and ")
	}
	if items != nil {
		noun += ", each " + wantOf(items, about)
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
	}
	return "a " + t
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
		n := 0
		_ = jsonrpc.Elements(raw, func([]byte) error { n++; return nil })
		return fmt.Sprintf("an array of %d", n)
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
