package doctor

import (
	"testing"

	"holdline/protocol/control"
)

// TestServerByAddressIsDown_OneFindingSaysSo checks that a remote server that is down is a problem with
// its reason, also while its circuit is open.
func TestServerByAddressIsDown_OneFindingSaysSo(t *testing.T) {
	found := checkServers([]control.Server{{
		Name: "far", State: "unreachable", Circuit: "open", Unreachable: "far cannot be reached: connection refused",
	}}, nil)
	if len(found) != 1 || found[0].State != Problem || found[0].What != "far cannot be reached: connection refused" ||
		found[0].Fix != "if it should be up: holdline servers test far" {
		t.Errorf("findings: %+v", found)
	}
}
