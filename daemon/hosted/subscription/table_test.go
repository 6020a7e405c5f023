package subscription_test

import (
	"fmt"
	"testing"

	"holdline/daemon/hosted/subscription"
	"holdline/daemon/tool"
)

// TestTable checks the life of a subscription: it is made once, held over processes, and
// ended by its holder or with its session.
func TestTable(t *testing.T) {
	table := subscription.New(nil)
	count := func(session, server string) int {
		n := 0
		for range table.Of(session, tool.Who{}, server) {
			n++
		}
		return n
	}
	s, fresh, err := table.Add("a", "", "file:///x", "s", nil)
	if err != nil || !fresh || s.Hold() || !s.Hold() {
		t.Error("a first subscription is not new, or held before it is in force")
	}
	if again, fresh, _ := table.Add("a", "", "file:///x", "s", nil); again != s || fresh {
		t.Error("the same subscription is made twice")
	}
	other, _, _ := table.Add("a", "1", "file:///x", "s", nil)
	table.Add("a", "1", "file:///y", "s", nil)
	if count("a", "s") != 3 || count("a", "other") != 0 || count("b", "s") != 0 || table.Has("b") {
		t.Error("sessions or servers share a subscription")
	}
	table.End("a", "1", "file:///x")
	table.Add("a", "1", "file:///x", "s", nil)
	table.Drop("a", other) // already ended
	if count("a", "s") != 3 {
		t.Error("a subscription is ended that was made after the other")
	}
	if table.End("a", "1", ""); count("a", "s") != 1 {
		t.Error("a holder keeps subscriptions")
	}
	for i := range 256 {
		_, _, err = table.Add("a", "", fmt.Sprint("file:///", i), "s", nil)
	}
	if err == nil {
		t.Error("there is no bound")
	}
	if table.Forget("a"); table.Has("a") {
		t.Error("a session that is over keeps subscriptions")
	}
}
