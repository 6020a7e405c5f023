package listing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of one listing. Clients parse a list as a whole: one entry that a
// client cannot parse costs its agent the tools of all servers.
const (
	maxDepth       = 64
	maxListing     = 1 << 20  // bytes
	maxDescription = 64 << 10 // bytes
)

// maxFitNotes bounds the notes that [Fit] makes of one list, and those on one of its listings.
const maxFitNotes = 5

// Fit returns the listings of a kind that clients can be shown. It drops those for
// which a client could refuse the whole list, fixes errors that have only one remedy,
// and clips long descriptions. The notes tell the user what was dropped or clipped,
// and why: at most [maxFitNotes], and one with the number of the others. It does not
// change all.
func Fit(k Kind, all []json.RawMessage) (kept []json.RawMessage, notes []string) {
	kept = all[:0:0]
	changed := 0
	note := func(listing json.RawMessage, what string) {
		if changed++; changed > maxFitNotes {
			return
		}
		name, _ := mcp.String(jsonrpc.Field(listing, k.MCP().Key))
		notes = append(notes, fmt.Sprintf("%s: %q %s", k.MCP().List, fault.Quote([]byte(name)), what))
	}
	for _, listing := range all {
		fitted, less, err := k.fitOne(listing)
		if err != nil {
			note(listing, "is left out: "+err.Error())
			continue
		}
		if less != "" {
			note(listing, less)
		}
		kept = append(kept, fitted)
	}
	if changed > maxFitNotes {
		notes = append(notes, fmt.Sprintf("%s: and %d more are left out or clipped", k.MCP().List, changed-maxFitNotes))
	}
	return kept, notes
}

// fitOne returns one listing as clients can be shown it. less says what was taken
// out of it, or is "". The error says why the whole listing has to be dropped.
func (k Kind) fitOne(listing json.RawMessage) (fitted json.RawMessage, less string, err error) {
	if jsonrpc.DeeperThan(listing, maxDepth) {
		return nil, "", fmt.Errorf("it nests deeper than %d levels", maxDepth)
	}
	if err = mcp.EntryObject.Check(listing); err != nil {
		return nil, "", err
	}
	var l lost
	if fitted, err = fitMembers("", listing); err != nil {
		return nil, "", err
	}
	fitted, err = jsonrpc.Rewrite(fitted, func(key string, value []byte) []byte {
		switch {
		case key == "description" && len(value) > maxDescription:
			var clipped bool
			if value, clipped = clipText(value, maxDescription); clipped {
				l.add("has a description of more than %d KiB: it is clipped", maxDescription>>10)
			}
		case key == "outputSchema" && k == Tools && !isOfObjects(value):
			l.add("has an outputSchema that is not of type object: that is not shown")
			return nil
		}
		return value
	})
	if err != nil {
		return nil, "", err
	}
	key := k.MCP().Key
	switch name, _ := mcp.String(jsonrpc.Field(fitted, key)); {
	case name == "":
		return nil, "", fmt.Errorf("it has no %s", key)
	case len(name) > mcp.MaxURI:
		return nil, "", fmt.Errorf("its %s is longer than %d KiB", key, mcp.MaxURI>>10)
	}
	switch {
	case k == Tools:
		if fitted, err = l.fitSchemas(fitted); err != nil {
			return nil, "", err
		}
	case key != "name" && jsonrpc.Field(fitted, "name") == nil: // MCP requires one of resources, too
		fitted = jsonrpc.Prepend(fitted, `"name":`+string(jsonrpc.Field(fitted, key)))
	}
	if len(fitted) > maxListing {
		return nil, "", fmt.Errorf("it is longer than %d MiB", maxListing>>20)
	}
	return fitted, strings.Join(l, "; "), nil
}

// memberTypes has the members of a listing (""), and of the objects in it by the member
// that holds them, with the first bytes of the JSON values that each may have. MCP says
// nothing of other members, which are left as they are.
var memberTypes = map[string]map[string]string{
	"": {
		"name": `"`, "title": `"`, "description": `"`, "uri": `"`, "uriTemplate": `"`, "mimeType": `"`,
		"inputSchema": "{", "outputSchema": "{", "annotations": "{", "execution": "{", "_meta": "{",
		"icons": "[", "arguments": "[",
	},
	"annotations": {
		"title": `"`, "readOnlyHint": "tf", "destructiveHint": "tf", "idempotentHint": "tf", "openWorldHint": "tf",
		"audience": "[", "priority": "0123456789", "lastModified": `"`,
	},
	"execution": {"taskSupport": `"`},
	"icons":     {"src": `"`, "mimeType": `"`, "sizes": "[", "theme": `"`},
	"arguments": {"name": `"`, "description": `"`, "required": "tf"},
}

// lost are the notes on what a listing has lost.
type lost []string

// add adds a note, unless it is there. Beyond [maxFitNotes] it adds one that says that there are more.
func (l *lost) add(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if len(*l) >= maxFitNotes {
		note = "has lost more"
	}
	if len(*l) <= maxFitNotes && !slices.Contains(*l, note) {
		*l = append(*l, note)
	}
}

// fitMembers returns an object without members that are null; some servers write null for
// a member that they leave out. An empty list in place of an object is one without members, as programs in PHP write
// it. The error says which of the others clients could refuse.
// of is the member of the listing that holds the object; "" is the listing itself.
func fitMembers(of string, object []byte) (json.RawMessage, error) {
	var bad error
	fitted, err := jsonrpc.Rewrite(object, func(member string, value []byte) []byte {
		begins := memberTypes[of][member]
		if begins == "{" && (isEmptyList(value) || member == "inputSchema" && string(value) == "true") {
			value = []byte("{}")
		}
		switch {
		case begins == "":
		case string(value) == "null":
			return nil
		case of == "icons" && member == "sizes" && value[0] == '"': // as a draft of MCP had it
			return append(append([]byte{'['}, value...), ']')
		case strings.IndexByte(begins, value[0]) < 0 && of == "":
			bad = fmt.Errorf("its %s is of the wrong type", member)
		case strings.IndexByte(begins, value[0]) < 0:
			bad = fmt.Errorf("%s in its %s is of the wrong type", member, of)
		case of == "" && memberTypes[member] != nil:
			fitted, err := fitWithin(member, value)
			if err != nil {
				bad = err
			}
			return fitted
		}
		return value
	})
	if err != nil && of != "" {
		err = fmt.Errorf("its %s: %w", of, err)
	}
	return fitted, errors.Join(err, bad)
}

// isEmptyList reports whether a value is a list without elements.
func isEmptyList(value []byte) bool {
	return len(value) > 1 && value[0] == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
}

// fitWithin is [fitMembers] for the value of a member of a listing: an object, or a list
// of objects.
func fitWithin(member string, value []byte) (json.RawMessage, error) {
	if value[0] != '[' {
		return fitMembers(member, value)
	}
	list := []byte{'['}
	err := jsonrpc.Elements(value, func(object []byte) error {
		fitted, err := fitMembers(member, object)
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, fitted...)
		return err
	})
	return append(list, ']'), err
}

// isOfObjects reports whether a schema says that it is of type object.
func isOfObjects(schema []byte) bool {
	is, _ := mcp.String(jsonrpc.Field(schema, "type"))
	return is == "object"
}

// fitSchemas returns the listing of a tool with an input schema of type object,
// as MCP requires it. A schema without a type gets this one, since arguments are
// always an object; one of another type is an error.
func (l *lost) fitSchemas(listing json.RawMessage) (json.RawMessage, error) {
	const object = `"type":"object"`
	if jsonrpc.Field(listing, "inputSchema") == nil {
		return jsonrpc.Prepend(listing, `"inputSchema":{`+object+`}`), nil
	}
	var bad error
	listing, err := jsonrpc.Rewrite(listing, func(key string, schema []byte) []byte {
		if key != "inputSchema" && key != "outputSchema" {
			return schema
		}
		fitted, err := l.fitSchema(key, schema)
		bad = errors.Join(bad, err)
		return fitted
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, err
	}
	switch schema := jsonrpc.Field(listing, "inputSchema"); {
	case isOfObjects(schema):
		return listing, nil
	case jsonrpc.Field(schema, "type") != nil:
		return nil, errors.New("its inputSchema is not of type object")
	default:
		return jsonrpc.Replace(listing, "inputSchema", jsonrpc.Prepend(schema, object))
	}
}

// fitSchema returns a schema for which clients, and the models' APIs behind them, refuse nothing. It looks only at
// type, properties and required. of is the member that has the schema.
func (l *lost) fitSchema(of string, schema []byte) (json.RawMessage, error) {
	return jsonrpc.Rewrite(schema, func(member string, value []byte) []byte {
		switch {
		case member != "type" && member != "properties" && member != "required":
		case string(value) == "null":
			return nil
		case member == "type" && mayBeObject(value):
			return []byte(`"object"`)
		case member == "properties" && isEmptyList(value):
			return []byte("{}")
		case member == "properties":
			fitted, err := jsonrpc.Rewrite(value, func(name string, one []byte) []byte {
				switch {
				case one[0] == '{':
					return one
				case string(one) == "true", isEmptyList(one):
					return []byte("{}")
				case string(one) == "false":
					return []byte(`{"not":{}}`)
				}
				l.add("has %s in the properties of its %s, which is no schema: that is not shown",
					fault.Quote([]byte(strconv.Quote(name))), of)
				return nil
			})
			if err == nil {
				return fitted
			}
			l.add("has properties in its %s that cannot be read: they are not shown", of)
			return nil
		case member == "required":
			return l.fitRequired(of, value)
		}
		return value
	})
}

// mayBeObject reports whether a type is a list of types that has object.
func mayBeObject(value []byte) bool {
	has := false
	err := jsonrpc.Elements(value, func(one []byte) error {
		has = has || string(one) == `"object"`
		return nil
	})
	return err == nil && has
}

// fitRequired returns the names in the list of what a schema requires; nil if it is no list.
func (l *lost) fitRequired(of string, value []byte) []byte {
	names, isLess := []byte{'['}, false
	err := jsonrpc.Elements(value, func(name []byte) error {
		if isLess = isLess || name[0] != '"'; name[0] != '"' {
			return nil
		}
		if len(names) > 1 {
			names = append(names, ',')
		}
		names = append(names, name...)
		return nil
	})
	if err == nil && !isLess {
		return value
	}
	l.add("has required in its %s, which is no list of names: what is no name is not shown", of)
	if err != nil {
		return nil
	}
	return append(names, ']')
}

// clipText returns the JSON string text, cut to about most bytes of its decoded
// content, and reports whether it was cut. It never cuts within a character.
func clipText(text []byte, most int) ([]byte, bool) {
	s, ok := mcp.String(text)
	if !ok || len(s) <= most {
		return text, false
	}
	for !utf8.RuneStart(s[most]) {
		most--
	}
	return jsonrpc.AppendString(nil, strings.TrimSpace(s[:most])+"…"), true
}
