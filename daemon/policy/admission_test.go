package policy

import (
	"errors"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/protocol"
)

// TestAuthorise checks which token an identity needs.
func TestAuthorise(t *testing.T) {
	c := NewRules(&config.Config{Identities: map[string]config.Identity{"codex": {Token: "right"}, "cursor": {}}})
	for _, x := range []struct {
		identity, token string
		ok              bool
	}{
		{"codex", "right", true},
		{"codex", "wrong", false},
		{"codex", "right ", false},
		{"codex", "", false},
		{"Codex", "", true}, // names are compared with their case
		{"cursor", "", true},
		{"cursor", "right", false}, // no token is configured
		{"unheard", "", true},
		{"unheard", "right", false},
		{"", "", true}, // named later, by the client
		{"", "right", false},
	} {
		err := c.Authorise(x.identity, x.token)
		if (err == nil) != x.ok {
			t.Errorf("Authorise(%q, %q) = %v", x.identity, x.token, err)
		}
		if err == nil {
			continue
		}
		r, ok := errors.AsType[*protocol.Refusal](err)
		if !ok || r.Code != protocol.RefusedIdentity || strings.Contains(r.Message, "right") {
			t.Errorf("Authorise(%q, %q) = %#v", x.identity, x.token, err)
		}
	}
	if !c.Reserved("codex") || c.Reserved("cursor") || c.Reserved("") {
		t.Error("Reserved is wrong")
	}
}

// TestCheckView checks that the refusal of an unknown view names those that there are.
func TestCheckView(t *testing.T) {
	r := NewRules(&config.Config{Views: map[string]config.View{"v": {}}})
	if r.CheckView("v") != nil || r.CheckView("") != nil {
		t.Errorf("a view that is there: %v", r.CheckView("v"))
	}
	if err := r.CheckView("w"); err == nil || err.Error() != `there is no view "w"; those that there are: v` {
		t.Errorf("a view that is not there: %v", err)
	}
}
