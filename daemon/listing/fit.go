package listing

import (
	"encoding/json"
	"errors"
	"fmt"
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

// maxFitNotes bounds the notes that [Fit] makes of one list.
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
	var bad error
	fitted, err = jsonrpc.Rewrite(listing, func(key string, value []byte) []byte {
		switch begins := listingBegins(key); {
		case begins != 0 && string(value) == "null":
			return nil // what some servers write for a member that they leave out
		case begins != 0 && value[0] != begins:
			bad = fmt.Errorf("its %s is of the wrong type", key)
		case key == "description" && len(value) > maxDescription:
			var clipped bool
			if value, clipped = clipText(value, maxDescription); clipped {
				less = fmt.Sprintf("has a description of more than %d KiB: it is clipped", maxDescription>>10)
			}
		case k == Tools && key == "outputSchema" && !isOfObjects(value):
			less = "has an outputSchema that is not of type object: that is not shown"
			return nil
		default:
			fitted, err := fitWithin(key, value)
			bad = errors.Join(bad, err)
			return fitted
		}
		return value
	})
	if err = errors.Join(err, bad); err != nil {
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
		if fitted, err = fitSchemas(fitted); err != nil {
			return nil, "", err
		}
	case key != "name" && jsonrpc.Field(fitted, "name") == nil: // MCP requires one of resources, too
		fitted = jsonrpc.Prepend(fitted, `"name":`+string(jsonrpc.Field(fitted, key)))
	}
	if len(fitted) > maxListing {
		return nil, "", fmt.Errorf("it is longer than %d MiB", maxListing>>20)
	}
	return fitted, less, nil
}

// listingBegins returns the first byte of the JSON values that a member of a
// listing may have, or 0 if MCP does not say.
func listingBegins(key string) byte {
	switch key {
	case "name", "title", "description", "uri", "uriTemplate", "mimeType":
		return '"'
	case "inputSchema", "outputSchema", "annotations", "execution", "_meta":
		return '{'
	case "icons", "arguments":
		return '['
	}
	return 0
}

// within has the members of the objects in a listing, with the first bytes of the
// JSON values that each may have. A member that is absent is fine; one with null is
// removed.
var within = map[string]map[string]string{
	"annotations": {
		"title": `"`, "readOnlyHint": "tf", "destructiveHint": "tf", "idempotentHint": "tf", "openWorldHint": "tf",
		"audience": "[", "priority": "0123456789", "lastModified": `"`,
	},
	"execution": {"taskSupport": `"`},
	"icons":     {"src": `"`, "mimeType": `"`, "sizes": "[", "theme": `"`},
	"arguments": {"name": `"`, "description": `"`, "required": "tf"},
}

// fitWithin returns the value of a member of a listing without the null members of
// the objects in it. The error says which of the others clients could refuse.
func fitWithin(key string, value []byte) ([]byte, error) {
	types := within[key]
	if types == nil {
		return value, nil
	}
	fitObject := func(object []byte) (json.RawMessage, error) {
		var bad error
		fitted, err := jsonrpc.Rewrite(object, func(member string, value []byte) []byte {
			switch begins := types[member]; {
			case begins != "" && string(value) == "null":
				return nil
			case begins != "" && strings.IndexByte(begins, value[0]) < 0:
				bad = fmt.Errorf("%s in its %s is of the wrong type", member, key)
			}
			return value
		})
		if err != nil {
			return nil, fmt.Errorf("its %s: %w", key, err)
		}
		return fitted, bad
	}
	if value[0] != '[' {
		return fitObject(value)
	}
	list := []byte{'['}
	err := jsonrpc.Elements(value, func(object []byte) error {
		fitted, err := fitObject(object)
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
func fitSchemas(listing json.RawMessage) (json.RawMessage, error) {
	const object = `"type":"object"`
	schema := jsonrpc.Field(listing, "inputSchema")
	if schema == nil {
		return jsonrpc.Prepend(listing, `"inputSchema":{`+object+`}`), nil
	}
	for _, key := range []string{"inputSchema", "outputSchema"} {
		if err := fitSchema(jsonrpc.Field(listing, key)); err != nil {
			return nil, fmt.Errorf("its %s: %w", key, err)
		}
	}
	switch {
	case isOfObjects(schema):
		return listing, nil
	case jsonrpc.Field(schema, "type") != nil:
		return nil, errors.New("its inputSchema is not of type object")
	}
	return jsonrpc.Rewrite(listing, func(key string, value []byte) []byte {
		if key == "inputSchema" {
			return jsonrpc.Prepend(value, object)
		}
		return value
	})
}

// fitSchema returns why clients could refuse a schema, or nil. It looks only at
// properties and required. The schema may be nil.
func fitSchema(schema []byte) error {
	if properties := jsonrpc.Field(schema, "properties"); properties != nil {
		err := jsonrpc.Fields(properties, func(name string, value []byte) error {
			if value[0] != '{' {
				return fmt.Errorf("%s is no schema", fault.Quote([]byte(name)))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("properties: %w", err)
		}
	}
	if required := jsonrpc.Field(schema, "required"); required != nil {
		err := jsonrpc.Elements(required, func(value []byte) error {
			if value[0] != '"' {
				return fmt.Errorf("%s is no name", fault.Quote(value))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("required: %w", err)
		}
	}
	return nil
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
