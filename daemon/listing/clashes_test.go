package listing

import (
	"reflect"
	"strings"
	"testing"
)

// TestTwoServersHaveOneResource_NoteOnlyForSessionsThatSeeBoth checks that resources of two servers are noted
// once for each pair of servers, and not at all while no session sees both.
func TestTwoServersHaveOneResource_NoteOnlyForSessionsThatSeeBoth(t *testing.T) {
	resources := map[Kind][]string{Resources: {"demo://1", "demo://2", "demo://3", "demo://4", "demo://5"}}
	for _, together := range []bool{false, true} {
		owners := map[string]string{}
		see := func(owner string) bool { return together && owner == "a" }
		if notes := Clashes("a", offering(t, "a", "", resources), owners, see); len(notes) > 0 {
			t.Errorf("of the first server: %q", notes)
		}
		notes := Clashes("b", offering(t, "b", "", resources), owners, see)
		switch {
		case !together && len(notes) > 0:
			t.Errorf("no session sees both: %q", notes)
		case together && (len(notes) != 1 || !strings.Contains(notes[0], "get 5 resources of server a:") ||
			!strings.Contains(notes[0], "and 2 more") || !strings.Contains(notes[0], "--server b")):
			t.Errorf("a session sees both: %q", notes)
		}
		if want := map[string]string{
			"demo://1": "a", "demo://2": "a", "demo://3": "a", "demo://4": "a", "demo://5": "a",
		}; !reflect.DeepEqual(owners, want) {
			t.Errorf("owners = %v", owners)
		}
	}
}
