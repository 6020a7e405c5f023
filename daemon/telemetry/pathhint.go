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

// Bounds of the search for a path: larger or deeper arguments are not looked
// at, so that a call's size cannot make the log slow.
const (
	maxSearched = 1 << 20 // bytes
	maxDepth    = 16
)

// errFound ends the walk of an object.
var errFound = errors.New("found")

// PathHint returns the first path in the arguments of a call, or "". In each
// object it looks at file_path, filePath, path and uri, then at the same of
// textDocument, then into the values in their order; strings that hold JSON
// are looked into as well. A file address becomes a path, of any other one
// the parts that could be secret are dropped.
func PathHint(arguments json.RawMessage) string {
	if len(arguments) > maxSearched || !json.Valid(arguments) {
		return ""
	}
	return search(bytes.TrimSpace(arguments), maxDepth)
}

// search returns the first path in a valid JSON value.
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

// searchObject looks at the members that usually hold a path, then into all others.
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

// direct returns the path in the first of the named members that has one.
func direct(obj []byte, names ...string) string {
	for _, name := range names {
		if path := toPath(text(jsonrpc.Field(obj, name))); path != "" {
			return path
		}
	}
	return ""
}

// text returns the content of a JSON string; "" for any other value.
func text(raw []byte) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// toPath returns the path in a string that may be a URL, without its user, query and
// fragment.
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

// pathLike is what looks like a path: in quotes whatever has a slash in it, else
// words with slashes. It is taken for one too many rather than one too few.
var pathLike = regexp.MustCompile(`"[^"\n]*[/\\][^"\n]*"|'[^'\n]*[/\\][^'\n]*'|[^\s"'(<\[=]*[/\\][^\s"')>\],;]*`)

// withoutPaths returns an error message without the paths that are known to be in
// it and without what looks like one.
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
