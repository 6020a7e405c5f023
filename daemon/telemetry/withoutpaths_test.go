package telemetry

import (
	"testing"

	"holdline/protocol/fault"
)

// TestWithoutPaths checks that paths in a message are replaced.
func TestWithoutPaths(t *testing.T) {
	for _, x := range []struct{ message, want string }{
		{"exit code 1", "exit code 1"},
		{"open /home/me/secret plan.txt: no such file", "open <path> plan.txt: no such file"},
		{"open /home/me/my plan.txt: no such file", "open <path>: no such file"}, // the call's own path
		{`cannot read "/a b/c d": denied`, `cannot read <path>: denied`},
		{"chdir ~/src/x, then ../y/z.go:12.", "chdir <path>, then <path>."},
		{"see file:///etc/passwd or C:\\Users\\me\\x", "see <path> or <path>"},
		{"in /p/project is nothing", "in <path> is nothing"},
		{"(cwd=/srv/x)", "(cwd=<path>)"},
		{"main.go", "<path>"}, // the root-relative name that the call named
	} {
		known := "/home/me/my plan.txt"
		if x.message == "main.go" {
			known = "main.go"
		}
		if got := withoutPaths(x.message, known, "/p/project"); got != x.want {
			t.Errorf("%s\nis  %s\nwant %s", x.message, got, x.want)
		}
	}
}

// TestPathsOff checks that without paths the log has none in the texts of errors either.
func TestPathsOff(t *testing.T) {
	c := &Call{
		Tool: "read", Root: "/p", Arguments: []byte(`{"path":"/p/x y"}`),
		Fault: fault.New(fault.InvalidInput, fault.Server, "x", "open /p/x y: no such file"),
	}
	if got := callLineOf(c, 0, false).Message; got != "open <path>: no such file" {
		t.Errorf("without paths: %s", got)
	}
	if got := callLineOf(c, 0, true).Message; got != "open /p/x y: no such file" {
		t.Errorf("with paths: %s", got)
	}
}
