package far

import (
	"slices"
	"strings"
	"testing"
)

// TestCommand checks the arguments by which each kind of host is reached. The program is looked for
// on the PATH of the environment that is given.
func TestCommand(t *testing.T) {
	options := []string{
		"-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
		"-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none",
	}
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
		cmd := Command(c.host, "x y", []string{"PATH=/nonexistent"}, c.alone)
		if !slices.Equal(cmd.Args, c.want) {
			t.Errorf("Command(%s) = %q, want %q", c.host, cmd.Args, c.want)
		}
		if Moves(c.host) != c.moves {
			t.Errorf("Moves(%s) = %v", c.host, !c.moves)
		}
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
