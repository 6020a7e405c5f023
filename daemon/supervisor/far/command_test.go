package far

import (
	"slices"
	"strings"
	"testing"
)

// TestCommand checks the arguments by which each kind of host is reached. The program is looked for
// on the PATH of the environment that is given.
func TestCommand(t *testing.T) {
	always := []string{
		"-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "RemoteCommand=none",
	}
	options := slices.Concat([]string{"-T", "-o", "ClearAllForwardings=yes"}, always)
	env := []string{"PATH=/nonexistent"}
	for _, c := range []struct {
		host  string
		alone bool
		want  []string
		moves bool
	}{
		{"me@box", false, slices.Concat([]string{"ssh"}, options, []string{"--", "me@box", "sh", "-c", "'x y'"}), true},
		{"box", true, slices.Concat([]string{"ssh", "-o", "ControlPath=none"}, options,
			[]string{"--", "box", "sh", "-c", "'x y'"}), true},
		{"docker:db", false, []string{"docker", "exec", "-i", "db", "sh", "-c", "x y"}, false},
		{"podman:db", true, []string{"podman", "exec", "-i", "db", "sh", "-c", "x y"}, false},
		{"kube:ns/pod", false, []string{"kubectl", "exec", "-i", "ns/pod", "--", "sh", "-c", "x y"}, false},
	} {
		cmd := Command(t.Context(), c.host, "x y", env, c.alone)
		if !slices.Equal(cmd.Args, c.want) {
			t.Errorf("Command(%s) = %q, want %q", c.host, cmd.Args, c.want)
		}
		if Moves(c.host) != c.moves {
			t.Errorf("Moves(%s) = %v", c.host, !c.moves)
		}
	}
	got := Forward(t.Context(), "box", "/far", "/near", "x y", env).Args
	if want := slices.Concat([]string{
		"ssh", "-R", "/far:/near", "-T", "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=5",
	}, always, []string{"--", "box", "sh", "-c", "'x y'"}); !slices.Equal(got, want) {
		t.Errorf("Forward = %q, want %q", got, want)
	}
	for host, want := range map[string]string{
		"me@box": "ssh me@box true", "docker:db": "docker exec -i db sh -c true",
		"kube:x": "kubectl exec -i x -- sh -c true",
	} {
		if got := Try(host); got != want {
			t.Errorf("Try(%s) = %s, want %s", host, got, want)
		}
	}
	if strings.Contains(Script("doctor"), "'") {
		t.Errorf("a script must have no single quotes: %s", Script("doctor"))
	}
}

// TestRun checks that a command's output comes back, that of one which fails too, and that an error
// names the program and the host, with the line that says most.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct{ script, out, err string }{
		"it works":        {"echo there", "there\n", ""},
		"it fails":        {"echo out; echo Welcome >&2; echo Permission denied. >&2; exit 255", "out\n", "Permission denied"},
		"help follows":    {"echo No such container >&2; echo See --help >&2; exit 1", "", "No such container"},
		"it says nothing": {"exit 3", "", "exit status 3"},
	} {
		h, _ := hostsBy(t, c.script)
		out, err := Run(Command(t.Context(), "box", "x", h.Environ(t.Context()), false), "box")
		if out != c.out || (err == nil) != (c.err == "") || err != nil && err.Error() != "ssh box: "+c.err {
			t.Errorf("%s: Run = %q, %v", name, out, err)
		}
	}
	if _, err := Run(Command(t.Context(), "podman:x", "y", []string{"PATH=/nonexistent"}, false), "podman:x"); err == nil ||
		!strings.HasPrefix(err.Error(), "podman cannot be started") {
		t.Errorf("without the program: %v", err)
	}
}
