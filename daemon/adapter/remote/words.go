package remote

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdline/protocol/jsonrpc"
)

// maxWords is how much of a server's own words a fault quotes, in bytes.
const maxWords = 200

// bom is the byte order mark, which some servers put before JSON.
var bom = []byte("\xef\xbb\xbf")

// words returns what the body of an error says to people, as `, "…"`, or "" if it is empty or a
// page of HTML.
func words(body []byte) string {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, bom))
	var text string
	switch {
	case len(body) == 0 || body[0] == '<':
		return ""
	case json.Valid(body):
		text = wordsOf(body, 0)
	default:
		text = string(body)
	}
	text = strings.ToValidUTF8(text, "")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if len(text) > maxWords {
		end := maxWords
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end] + "…"
	}
	if text == "" {
		return ""
	}
	return `, "` + text + `"`
}

// wordsOf returns the text for people in a JSON value: a string, or what an object has under the keys
// that servers use for it, also in objects and lists inside. If there is none, it returns the value
// as it is.
func wordsOf(value []byte, depth int) string {
	value = bytes.TrimSpace(value)
	if depth > 4 || len(value) == 0 {
		return ""
	}
	switch value[0] {
	case '"':
		var s string
		_ = json.Unmarshal(value, &s)
		return s
	case '[':
		var parts []string
		_ = jsonrpc.Elements(value, func(one []byte) error {
			if s := wordsOf(one, depth+1); s != "" && len(parts) < 3 {
				parts = append(parts, s)
			}
			return nil
		})
		return strings.Join(parts, "; ")
	case '{':
		var parts []string
		for _, key := range []string{"error_description", "message", "detail", "details", "error", "errors", "title", "msg", "reason"} {
			field := jsonrpc.Field(value, key)
			if field == nil || string(field) == "null" {
				continue
			}
			if s := wordsOf(field, depth+1); s != "" && !slices.Contains(parts, s) {
				parts = append(parts, s)
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, ": ")
		}
	}
	return string(value)
}
