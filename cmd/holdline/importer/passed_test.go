package importer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/config"
)

// imported carries out the import of a home, and returns the plan and holdline's configuration after it.
func imported(t *testing.T, o Options) (*Plan, config.Config) {
	t.Helper()
	p := look(t, o)
	carryOut(t, p)
	c, err := config.Parse(o.Config, []byte(read(t, o.Config)))
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// TestVariableOfTheClientsEnvironment_ThatSelectsWhatAServerWorksOn_IsKept checks which variables of its own
// environment a client passes on to servers that these still have when they have moved: those that are known to
// matter and those that the user chose. Others that may matter are named once, and those of a terminal
// never. Servers of clients that pass nothing get none.
func TestVariableOfTheClientsEnvironment_ThatSelectsWhatAServerWorksOn_IsKept(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Environ = []string{
		"HOME=" + home, "PATH=/bin", "TERM=xterm", "TERM_PROGRAM=x", "KUBECONFIG=/staging/config", "AWS_PROFILE=staging",
		"MY_API_KEY=abcdef0123456789", "MINE=1", "CHOSEN=yes", "SET_IN_ENTRY=1", "UV_INDEX_URL=https://u:pw123456@h/x",
		"CLAUDECODE=1", "CLAUDE_CODE_SESSION_ID=s", "CLAUDE_CODE_OAUTH_TOKEN=t", "HOLDLINE_TOKEN=t", "ODD={}", "LD_PRELOAD=/x",
		"JAVA_HOME=/j/${V}", "PWD=/work", "OLDPWD=/", "SHLVL=2", "PROVIDER_KEY=k123",
	}
	o.Keep = []string{"CHOSEN"}
	write(t, filepath.Join(home, ".claude/settings.json"), `{"env": {"AWS_PROFILE": "prod"}} // of the user`)
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {
		"k8s": {"command": "k", "env": {"SET_IN_ENTRY": "2"}}, "far": {"url": "https://a.example/mcp"}}}`)
	write(t, filepath.Join(home, ".codex/config.toml"), "[mcp_servers.c]\ncommand = \"c\"\n\n[mcp_servers.k8s]\n"+
		"command = \"k\"\nenv = { SET_IN_ENTRY = \"2\" }\n\n[model_providers.p]\nenv_key = \"PROVIDER_KEY\"\n")
	p, c := imported(t, o)
	want := map[string]string{
		"SET_IN_ENTRY": "2", "KUBECONFIG": "${KUBECONFIG:-/staging/config}", "AWS_PROFILE": "${AWS_PROFILE:-prod}",
		"MY_API_KEY": "${MY_API_KEY:-}", "CHOSEN": "${CHOSEN:-yes}", "UV_INDEX_URL": "${UV_INDEX_URL:-}",
		"JAVA_HOME": "${JAVA_HOME:-}",
	}
	s, _ := c.Server("k8s") // the clients have the same server, so it is one
	for name, value := range s.Env {
		if want[name] != value.Reveal() {
			t.Errorf("%s is %q, want %q", name, value.Reveal(), want[name])
		}
	}
	if len(s.Env) != len(want) || len(c.Servers) != 3 {
		t.Errorf("%d variables, want %d; servers %q", len(s.Env), len(want), p.Servers)
	}
	for _, name := range []string{"far", "c"} {
		if s, ok := c.Server(name); !ok || len(s.Env) > 0 {
			t.Errorf("%s has %v", name, s.Env)
		}
	}
	if !slices.Equal(p.Left, []string{"MINE", "ODD", "PROVIDER_KEY"}) || !strings.Contains(p.Unkept(), "MINE, ODD") {
		t.Errorf("left are %q: %s", p.Left, p.Unkept())
	}
	if notes := p.Files[0].Servers[0].Notes; !slices.ContainsFunc(notes, func(note string) bool {
		return strings.HasPrefix(note, "keeps variables of your environment: AWS_PROFILE, CHOSEN, JAVA_HOME, KUBECONFIG")
	}) {
		t.Errorf("notes %q", notes)
	}
	if text := read(t, o.Config); strings.Contains(text, "abcdef0123456789") || strings.Contains(text, "pw123456") {
		t.Error("a secret of the environment is in holdline's file")
	}
}

// TestLimitOfTheClient_IsThatOfTheServer checks from where the limit of a call comes: the entry, the client's
// settings, its environment, and what the client does by itself.
func TestLimitOfTheClient_IsThatOfTheServer(t *testing.T) {
	const ten = "MCP_TOOL_TIMEOUT=600000"
	for _, tt := range []struct {
		name, entry, settings string
		environ               string
		call, start           time.Duration
	}{
		{"the client's own", ``, ``, "", 30 * time.Minute, 2 * time.Minute},
		{"environment", ``, ``, ten, 10 * time.Minute, 2 * time.Minute},
		{"settings before environment", ``, `"MCP_TOOL_TIMEOUT": "3600000", "MCP_TIMEOUT": "240000"`, ten, time.Hour, 4 * time.Minute},
		{"entry before settings", `, "timeout": 1200000`, `"MCP_TOOL_TIMEOUT": "3600000"`, ten, 20 * time.Minute, 2 * time.Minute},
		{"a short one stays with the client", ``, `"MCP_TOOL_TIMEOUT": "1000"`, "", 5 * time.Minute, 2 * time.Minute},
		{"silence", ``, `"CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "7200000"`, "", 2 * time.Hour, 2 * time.Minute},
		{"no number", ``, `"MCP_TOOL_TIMEOUT": "soon"`, "", 30 * time.Minute, 2 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			o := options(home)
			o.Environ = []string{"HOME=" + home, tt.environ}
			write(t, filepath.Join(home, ".claude/settings.json"), `{"env": {`+tt.settings+`}}`)
			write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"s": {"command": "x"`+tt.entry+`}}}`)
			_, c := imported(t, o)
			s, _ := c.Server("s")
			if s.Timeout != tt.call || s.StartTimeout != tt.start || s.MaxTimeout < s.Timeout {
				t.Errorf("timeout %v, start_timeout %v, max_timeout %v, want %v and %v", s.Timeout, s.StartTimeout, s.MaxTimeout,
					tt.call, tt.start)
			}
		})
	}
	home := t.TempDir()
	o := options(home)
	if err := os.Mkdir(filepath.Join(home, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, ".codex/config.toml"), "[mcp_servers.s]\ncommand = \"x\"\ntool_timeout_sec = 900\n")
	_, c := imported(t, o)
	if s, _ := c.Server("s"); s.Timeout != 15*time.Minute {
		t.Errorf("Codex' own key: %v", s.Timeout)
	}
}

// TestEntryOfAClientThatClearsTheEnvironment_HasHoldlinesVariables checks that such a client starts holdline with the
// variables of this shell by which it finds its daemon and its files, and other clients do not.
func TestEntryOfAClientThatClearsTheEnvironment_HasHoldlinesVariables(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Getenv = func(name string) string {
		return map[string]string{
			"XDG_RUNTIME_DIR": "/run/u", "HOLDLINE_CONFIG": `/a "b"/c.json`, "HOLDLINE_TOKEN": "secret", "KUBECONFIG": "/k",
		}[name]
	}
	write(t, filepath.Join(home, ".codex/config.toml"), "[mcp_servers.s]\ncommand = \"x\"\n\n[mcp_servers.s.env]\nA = \"1\"\n")
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"s": {"command": "x", "env": {"A": "1"}}}}`)
	imported(t, o)
	const line = `env = { HOLDLINE_CONFIG = "/a \"b\"/c.json", XDG_RUNTIME_DIR = "/run/u" }`
	codex := read(t, filepath.Join(home, ".codex/config.toml"))
	if strings.Count(codex, line) != 2 || strings.Contains(codex, "secret") {
		t.Errorf("want %s in both entries:\n%s", line, codex)
	}
	if text := read(t, filepath.Join(home, ".claude.json")); strings.Contains(text, "XDG_RUNTIME_DIR") {
		t.Errorf("Claude Code passes its environment on, and has\n%s", text)
	}
}

// TestFurtherFilesOfClients_AreFound checks the files that a client reads besides its first one: of profiles, of an
// editor's server, of a plugin. One of them without a server is not edited.
func TestFurtherFilesOfClients_AreFound(t *testing.T) {
	home := filepath.Join(t.TempDir(), "a [b]*")
	o := options(home)
	json := func(key, name string) string { return `{"` + key + `": {"` + name + `": {"command": "` + name + `"}}}` }
	for path, text := range map[string]string{
		".config/Code/User/profiles/1a/mcp.json":       json("servers", "one"),
		".vscode-server/data/User/mcp.json":            json("servers", "two"),
		".vscode-server/data/User/profiles/x/mcp.json": json("servers", "three"),
		".codex/config.toml":                           "[mcp_servers.four]\ncommand = \"four\"\n",
		".codex/work.config.toml":                      "[mcp_servers.five]\ncommand = \"five\"\n",
		".codex/plain.config.toml":                     "model = \"m\"\n",
		".codeium/mcp_config.json":                     json("mcpServers", "six"),
	} {
		write(t, filepath.Join(home, path), text)
	}
	p, c := imported(t, o)
	for _, name := range []string{"one", "two", "three", "four", "five", "six"} {
		if _, ok := c.Server(name); !ok {
			t.Errorf("%s is not found; servers %q", name, p.Servers)
		}
	}
	if text := read(t, filepath.Join(home, ".codex/plain.config.toml")); text != "model = \"m\"\n" {
		t.Errorf("a profile without servers is now\n%s", text)
	}
}
