package tool

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"holdline/protocol/mcp"
)

// maxPage bounds the entries on one page of a list, in bytes; a single entry may be longer.
// It is far more than a model can use, since some clients never ask for a second page.
const maxPage = 1 << 20

// Page returns the entries of a list that follow the key after, as many as one page takes.
// If there are more, last is the key of the last one returned, else "". The list must be
// sorted by key.
func Page(list []Listing, after string) (part []json.RawMessage, last string) {
	part = []json.RawMessage{}
	i, found := slices.BinarySearchFunc(list, after, func(e Listing, key string) int {
		return cmp.Compare(e.Name, key)
	})
	if found {
		i++
	}
	for size := 0; i < len(list); i++ {
		if size += len(list[i].Raw); size > maxPage && len(part) > 0 {
			return part, list[i-1].Name
		}
		part = append(part, list[i].Raw)
	}
	return part, ""
}

// errCursor is the error for a cursor that no daemon has made.
var errCursor = errors.New("params.cursor is not one that this server gave")

// A cursor is the list's method and the key of the last entry before the page, in base64.
// So it means the same to every daemon and for every process of a server, even if the list
// has changed meanwhile.

// NewCursor returns the cursor of the page that follows the entry with that key.
func NewCursor(method, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(method + "\n" + key))
}

// ParseCursor returns the key in a request's cursor. It returns "" if the request has no
// cursor, which asks for the first page.
func ParseCursor(method string, raw json.RawMessage) (key string, err error) {
	if raw == nil || string(raw) == "null" || string(raw) == `""` {
		return "", nil
	}
	text, _ := mcp.String(raw)
	b, err := base64.RawURLEncoding.DecodeString(text)
	key, ok := strings.CutPrefix(string(b), method+"\n")
	if err != nil || !ok || key == "" {
		return "", errCursor
	}
	return key, nil
}
