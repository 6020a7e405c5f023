package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"holdline/protocol/jsonrpc"
)

// Bounds of the search for a path. Arguments that are larger or deeper are not
// searched: no call may make the log slow.
const (
	maxSearched = 1 << 20 // bytes
	maxDepth    = 16
)

// errFound ends the walk through an object once a path is found.
var errFound = errors.New("found")

// pathHint returns the first path in the arguments of a call, or "" if it finds none.
//
// In each object it looks at the members file_path, filePath, path and uri, then at
// those of textDocument, then into all values in their order. It also looks into
// strings that hold JSON. A file URL becomes a path. Of any other URL it drops the
// user, the query and the fragment, which may be secrets.
func pathHint(arguments json.RawMessage) string {
	if len(arguments) > maxSearched || !json.Valid(arguments) {
		return ""
	}
	return search(bytes.TrimSpace(arguments), maxDepth)
}

// search returns the first path in a valid JSON value, or "". depth is the number of
// levels that it may still enter.
func search(raw []byte, depth int) string {
	if depth == 0 || len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '{':
		return searchObject(raw, depth)
	case '[':
		var elements []json.RawMessage
		if json.Unmarshal(raw, &elements) != nil {
			return ""
		}
		for _, e := range elements {
			if path := search(e, depth-1); path != "" {
				return path
			}
		}
	case '"':
		inner := bytes.TrimSpace([]byte(text(raw)))
		if len(inner) > 0 && (inner[0] == '{' || inner[0] == '[') && json.Valid(inner) {
			return search(inner, depth-1)
		}
	}
	return ""
}

// searchObject looks first at the members that usually hold a path, and then into all
// others.
func searchObject(raw []byte, depth int) string {
	if path := direct(raw, "file_path", "filePath", "path", "uri"); path != "" {
		return path
	}
	if doc := jsonrpc.Field(raw, "textDocument"); len(doc) > 0 && doc[0] == '{' {
		if path := direct(doc, "uri", "file_path", "filePath", "path"); path != "" {
			return path
		}
	}
	path := ""
	_ = jsonrpc.Fields(raw, func(_ string, value []byte) error {
		if path = search(value, depth-1); path != "" {
			return errFound
		}
		return nil
	})
	return path
}

// direct returns the path in the first of the named members that has one, or "".
func direct(obj []byte, names ...string) string {
	for _, name := range names {
		if path := toPath(text(jsonrpc.Field(obj, name))); path != "" {
			return path
		}
	}
	return ""
}

// text returns the content of a JSON string, and "" for any other value.
func text(raw []byte) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// toPath returns the path in a string that may be a URL. Of a URL that is no file it
// returns scheme, host and path.
func toPath(s string) string {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "://") {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	if u.Scheme == "file" {
		return u.Path
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// hiddenPath stands for a path in an error message.
const hiddenPath = "<path>"

// pathLike matches what looks like a path: a quoted string with a slash in it, and a
// word with one. It matches rather too much than too little.
var pathLike = regexp.MustCompile(`"[^"\n]*[/\\][^"\n]*"|'[^'\n]*[/\\][^'\n]*'|[^\s"'(<\[=]*[/\\][^\s"')>\],;]*`)

// withoutPaths returns an error message without the known paths and without all that
// looks like a path. It replaces the known ones first, since they may contain spaces or
// no slash.
func withoutPaths(message string, known ...string) string {
	for _, path := range known { // it may have spaces, or no slash
		if len(path) > 1 {
			message = strings.ReplaceAll(message, path, "/path")
		}
	}
	return pathLike.ReplaceAllStringFunc(message, func(path string) string {
		if rest := strings.TrimRight(path, ":."); rest != "" && path[0] != '"' && path[0] != '\'' {
			return hiddenPath + path[len(rest):] // what follows is the sentence's
		}
		return hiddenPath
	})
}
