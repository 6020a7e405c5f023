package hosted

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of one listing. Clients parse a list as a whole: one entry that a
// client cannot parse costs its agent the tools of all servers.
const (
	maxListingDepth = 64
	maxListing      = 1 << 20  // bytes
	maxDescription  = 64 << 10 // bytes
)

// maxFitNotes bounds the notes that [fit] makes of one list.
const maxFitNotes = 5

// fit returns the listings of a kind that clients can be shown. It leaves out
// those for which a client could refuse the whole list, mends what has only one
// meaning, and clips long descriptions. The notes say for people what is left
// out or clipped, and why.
func fit(k kind, all []json.RawMessage) (kept []json.RawMessage, notes []string) {
	kept = all[:0:0]
	changed := 0
	note := func(listing json.RawMessage, what string) {
		if changed++; changed > maxFitNotes {
			return
		}
		name, _ := mcp.String(jsonrpc.Field(listing, k.sort().key))
		notes = append(notes, fmt.Sprintf("%s: %q %s", k.sort().list, clip([]byte(name)), what))
	}
	for _, listing := range all {
		fitted, clipped, err := k.fitOne(listing)
		if err != nil {
			note(listing, "is left out: "+err.Error())
			continue
		}
		if clipped {
			note(listing, fmt.Sprintf("has a description of more than %d KiB: it is clipped", maxDescription>>10))
		}
		kept = append(kept, fitted)
	}
	if changed > maxFitNotes {
		notes = append(notes, fmt.Sprintf("%s: and %d more are left out or clipped", k.sort().list, changed-maxFitNotes))
	}
	return kept, notes
}

// fitOne returns one listing as clients can be shown it, and whether its
// description is clipped. The error says why it has to be left out.
func (k kind) fitOne(listing json.RawMessage) (fitted json.RawMessage, clipped bool, err error) {
	if jsonrpc.DeeperThan(listing, maxListingDepth) {
		return nil, false, fmt.Errorf("it nests deeper than %d levels", maxListingDepth)
	}
	var bad error
	fitted, err = jsonrpc.Rewrite(listing, func(key string, value []byte) []byte {
		switch begins := listingBegins(key); {
		case begins != 0 && string(value) == "null":
			return nil // what some servers write for a member that they leave out
		case begins != 0 && value[0] != begins:
			bad = fmt.Errorf("its %s is of the wrong type", key)
		case key == "description" && len(value) > maxDescription:
			value, clipped = clipText(value, maxDescription)
		}
		return value
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, false, err
	}
	key := k.sort().key
	switch name, _ := mcp.String(jsonrpc.Field(fitted, key)); {
	case name == "":
		return nil, false, fmt.Errorf("it has no %s", key)
	case len(name) > mcp.MaxURI:
		return nil, false, fmt.Errorf("its %s is longer than %d KiB", key, mcp.MaxURI>>10)
	}
	switch {
	case k == tools:
		if fitted, err = fitSchemas(fitted); err != nil {
			return nil, false, err
		}
	case key != "name" && jsonrpc.Field(fitted, "name") == nil: // MCP requires one of resources, too
		fitted = jsonrpc.Prepend(fitted, `"name":`+string(jsonrpc.Field(fitted, key)))
	}
	if len(fitted) > maxListing {
		return nil, false, fmt.Errorf("it is longer than %d MiB", maxListing>>20)
	}
	return fitted, clipped, nil
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
		properties := jsonrpc.Field(jsonrpc.Field(listing, key), "properties")
		if properties == nil {
			continue
		}
		err := jsonrpc.Fields(properties, func(name string, value []byte) error {
			if value[0] != '{' {
				return fmt.Errorf("%s is no schema", clip([]byte(name)))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("properties of its %s: %w", key, err)
		}
	}
	switch is, _ := mcp.String(jsonrpc.Field(schema, "type")); {
	case is == "object":
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

// clipText returns the JSON string text with at most so many bytes of what it
// spells, and reports whether it has more.
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
