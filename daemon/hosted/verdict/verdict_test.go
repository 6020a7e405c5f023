package verdict

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"holdline/protocol/fault"
)

// TestVerdictKept checks what of a verdict its file keeps: an ejection, with its fault,
// holds while the entry of the server is unchanged, a stop by the user whatever the entry.
// A server that may have processes has no file.
func TestVerdictKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	why := fault.New(fault.SpawnFailure, fault.Server, "start:s", "it is broken")
	at := time.UnixMilli(7)
	for _, tc := range []struct {
		name         string
		is           Verdict
		same, edited Verdict // as read for the same entry, and for an edited one
	}{
		{name: "free"},
		{name: "stopped", is: Verdict{Stopped: true}, same: Verdict{Stopped: true}, edited: Verdict{Stopped: true}},
		{
			name: "ejected",
			is:   Verdict{Ejected: []string{"q", "p"}, Fault: why, FaultAt: at},
			same: Verdict{Ejected: []string{"p", "q"}, Fault: why, FaultAt: at},
		},
		{
			name:   "stopped after a failure",
			is:     Verdict{Stopped: true, Fault: why, FaultAt: at},
			same:   Verdict{Stopped: true},
			edited: Verdict{Stopped: true},
		},
	} {
		if err := tc.is.Write(path, "key"); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if _, err := os.Stat(path); os.IsNotExist(err) != (tc.name == "free") {
			t.Errorf("%s: the file: %v", tc.name, err)
		}
		for key, want := range map[string]Verdict{"key": tc.same, "other": tc.edited} {
			if got, err := Read(path, key); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, read for %s: %+v, %v; want %+v", tc.name, key, got, err, want)
			}
		}
	}
}
