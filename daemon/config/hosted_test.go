package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/redact"
)

func parsed(t *testing.T, servers string) Config {
	t.Helper()
	c, err := Parse("c", []byte(`{"mcpServers": {`+servers+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestServerDefaults checks the settings of a server whose entry has only a command.
func TestServerDefaults(t *testing.T) {
	c := parsed(t, `"a": {"command": "npx", "args": ["-y"], "env": {"K": "v"}, "cwd": "/x"}`)
	got, ok := c.Server("a")
	want := Settings{
		Name: "a", Enabled: true, Transport: "stdio",
		Command: "npx", Args: []string{"-y"}, Env: map[string]redact.Secret{"K": "v"}, Cwd: "/x",
		MaxRestarts: 5, TaskAfter: 20 * time.Second, KeepAlive: 10 * time.Minute,
		Hosting: Hosting{
			Scope: "project", Timeout: 300 * time.Second, MaxTimeout: time.Hour, StartTimeout: 2 * time.Minute,
			TaskAfter:     new(20 * time.Second),
			MaxConcurrent: 32, MaxRestarts: new(5), RestartWindow: 5 * time.Minute, CircuitThreshold: 5,
			CircuitReset: 30 * time.Second, InheritEnv: "core", Pin: PinWarn, Confine: "off",
			KeepAlive: new(10 * time.Minute), Launcher: LauncherDirect, LauncherRefresh: 24 * time.Hour,
			HostWindow: 24 * time.Hour,
		},
	}
	if !ok || !got.Equal(want) {
		t.Errorf("Server:\n got %#v\nwant %#v", got, want)
	}
	if _, ok := c.Server("b"); ok {
		t.Error("Server made one up")
	}
}

// TestServerSettings checks that every key of an entry is read, and that keys of other
// clients are ignored.
func TestServerSettings(t *testing.T) {
	c := parsed(t, `"a": {"type": "streamable-http", "url": "https://x/mcp", "headers": {"K": "v"}, "env_file": "/e",
		"autoApprove": ["x"], "alwaysAllow": [], "timeout": 60, "description": {"any": "thing"},
		"holdline": {"scope": "session", "lazy": true, "keep_alive": "0s", "card": "https://x/card", "contract": "convergent",
		"allow": ["a*"], "deny": ["b"], "projects": ["/p"], "timeout": "2h", "task_after": "0s", "start_timeout": "5m", "max_concurrent": 7, "max_restarts": 0,
		"restart_window": "1m", "circuit_threshold": 2, "circuit_reset": "1s", "inherit_env": "none"}}`)
	got, _ := c.Server("a")
	want := Settings{
		Name: "a", Enabled: true, Transport: "http", URL: "https://x/mcp", Headers: map[string]redact.Secret{"K": "v"},
		Hosting: Hosting{
			EnvFile: "/e", Scope: "session", Lazy: true, KeepAlive: new(time.Duration(0)), Card: "https://x/card",
			Contracts: Contracts{"*": "convergent"}, Allow: []string{"a*"}, Deny: []string{"b"},
			Projects: []string{"/p"},
			Timeout:  2 * time.Hour, MaxTimeout: 2 * time.Hour, // never below the timeout
			TaskAfter:    new(time.Duration(0)),
			StartTimeout: 5 * time.Minute, MaxConcurrent: 7, MaxRestarts: new(0), RestartWindow: time.Minute,
			CircuitThreshold: 2, CircuitReset: time.Second, InheritEnv: "none", Pin: PinWarn, Confine: "off",
			Launcher: LauncherDirect, LauncherRefresh: 24 * time.Hour,
			HostWindow: 24 * time.Hour,
		},
	}
	if !got.Equal(want) {
		t.Errorf("Server:\n got %#v\nwant %#v", got, want)
	}
}

// TestServerEnabledAndTransport checks the keys with which entries say that a server is
// disabled, and what its transport is.
func TestServerEnabledAndTransport(t *testing.T) {
	for text, want := range map[string]struct {
		enabled   bool
		transport string
	}{
		`"command": "x"`:                                        {true, Stdio},
		`"command": "x", "enabled": true`:                       {true, Stdio},
		`"command": "x", "enabled": false`:                      {false, Stdio},
		`"command": "x", "disabled": true`:                      {false, Stdio},
		`"command": "x", "disabled": false`:                     {true, Stdio},
		`"command": "x", "holdline": {"disabled": true}`:        {false, Stdio},
		`"type": "stdio", "command": "x"`:                       {true, Stdio},
		`"url": "http://x"`:                                     {true, HTTP},
		`"type": "http", "url": "http://x"`:                     {true, HTTP},
		`"type": "streamableHttp", "url": "http://x"`:           {true, HTTP},
		`"type": "sse", "url": "http://x"`:                      {true, SSE},
		`"url": "${BASE}/mcp", "headers": {"A": "Bearer ${T}"}`: {true, HTTP},
	} {
		s, _ := parsed(t, `"a": {`+text+`}`).Server("a")
		if s.Enabled != want.enabled || s.Transport != want.transport {
			t.Errorf("%s: enabled %v, transport %s", text, s.Enabled, s.Transport)
		}
	}
}

// TestContract checks which of several patterns for a tool's contract applies: the longest.
func TestContract(t *testing.T) {
	s := Settings{Hosting: Hosting{Contracts: Contracts{
		"*": "never_replay", "get_*": "convergent", "get_one*": "never_replay", "get_once": "convergent",
		"*_all": "never_replay",
	}}}
	for tool, want := range map[string]string{
		"put": "never_replay", "get_x": "convergent", "get_one": "never_replay", "get_once": "convergent",
		"put_all": "never_replay",
		"get_all": "never_replay", // two patterns of the same length: the first in the alphabet counts
	} {
		if got, ok := s.Contract(tool); got != want || !ok {
			t.Errorf("Contract(%s) = %q, %v; want %s", tool, got, ok, want)
		}
	}
	if got, ok := (Settings{Hosting: Hosting{Contracts: Contracts{"a": "convergent"}}}).Contract("b"); ok {
		t.Errorf("Contract = %q where nothing is said", got)
	}
}

// TestVisibleIn checks in which projects a server is visible. Links in both paths are
// resolved.
func TestVisibleIn(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"p/sub", "p2", "q"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "q"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := Settings{Hosting: Hosting{Projects: []string{filepath.Join(dir, "p"), filepath.Join(dir, "link") + "/"}}}
	for root, want := range map[string]bool{
		"p": true, "p/sub": true, "p/": true, "p2": false, "": false, "q": true, "link": true, "p/../p2": false,
		"p/gone": true,
	} {
		if got := s.VisibleIn(dir + "/" + root); got != want {
			t.Errorf("VisibleIn(%s) = %v", root, got)
		}
	}
	if !(Settings{}).VisibleIn("/anywhere") {
		t.Error("a server without projects is not visible")
	}
	if (Settings{Hosting: Hosting{Projects: []string{}}}).VisibleIn("/anywhere") {
		t.Error("a server for no project is visible")
	}
}

// TestServerLimits checks that a server has the limits of its own entry and, in place of those
// that it does not have, the limits of all servers; a remote server has none.
func TestServerLimits(t *testing.T) {
	c, err := Parse("c", []byte(`{"server_limits": {"memory": "2GiB", "processes": 200},
		"mcpServers": {"own": {"command": "x", "holdline": {"limits": {"memory": "512MiB", "cpu_weight": 50}}},
		"others": {"command": "x"}, "far": {"url": "https://x/mcp"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Bounds{
		"own": {512 << 20, 200, 50}, "others": {2 << 30, 200, 0}, "far": {},
	} {
		if s, _ := c.Server(name); s.Bounds != want {
			t.Errorf("%s: limits %+v, want %+v", name, s.Bounds, want)
		}
	}
	for limits, want := range map[string]string{
		`{"memory": "2GB"}`:     `limits.memory: is no size such as "512MiB" or "2GiB"`,
		`{"memory": 5}`:         `limits.memory: wants a size such as "512MiB", not a number`,
		`{"memory": "1MiB"}`:    `limits.memory: wants 64MiB to 1024TiB`,
		`{"processes": 3}`:      `limits.processes: wants 32 to 1000000`,
		`{"cpu_weight": 10001}`: `limits.cpu_weight: wants 1 to 10000`,
	} {
		_, err := Parse("c", []byte(`{"mcpServers": {"a": {"command": "x", "holdline": {"limits": `+limits+`}}}}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", limits, err, want)
		}
	}
	_, err = Parse("c", []byte(`{"mcpServers": {"a": {"url": "https://x", "holdline": {"limits": {"processes": 99}}}}}`))
	if err == nil || !strings.Contains(err.Error(), "this one runs elsewhere") {
		t.Errorf("limits of a remote server: %v", err)
	}
}

// TestEntriesOfOtherClients_AreTakenOrNamed checks entries as the documents of other clients have them: what
// they say is taken, or the mistake says what to write instead.
func TestEntriesOfOtherClients_AreTakenOrNamed(t *testing.T) {
	for entry, want := range map[string]string{ // what is wrong with it; "" is nothing
		`{"type": "stdio", "command": "npx", "args": ["x"], "alwaysLoad": true}`:                                  "",
		`{"type": "local", "command": "npx", "args": ["x"], "tools": ["*"], "timeout": 5}`:                        "",
		`{"command": "npx", "required": true, "supports_parallel_tool_calls": true}`:                              "",
		`{"command": "npx", "default_tools_approval_mode": "writes", "$typeName": "a", "dev": {"watch": "x"}}`:    "",
		`{"source": "custom", "command": "npx", "args": ["x"], "env": {}, "registry": "r"}`:                       "",
		`{"type": "remote", "url": "https://a.example/mcp", "oauth": false}`:                                      "",
		`{"type": "streamable_http", "url": "https://a.example/mcp"}`:                                             "",
		`{"command": "npx", "sandboxEnabled": false}`:                                                             "",
		`{"url": "https://a.example/mcp", "scopes": ["a"]}`:                                                       `write "oauth": {"scopes"`,
		`{"url": "https://a.example/mcp", "oauth_resource": "a"}`:                                                 `write "oauth": {"resource"`,
		`{"url": "https://a.example/mcp", "oauth": true}`:                                                         "wants an object",
		`{"url": "https://a.example/mcp", "headersHelper": "x"}`:                                                  "${cmd:THAT}",
		`{"command": "npx", "tools": ["a"]}`:                                                                      `write "holdline": {"allow"`,
		`{"command": "npx", "env_vars": ["A"]}`:                                                                   `write "env"`,
		`{"command": "npx", "sandbox": {}}`:                                                                       `"confine"`,
		`{"type": "local", "command": ["npx", "x"]}`:                                                              "the others into args",
		`{"command": "npx -y @a/b"}`:                                                                              "the others into args",
		`{"command": "npx", "id": "a", "displayName": "A", "logoUrl": "l", "provider": "p", "longRunning": true}`: "",
		`{"command": "npx", "isActive": true}`:                                                                    "write enabled",
		`{"baseUrl": "https://a.example/mcp"}`:                                                                    "write url",
	} {
		c, err := Parse("f", []byte(`{"mcpServers": {"s": `+entry+"}}\n// the last line"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
		s, _ := c.Server("s")
		if byAddress := strings.Contains(entry, `"url"`); err == nil && (s.Transport == HTTP) != byAddress {
			t.Errorf("%s: transport %s", entry, s.Transport)
		}
	}
}
