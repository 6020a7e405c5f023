package launch

import (
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/login"
)

// TestTypedClient_SurvivesAStart checks that the start of a process keeps a client that a person has
// typed, and the authorization server to which it is bound.
func TestTypedClient_SurvivesAStart(t *testing.T) {
	const address = "https://far.example/mcp"
	from := Start{Logins: Logins{Dir: t.TempDir() + "/logins"}}
	for name, o := range map[string]config.OAuth{
		"nothing is configured": {}, "something else is configured": {Account: "work", AssumePKCE: true},
	} {
		s := config.Settings{Name: "far", Transport: config.HTTP, OAuth: o}
		store, target := from.Logins.Open(nil), login.TargetID(address, "", "", o.Account)
		var c login.Credentials
		if err := store.Update(t.Context(), target, &c, func() error {
			c.ClientID, c.Secret, c.Typed, c.Bound = "typed", "its secret", true, "https://as.example"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			at, err := from.loginOf(&s, resolve.Around{}, address)
			if err != nil || at.Target != target {
				t.Fatalf("%s: %v, %+v", name, err, at)
			}
		}
		if err := store.Read(target, &c); err != nil || c.ClientID != "typed" || c.Secret != "its secret" || !c.Typed ||
			c.Bound != "https://as.example" || c.AssumePKCE != o.AssumePKCE {
			t.Errorf("%s: %v, %+v", name, err, c)
		}
	}
}
