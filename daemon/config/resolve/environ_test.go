package resolve

import (
	"slices"
	"testing"

	"holdline/daemon/config"
)

// TestEnvironment checks which variables a hosted server inherits in each mode.
func TestEnvironment(t *testing.T) {
	base := []string{
		"HOME=/home/u", "PATH=/bin", "LC_ALL=C", "XDG_RUNTIME_DIR=/run", "HTTPS_PROXY=p", "http_proxy=q",
		"NODE_EXTRA_CA_CERTS=c", "SSH_AUTH_SOCK=s", "DBUS_SESSION_BUS_ADDRESS=d", "DISPLAY=:0", "WAYLAND_DISPLAY=w",
		"XAUTHORITY=x", "DOCKER_HOST=h", "GITHUB_TOKEN=secret", "ANTHROPIC_API_KEY=secret",
		"LD_PRELOAD=/x.so", "LD_AUDIT=/x.so", "DYLD_INSERT_LIBRARIES=/x", "HOLDLINE_TOKEN=secret", "HOLDLINE_WORKER=w1",
		"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=x", "CLAUDE_CODE_MESSAGING_SOCKET=x", "AI_AGENT=x", "LISTEN_FDS=1",
		"NOTIFY_SOCKET=n", "PWD=/x", "broken", "=x",
	}
	core := []string{
		"DBUS_SESSION_BUS_ADDRESS=d", "DISPLAY=:0", "DOCKER_HOST=h", "HOME=/home/u", "HTTPS_PROXY=p", "LC_ALL=C",
		"NODE_EXTRA_CA_CERTS=c", "PATH=/bin", "SSH_AUTH_SOCK=s", "WAYLAND_DISPLAY=w", "XAUTHORITY=x",
		"XDG_RUNTIME_DIR=/run", "http_proxy=q",
	}
	all := slices.Sorted(slices.Values(append(slices.Clone(core), "GITHUB_TOKEN=secret", "ANTHROPIC_API_KEY=secret")))
	for mode, want := range map[string][]string{config.InheritCore: core, config.InheritAll: all, config.InheritNone: {}} {
		if got := Environment(mode, base, nil); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", mode, got, want)
		}
	}
	set := map[string]string{
		"PATH": "/opt/bin", "GITHUB_TOKEN": "t", "LD_PRELOAD": "/x.so", "HOLDLINE_WORKER": "w", "DYLD_X": "y",
		"LD_LIBRARY_PATH": "/lib",
	}
	want := []string{"GITHUB_TOKEN=t", "LD_LIBRARY_PATH=/lib", "PATH=/opt/bin"}
	if got := Environment(config.InheritNone, base, set); !slices.Equal(got, want) {
		t.Errorf("configured:\n got %q\nwant %q", got, want)
	}
	if got := Environment(config.InheritCore, base, set); !slices.Contains(got, "PATH=/opt/bin") ||
		slices.Contains(got, "PATH=/bin") {
		t.Errorf("what is configured must win: %q", got)
	}
}
