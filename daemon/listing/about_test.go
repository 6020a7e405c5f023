package listing_test

import (
	"encoding/json"
	"testing"

	"holdline/daemon/listing"
)

// TestServerDeclaresNoTools_ClientStillAsks checks that the client of one server asks for the tools that
// the server may have without declaring them, and for nothing that it declares as null.
func TestServerDeclaresNoTools_ClientStillAsks(t *testing.T) {
	const tools = `"tools":{"listChanged":true}`
	for about, want := range map[string]string{
		`{"capabilities":{}}`: `{` + tools + `}`, `{"capabilities":null}`: `{` + tools + `}`, `{}`: `{` + tools + `}`,
		`{"capabilities":{"tools":null,"resources":null}}`: `{` + tools + `}`,
		`{"capabilities":{"prompts":{}}}`:                  `{` + tools + `,"prompts":{"listChanged":true}}`,
		`{"capabilities":{"tools":{}}}`:                    `{` + tools + `}`,
	} {
		if got := listing.Describe("s", json.RawMessage(about)).Capabilities; string(got) != want {
			t.Errorf("%s: %s, want %s", about, got, want)
		}
	}
}
